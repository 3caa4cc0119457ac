"""Failed log directories: a broker that lives but cannot serve some of its replicas.

A notification only says which broker; it is asked by a LeaderAndIsr for all its replicas, and its answer says which
are bad. Those are offline there: led by others, out of the ISR. It is written down that a broker has some, so that a
successor asks before it elects there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause, Failure, Reason
from controller.core.changes.cluster import NotificationRead
from controller.core.changes.duties import (
    ElectionsFailed,
    FailedDirsFound,
    FailedDirsNoted,
    ReplicasProbed,
    topic_subject,
)
from controller.core.decide.repair import LiveBrokers, repair_partition
from controller.core.decide.work import Context, Decided, Work, work_of
from controller.core.events import LeaderAndIsrAnswered, LogDirsSeen
from controller.core.model import NO_LEADER


def on_log_dirs_seen(context: Context, event: LogDirsSeen) -> Iterator[Work]:
    """Probe brokers that lost a directory (step 0), then remove the announcements (step 1)."""
    for broker_id in sorted(event.broker_ids & context.cluster.live_ids):
        yield work_of(0, ReplicasProbed(broker_id))
    for path, version in event.notifications.items():
        change = NotificationRead(path, version)
        yield work_of(1, change)


def on_leader_and_isr_answered(context: Context, event: LeaderAndIsrAnswered) -> Iterator[Work]:
    """The newest answer says of each replica whether it is bad; bad replicas lose their leaderships."""
    cluster = context.cluster
    broker = cluster.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        return  # of an earlier life
    before = cluster.duties.failed_dirs.get(event.broker_id, frozenset())
    after = (before - _known(cluster, event.served)) | _known(cluster, event.failed)
    if after == before and event.broker_id not in cluster.duties.suspect_ids:
        return
    change = FailedDirsFound(event.broker_id, broker.epoch, after, before - after)
    yield work_of(0, change)
    note = FailedDirsNoted(event.broker_id, broker.epoch, bool(after))
    yield work_of(0, note)
    by_topic: dict[str, list[int]] = {}
    for topic, number in after ^ before:
        by_topic.setdefault(topic, []).append(number)
    for topic, numbers in sorted(by_topic.items()):
        yield Work(topic_subject(topic), partial(_repair, context, topic, sorted(numbers), event.broker_id, after))


def _known(cluster: Cluster, replicas: frozenset[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """By topic name; without partitions that are not there (any more)."""
    named = ((cluster.names_by_id.get(topic_id, ""), number) for topic_id, number in replicas)
    return frozenset(one for one in named if cluster.partition(*one) is not None)


def _repair(
    context: Context, topic: str, numbers: list[int], broker_id: int, failed: frozenset[tuple[str, int]]
) -> Iterator[Decided]:
    cluster = context.cluster
    if cluster.duties.is_leaving(topic):
        return
    for number in numbers:
        known = cluster.partition(topic, number)
        if known is None or known.state is None or (topic, number) in cluster.unreadable:
            continue
        serving = cluster.serving_ids(topic, number, cluster.live_ids)
        serving = serving - {broker_id} if (topic, number) in failed else serving | {broker_id}
        cause = Cause.DISK_FAILED if (topic, number) in failed else Cause.DISK_MENDED
        why = Reason(cause, f"log directory of broker {broker_id}")
        change = repair_partition(context, topic, number, known, LiveBrokers(cluster.live_ids), why, serving=serving)
        if change is not None:
            yield 1, change
        leader = known.state.leader if change is None else change.state.leader
        if leader == NO_LEADER:
            yield 1, ElectionsFailed(topic, Failure.NOBODY_CAN_LEAD, 1 << number, why.cause)
