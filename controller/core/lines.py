"""The lines of the state-change log, projected from changes that stand. Interface, section 4, is the contract.

Fields may be added, never renamed or re-typed: Spark jobs and other people's tools read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import msgspec

from controller.core.admin import (
    BrokerForgotten,
    ConfigWritten,
    DeletionQueued,
    DeletionWaits,
    DirsFound,
    DrainEnded,
    DrainGranted,
    ReplicasMoved,
    Reported,
    TopicErased,
)
from controller.core.changes import (
    FOUND,
    BrokerChanged,
    BrokerGone,
    BrokerLive,
    Change,
    Committed,
    StateDecided,
    StateFound,
    StateLost,
    SubjectParked,
    TopicCreated,
    TopicFound,
    TopicGone,
    TopicWritten,
    Unreadable,
)
from controller.core.cluster import Cluster
from controller.core.elections import status_of
from controller.core.model import Replicas


class Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One line. What does not apply is left out."""

    at_ms: int
    cluster_id: str
    controller_id: int
    controller_epoch: int
    kind: str  # partition, replica, broker, controller, topic, reassignment, rpc
    event_id: str | None = None  # links all lines of one cause
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    source: str | None = None
    target: str | None = None
    reason: str | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: Replicas | None = None
    version: int | None = None
    zxid: int | None = None
    topic_id: str | None = None
    broker_epoch: int | None = None
    took_ms: float | None = None
    error_code: int | None = None


class Stamp(msgspec.Struct, frozen=True):
    """What all lines of one event share."""

    at_ms: int
    cluster_id: str
    controller_id: int
    controller_epoch: int
    event_id: str


#: makes a line that carries its event's stamp
Stamped = Callable[..., Line]


def phase_line(stamp: Stamp, phase: str, since_ms: float) -> Line:
    """A phase of a failover is over, so long after the seat was seen vacant."""
    ids = {"broker_id": stamp.controller_id, **msgspec.structs.asdict(stamp)}
    return Line(kind="controller", target=phase, took_ms=round(since_ms, 1), **ids)


def lines_for(cluster: Cluster, committed: Iterable[Committed], stamp: Stamp) -> Iterator[Line]:
    """One line for each change that says something about the cluster's state."""
    stamped: Stamped = partial(Line, **msgspec.structs.asdict(stamp))
    for one in committed:
        match one.change:
            case StateDecided() as change:
                yield _state_line(cluster, change, one, stamped)
            case StateFound() | StateLost() as change:
                yield _found_line(cluster, change, stamped)
            case BrokerLive(broker=broker, reason=reason):
                ids = {"broker_id": broker.broker_id, "broker_epoch": broker.epoch}
                yield stamped(kind="broker", source="gone", target="live", reason=reason, **ids)
            case BrokerChanged(broker=broker):
                ids = {"broker_id": broker.broker_id, "broker_epoch": broker.epoch}
                yield stamped(kind="broker", source="live", target="live", reason="registration changed", **ids)
            case BrokerGone(broker_id=broker_id, epoch=epoch, reason=reason):
                ids = {"broker_id": broker_id, "broker_epoch": epoch}
                yield stamped(kind="broker", source="live", target="gone", reason=reason, **ids)
            case TopicWritten(touched=touched) as change if touched is not None and change.is_reassignment:
                for state in change.states:
                    version = cluster.topics[change.name].partitions[state.partition].version
                    yield _state_line(cluster, state, Committed(state, version, one.zxid), stamped)
                yield from _reassignment_lines(change, one, stamped)
            case TopicFound() | TopicCreated() | TopicWritten() | TopicGone() | Unreadable() as change:
                yield _topic_line(cluster, change, one, stamped)
            case SubjectParked(subject=subject, trouble=trouble):
                yield stamped(kind="controller", target="parked", reason=f"{subject}: {trouble}")
            case change:
                yield from _admin_lines(cluster, change, one, stamped)


