"""The controller's lines of Kafka 0.8 to 3.9: its requests and state machines in state-change.log; in controller.log,
brokers, elections, topics and reassignments.

Each shape has its id, its event, and how it reads after the prefix (`[Controller id=1 epoch=2] ` and the like). The
first shape of the catalogue whose beginning fits is taken; if its pattern then does not fit, the line is unknown. Data.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sparkjobs.parse.patterns import Shape, shape_for

_c = partial(shape_for, role="controller")
_TO = r"become-(?<to_state>leader|follower)"

CONTROLLER_SHAPES: Final[tuple[Shape, ...]] = (
    _c(
        "partition.changed",
        "partition_changed",
        pattern=r"changed partition {T} (?:state )?{FROM_TO}"
        r"(?: with (?:state {STATE}|leader (?<leader>-?\d+)|assigned replicas {LIST}))?",
    ),
    _c(
        "replica.changed",
        "replica_changed",
        pattern=r"changed state of replica (?<peer_broker>\d+) for partition {T} "
        r"(?:from (?<from_state>\w+) )?to (?<to_state>\w+)",
    ),
    _c(
        "partition.shrunk",
        "isr_changed",
        reason="replica offline",
        mark=" after removing replica ",
        pattern=r"partition {T} state changed to {STATE_AND_EPOCH} after removing replica (?<peer_broker>\d+) from the "
        r"ISR as part of transition to OfflineReplica",
    ),
    _c("partition.failed", "partition_change_failed", pattern=r"failed to change state for partition {T} {FROM_TO}.*"),
    _c(
        "replica.failed",
        "replica_change_failed",
        pattern=r"initiated state change of replica (?<peer_broker>\d+) for partition {T} "
        r"(?:from (?<from_state>\w+) )?to (?<to_state>\w+) failed.*",
    ),
    _c(
        "partition.failed.old",
        "partition_change_failed",
        pattern=r"initiated state change for partition {T} {FROM_TO} failed.*",
    ),
    _c(
        "replica.failed.new",
        "replica_change_failed",
        pattern=r"failed to change state of replica (?<peer_broker>\d+) for partition {T} {FROM_TO}.*",
    ),
    _c("election.started", "election_started", pattern=r"started leader election for partition {T}"),
    _c("election.done", "leader_elected", pattern=r"elected leader (?<leader>\d+) for [Oo]ffline partition {T}"),
    _c(
        "election.failed",
        "election_failed",
        pattern=r"encountered error while electing leader for partition {T} due to: (?<reason>.*)",
    ),
    _c(
        "send.leader",
        "request_sent",
        api="LeaderAndIsr",
        pattern=rf"sending {_TO} LeaderAndIsr request (?:{{ASKED}} )?(?:with {{ID}} )?to broker (?<peer_broker>-?\d+) "
        r"for partition {T}",
    ),
    _c(
        "send.leader.batch",
        "request_sent",
        api="LeaderAndIsr",
        pattern=r"sending LeaderAndIsr request to broker (?<peer_broker>\d+) with (?<n_partitions>\d+) "
        r"become-leader and "
        r"(?<n_more>\d+) become-follower partitions",
    ),
    _c(
        "send.metadata.batch",
        "request_sent",
        api="UpdateMetadata",
        anchor="sending updatemetadata request to broker",
        pattern=r"sending UpdateMetadata request to brokers? (?:[A-Z]\w*)?\(?(?<replicas>{INTS})\)? "
        r"for (?<n_partitions>\d+) partitions.*",
    ),
    _c(
        "send.metadata",
        "request_sent",
        api="UpdateMetadata",
        pattern=r"sending UpdateMetadata request (?:{ASKED} )?(?:with {ID} )?to (?:brokers {BROKERS}|"
        r"broker (?<peer_broker>\d+)) for partition {T}",
    ),
    _c(
        "send.stop.batch",
        "request_sent",
        api="StopReplica",
        pattern=r"sending StopReplica request for (?<n_partitions>\d+) replicas to broker (?<peer_broker>\d+).*",
    ),
    _c(
        "send.stop",
        "request_sent",
        api="StopReplica",
        pattern=r"sending StopReplica request StopReplicaPartitionState\(partitionIndex=\d+, "
        r"leaderEpoch=(?<leader_epoch>-?\d+), deletePartition=\w+\) to broker (?<peer_broker>\d+) "
        r"for partition {T}",
    ),
    _c(
        "send.stop.old",
        "request_sent",
        api="StopReplica",
        anchor="sending stop",
        pattern=r"sending stop ?[rR]eplica request (?<reason>.*)",
    ),
    _c(
        "sent.reassigned",
        "request_sent",
        api="LeaderAndIsr",
        anchor="sent leaderandisr request",
        pattern=r"sent LeaderAndIsr request {STATE_AND_EPOCH} with new (?:replica assignment|assigned replica list) "
        r"(?:ReplicaAssignment\()?.* to leader (?<peer_broker>-?\d+) for partition being reassigned {T}",
    ),
    _c(
        "response.old",
        "response_received",
        pattern=r"received response correlationId (?<correlation_id>\d+) for a request sent to broker "
        r"(?:{PEER}|(?<peer_broker>\d+))",
    ),
    *(
        _c(
            f"response.{api}",
            "response_received",
            anchor=f"received response {api}response(",
            pattern=rf"received response (?<api>{api})Response\((?<correlation_id>\d+),.* for a request sent to broker "
            r"{PEER}",
        )
        for api in ("LeaderAndIsr", "UpdateMetadata", "StopReplica")
    ),
    _c(
        "response.first",
        "response_received",
        anchor="received response {",
        mark=",partitions=[{topic=",
        pattern=r"received response \{error_code=(?<error>-?\d+),partitions=\[\{topic=(?<topic>[\w.-]+),"
        r"partition=(?<partition>\d+),.* for (?:a request|request (?<api>\w+) with correlation id "
        r"(?<correlation_id>\d+)) sent to broker {PEER}",
    ),
    _c(
        "response",
        "response_received",
        anchor="received response",
        pattern=r"received response \S*?[{(]?(?:error_?[cC]ode=(?<error>-?\d+))?.*? for (?:a request|request "
        r"(?<api>\w+) with correlation id (?<correlation_id>\d+)) sent to broker {PEER}",
    ),
    _c(
        "request.refused",
        "request_failed",
        pattern=r"received error (?<error>\w+).* in (?<api>\w+) response.*? from broker {PEER}.*",
        anchor="received error",
    ),
    _c(
        "replicas.offline",
        "replicas_offline",
        pattern=r"mark replicas (?<reason>.*) on broker (?<peer_broker>\d+) as offline",
    ),
)


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
