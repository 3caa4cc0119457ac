"""controller.log about brokers, elections, topics and reassignments, 0.8 to 3.9, as in `shapes_controller`. Data."""

from __future__ import annotations

from functools import partial
from typing import Final

from sparkjobs.parse.patterns import Shape, shape_for

_c = partial(shape_for, role="controller")
_IDS = "{INTS}"

CLUSTER_SHAPES: Final[tuple[Shape, ...]] = (
    _c(
        "brokers",
        "brokers_changed",
        pattern=rf"newly added brokers: (?<added>{_IDS}), deleted brokers: (?<removed>{_IDS}), "
        rf"(?:bounced brokers: {_IDS}, )?all live brokers: (?<replicas>{_IDS})",
    ),
    _c(
        "broker.epochs",
        "broker_epochs",
        anchor="updated broker epochs cache",
        pattern=r"updated broker epochs cache: (?<reason>.*)",
    ),
    _c(
        "broker.epochs.first",
        "broker_epochs",
        anchor="initialized broker epochs cache",
        pattern=r"initialized broker epochs cache: (?<reason>.*)",
    ),
    _c("broker.failed", "broker_failed", pattern=rf"broker failure callback for (?<removed>{_IDS})"),
    _c("broker.started", "broker_started", pattern=rf"new broker startup callback for (?<added>{_IDS})"),
    _c("broker.stops", "broker_shutdown_requested", pattern=r"shutting down broker (?<peer_broker>\d+)"),
    _c("broker.connected", "broker_connected", pattern=r"connected to {PEER} for sending state change requests"),
    _c(
        "broker.unreachable",
        "broker_unreachable",
        anchor="'s connection to broker",
        pattern=r"'s connection to broker {PEER} was unsuccessful",
    ),
    _c(
        "request.failed",
        "request_failed",
        anchor="fails to send a request",
        pattern=r"fails to send a request to broker {PEER}",
    ),
    _c(
        "request.failed.of",
        "request_failed",
        anchor="fails to send request",
        pattern=r"fails to send request .*?to broker {PEER}.*",
        error="connection",
    ),
    _c(
        "isr.granted",
        "isr_changed",
        pattern=r"ISR for partition {T} updated to {STATE}\.?",
        reason="alter partition",
        anchor="isr for partition ",
    ),
    _c("isr.kept", "other", anchor="retaining last isr", pattern=r"retaining last ISR .*"),
    _c(
        "isr.removed",
        "isr_changed",
        pattern=r"new leader and ISR for partition {T} is {STATE}",
        reason="replica offline",
    ),
    _c(
        "elected.unclean",
        "unclean_elected",
        anchor="no broker in isr is alive for",
        pattern=r"no broker in ISR is alive for {T}\. Elect leader (?<leader>\d+) from live brokers .*",
    ),
    _c(
        "elected.offline",
        "leader_elected",
        anchor="selected new leader and isr",
        pattern=r"selected new leader and ISR {STATE} for offline partition {T}",
    ),
    _c(
        "elected.preferred",
        "preferred_election_done",
        pattern=r"partition {T} completed preferred replica leader election\. New leader is (?<leader>-?\d+)",
        anchor="partition ",
        mark="completed preferred",
    ),
    _c(
        "preferred.asked",
        "preferred_election_asked",
        anchor="starting replica leader election (preferred)",
        pattern=r"starting replica leader election \(PREFERRED\) for partitions \S.* triggered by (?<reason>\w+)",
    ),
    _c(
        "retried",
        "election_retried",
        anchor="retrying leader election with strategy",
        pattern=r"retrying leader election with strategy (?<reason>.*)",
    ),
    _c(
        "reassignment.old",
        "reassignment_started",
        anchor="handling reassignment of partition",
        pattern=r"handling reassignment of partition {T} to new replicas {LIST}",
    ),
    _c(
        "reassignment.assigned",
        "reassignment_step",
        pattern=r"successfully updated assignment of partition {T} to {ASSIGNMENT}",
        reason="assignment written",
    ),
    _c(
        "reassignment.assigning",
        "reassignment_started",
        anchor="updating assignment of partition",
        pattern=r"updating assignment of partition {T} from ReplicaAssignment\([^)]*\) to {ASSIGNMENT}",
    ),
    _c(
        "reassignment.caught",
        "reassignment_done",
        anchor="target replicas ",
        pattern=r"target replicas (?:[A-Z]\w*)?\(?(?<replicas>{INTS})\)? have all caught up with the leader for "
        r"reassigning partition {T}",
    ),
    _c(
        "reassignment.removed",
        "reassignment_done",
        anchor="removed partition",
        pattern=r"removed partition {T} from the list of reassigned partitions.*",
    ),
    _c(
        "reassignment.leader",
        "reassignment_step",
        anchor="leader ",
        mark=" being reassigned, ",
        pattern=r"leader (?<leader>-?\d+) for partition {T} being reassigned, (?<reason>is .*)",
    ),
    _c(
        "reassignment.epoch",
        "reassignment_step",
        anchor="updated leader epoch for partition",
        pattern=r"updated leader epoch for partition {T} to (?<leader_epoch>\d+), zkVersion=(?<version>\d+)",
        reason="leader epoch raised",
    ),
    _c(
        "reassignment.failed",
        "reassignment_failed",
        anchor="failed to complete reassignment",
        pattern=r"failed to complete reassignment of partition {T}(?<reason>.*)",
    ),
    _c(
        "topics",
        "topics_changed",
        anchor="new topics: ",
        pattern=r"new topics: (?<reason>\[.*?\], deleted topics: \[.*?\]).*",
    ),
    _c("topic.created", "topics_changed", pattern=r"new partition creation callback for (?<reason>.*)"),
    _c("delete.started", "topic_deletion_started", pattern=r"starting topic deletion for topics (?<reason>.*)"),
    _c(
        "delete.asked",
        "topics_changed",
        anchor="delete topics listener fired",
        pattern=r"delete topics listener fired for topics (?<reason>.*)",
    ),
    _c(
        "delete.restarted",
        "topic_deletion_started",
        anchor="deletion of topic ",
        mark="(re)started",
        pattern=r"deletion of topic (?<topic>[\w.-]+) (?<reason>\(re\)started)",
    ),
    _c(
        "delete.done",
        "topic_deleted",
        anchor="deletion of topic ",
        pattern=r"deletion of topic (?<topic>[\w.-]+) (?:successfully completed|(?<reason>.*))",
    ),
    _c(
        "delete.halted",
        "topic_deletion_halted",
        anchor="halted deletion of topics",
        pattern=r"halted deletion of topics (?<reason>.*)",
    ),
)