def _admin_lines(cluster: Cluster, change: Change, one: Committed, stamped: Stamped) -> Iterator[Line]:
    """Of deletions, drains, directories and configuration; refusals and notifications change no state."""
    match change:
        case DeletionQueued(topic=topic, is_held=False):
            yield stamped(kind="topic", topic=topic, target="deleting", topic_id=_topic_id(cluster, topic))
        case DeletionWaits(topic=topic, reason=reason) if reason is not None:
            topic_id = _topic_id(cluster, topic)
            yield stamped(kind="topic", topic=topic, target="waiting", reason=reason, topic_id=topic_id)
        case ReplicasMoved(topic=topic, replicas=replicas, target=target):
            topic_id = _topic_id(cluster, topic)
            for number, broker_id in replicas:
                ids = {"partition": number, "broker_id": broker_id, "topic_id": topic_id}
                yield stamped(kind="replica", topic=topic, target=target.value, **ids)
        case TopicErased(topic=topic, topic_id=topic_id):
            yield stamped(kind="topic", topic=topic, target="deleted", topic_id=topic_id, zxid=one.zxid or None)
        case DrainGranted(broker_id=broker_id, epoch=epoch, is_shutdown=is_shutdown):
            reason = "shuts down" if is_shutdown else "by hand"
            yield stamped(kind="broker", broker_id=broker_id, broker_epoch=epoch, target="draining", reason=reason)
        case DrainEnded(broker_id=broker_id, reason=reason) if broker_id in cluster.brokers:
            yield stamped(kind="broker", broker_id=broker_id, source="draining", target="live", reason=reason)
        case BrokerForgotten(broker_id=broker_id):
            yield stamped(kind="broker", broker_id=broker_id, source="gone", target="forgotten", reason="asked")
        case DirsFound(broker_id=broker_id, failed=failed, mended=mended) if failed or mended:
            reason = f"log directories: {len(failed)} replicas cannot be served, {len(mended)} can be again"
            yield stamped(kind="broker", broker_id=broker_id, source="live", target="live", reason=reason)
        case ConfigWritten(kind="topics", entity=topic):
            yield stamped(kind="topic", topic=topic, target="configured", zxid=one.zxid or None)
        case Reported(subject=subject, trouble=trouble):
            yield stamped(kind="controller", target="reported", reason=f"{subject}: {trouble}")
        case _:
            pass


def _reassignment_lines(change: TopicWritten, one: Committed, stamped: Stamped) -> Iterator[Line]:
    """One for each partition whose replicas are to be others, or now are."""
    for number in change.touched or ():
        wanted = change.assignment[number]
        is_running = bool(wanted.adding or wanted.removing)
        yield stamped(
            kind="reassignment",
            topic=change.name,
            partition=number,
            target="running" if is_running else "done",
            reason=f"{change.reason}: replicas {_ids(wanted.replicas)}, adding {_ids(wanted.adding)}, "
            f"removing {_ids(wanted.removing)}",
            version=one.version,
            zxid=one.zxid,
            topic_id=change.topic_id,
        )


def _ids(broker_ids: Replicas) -> str:
    return "[" + ",".join(map(str, broker_ids)) + "]"


def _topic_id(cluster: Cluster, name: str) -> str | None:
    topic = cluster.topics.get(name)
    return None if topic is None else topic.topic_id


def _state_line(cluster: Cluster, change: StateDecided, one: Committed, stamped: Stamped) -> Line:
    state = change.state
    return stamped(
        kind="partition",
        topic=change.topic,
        partition=change.partition,
        source=change.source.value,
        target=change.target.value,
        reason=change.reason,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        version=one.version,
        zxid=one.zxid,
        topic_id=_topic_id(cluster, change.topic),
    )


def _found_line(cluster: Cluster, change: StateFound | StateLost, stamped: Stamped) -> Line:
    if isinstance(change, StateLost):
        return stamped(
            kind="partition",
            topic=change.topic,
            partition=change.partition,
            target="NonExistentPartition",
            reason="state znode is gone",
            zxid=change.zxid,
            topic_id=_topic_id(cluster, change.topic),
        )
    # a found state was decided by the controller whose epoch it carries
    epoch = {"controller_epoch": change.state.controller_epoch} if change.reason == FOUND else {}
    return stamped(
        kind="partition",
        topic=change.topic,
        partition=change.partition,
        target=(change.target or status_of(change.state, cluster.live_ids)).value,
        reason=change.reason,
        leader=change.state.leader,
        leader_epoch=change.state.leader_epoch,
        isr=change.state.isr,
        version=change.version,
        zxid=change.zxid,
        topic_id=_topic_id(cluster, change.topic),
        **epoch,
    )


def _topic_line(
    cluster: Cluster,
    change: TopicFound | TopicCreated | TopicWritten | TopicGone | Unreadable,
    one: Committed,
    stamped: Stamped,
) -> Line:
    match change:
        case TopicFound(fact=fact):
            name, target, reason = fact.name, "found", None
        case TopicCreated(name=name):
            target, reason = "created", "asked"
        case TopicWritten(name=name, reason=reason):
            target = "rewritten"
        case TopicGone(name=name):
            target, reason = "gone", "topic znode is gone"
        case Unreadable(name=name, trouble=reason):
            target = "unreadable"
    topic_id = change.topic_id if isinstance(change, TopicGone) else _topic_id(cluster, name)
    partition = change.partition if isinstance(change, Unreadable) else None
    return stamped(
        kind="topic",
        topic=name,
        partition=partition,
        target=target,
        reason=reason,
        version=one.version,
        zxid=one.zxid or None,
        topic_id=topic_id,
    )
