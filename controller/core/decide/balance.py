"""Elections on request: preferred leaders and unclean ones, by hand, by request node, and by the clock.

Only partitions that can gain are tried: no leader epoch is raised for nothing (KAFKA-9866).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause, Failure, Reason
from controller.core.changes.cluster import Refused, StateDecided
from controller.core.changes.duties import (
    ElectionsFailed,
    NodeRemoved,
    OperatorErrorReported,
    node_subject,
    topic_subject,
)
from controller.core.codes import Code
from controller.core.decide.repair import LiveBrokers, repair_partition, state_decided
from controller.core.decide.work import Context, Decided, Work, work_of
from controller.core.elections import preferred
from controller.core.events import ElectAsked, ElectionNodeSeen
from controller.core.model import Partition, PartitionKey
from controller.core.project.znodes import PREFERRED_ELECTION

_PREFERRED_ASKED: Final = Reason(Cause.PREFERRED_ELECTION, "preferred election asked")
_UNCLEAN_ASKED: Final = Reason(Cause.UNCLEAN_ELECTION, "unclean election asked")
_IMBALANCE: Final = Reason(Cause.LEADER_IMBALANCE, "leader imbalance")
_FAILURES: Final = {
    Code.ELECTION_NOT_NEEDED: Failure.NOT_NEEDED,
    Code.PREFERRED_LEADER_NOT_AVAILABLE: Failure.PREFERRED_CANNOT_LEAD,
    Code.ELIGIBLE_LEADERS_NOT_AVAILABLE: Failure.NOBODY_CAN_LEAD,
}


def on_elect_asked(context: Context, event: ElectAsked) -> Iterator[Work]:
    """For all partitions nothing is said of those that need no election (as Kafka does)."""
    is_all = event.partitions is None
    wanted = _everything(context.cluster) if event.partitions is None else event.partitions
    why = _UNCLEAN_ASKED if event.is_unclean else _PREFERRED_ASKED
    yield from _elections(context, wanted, why, is_unclean=event.is_unclean, is_quiet=is_all)


def on_election_node_seen(context: Context, event: ElectionNodeSeen) -> Iterator[Work]:
    """`/admin/preferred_replica_election`: carried out, then removed, whatever the result."""
    if event.trouble is not None:
        reported = OperatorErrorReported(node_subject(PREFERRED_ELECTION), event.trouble)
        yield work_of(0, reported)
    yield from _elections(context, event.partitions, _PREFERRED_ASKED, is_unclean=False, is_quiet=False)
    removed = NodeRemoved(PREFERRED_ELECTION, event.version, event.trouble or "carried out")
    yield work_of(1, removed)


def balance(context: Context, percentage: int) -> Iterator[Work]:
    """The automatic preferred election: of brokers that lead too few of the partitions they are the first for."""
    by_first: dict[int, list[PartitionKey]] = {}
    for key, known in _preferring(context.cluster):
        by_first.setdefault(known.replicas[0], []).append(key)
    for broker_id, keys in sorted(by_first.items()):
        elsewhere = [key for key in keys if not _is_led_by(context.cluster, key, broker_id)]
        if len(elsewhere) * 100 > percentage * len(keys):
            settled = [key for key in elsewhere if not _is_drained(context.cluster, key)]
            yield from _elections(context, settled, _IMBALANCE, is_unclean=False, is_quiet=True)


def _preferring(cluster: Cluster) -> Iterator[tuple[PartitionKey, Partition]]:
    """Partitions that have a leader to compare with their first replica."""
    for key, known in cluster.all_partitions():
        if known.state is None or cluster.duties.is_leaving(key.topic):
            continue
        if known.replicas[0] in known.adding and known.replicas[0] not in known.state.isr:
            continue
        yield key, known


def _is_led_by(cluster: Cluster, key: PartitionKey, broker_id: int) -> bool:
    known = cluster.partition(*key)
    return known is not None and known.state is not None and known.state.leader == broker_id


def _is_drained(cluster: Cluster, key: PartitionKey) -> bool:
    """Whether the same tick moves it off a broker that drains: two decisions on one belief would write one leader
    epoch twice."""
    known = cluster.partition(*key)
    if known is None or known.state is None:
        return False
    return known.state.leader in cluster.draining_ids or not cluster.leaving_ids.isdisjoint(known.state.isr)


def _everything(cluster: Cluster) -> Iterator[PartitionKey]:
    return (key for key, _ in cluster.all_partitions())


def _elections(
    context: Context, wanted: Iterable[PartitionKey], why: Reason, *, is_unclean: bool, is_quiet: bool
) -> Iterator[Work]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in dict.fromkeys(wanted):
        by_topic.setdefault(topic, []).append(number)
    for topic, numbers in sorted(by_topic.items()):
        run = partial(_elect, context, topic, numbers, why, is_unclean=is_unclean, is_quiet=is_quiet)
        yield Work(topic_subject(topic), run)


def _elect(
    context: Context, topic: str, numbers: Sequence[int], why: Reason, *, is_unclean: bool, is_quiet: bool
) -> Iterator[Decided]:
    failed: dict[Failure, int] = {}
    for number in sorted(numbers):
        verdict = _elected(context, topic, number, why, is_unclean=is_unclean)
        if isinstance(verdict, StateDecided):
            yield 0, verdict
            continue
        code, detail = verdict
        if code is not Code.ELECTION_NOT_NEEDED or not is_quiet:
            known = context.cluster.topics.get(topic)
            if (failure := _FAILURES.get(code)) is not None:
                failed[failure] = failed.get(failure, 0) | 1 << number
            topic_id = "" if known is None else known.topic_id or ""
            yield 0, Refused(topic_subject(topic), code, f"{topic}-{number}: {detail}", topic_id, number)
    for failure, bits in failed.items():
        yield 0, ElectionsFailed(topic, failure, bits, why.cause)


def _elected(
    context: Context, topic: str, number: int, why: Reason, *, is_unclean: bool
) -> StateDecided | tuple[Code, str]:
    """Returns the change that elects, or the reason why there is none."""
    cluster = context.cluster
    known = cluster.partition(topic, number)
    if known is None or known.state is None or (topic, number) in cluster.unreadable:
        return Code.UNKNOWN_TOPIC_OR_PARTITION, "no such partition, or one never led"
    if cluster.duties.is_leaving(topic):
        return Code.INVALID_TOPIC_EXCEPTION, "the topic is being deleted"
    online = cluster.serving_ids(topic, number, cluster.live_ids)
    if is_unclean:
        if known.state.leader in online:
            return Code.ELECTION_NOT_NEEDED, "it has a leader"
        change = repair_partition(context, topic, number, known, LiveBrokers(cluster.live_ids), why, allow_unclean=True)
        if change is None or change.state.leader < 0:
            return Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica that could lead it is online"
        return change
    if known.state.leader == known.replicas[0]:
        return Code.ELECTION_NOT_NEEDED, "its first replica leads it"
    state = preferred(known.replicas, known.state, online - cluster.avoided_ids, context.epoch)
    if state is None:
        return Code.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {known.replicas[0]} is not online and in sync, or drains"
    return state_decided(context, topic, number, known.state, state, why)
