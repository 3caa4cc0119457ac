"""The lines of the state-change log, projected from changes that stand.

`docs/state-change-log.md` is the contract: fields may be added, never renamed or re-typed, because Spark jobs and other
people's tools read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.belief.id_searches import claims_said
from controller.core.belief.kept_states import Move
from controller.core.causes import Cause, Failure
from controller.core.changes.cluster import (
    BrokerChanged,
    BrokerGone,
    BrokerLive,
    Change,
    Committed,
    RefusalEnded,
    StateDecided,
    StateFound,
    StateLost,
    SubjectParked,
    TopicCreated,
    TopicFound,
    TopicGone,
    TopicWritten,
    Unreadable,
    WriteRefused,
)
from controller.core.changes.duties import (
    BrokerForgotten,
    ConfigWritten,
    DeletionQueued,
    DeletionWaits,
    DirsFound,
    DrainEnded,
    DrainGranted,
    ElectionsFailed,
    RefusalsFound,
    ReplicasMoved,
    Reported,
    TermFound,
    TopicErased,
    TopicIdDisputed,
    TopicIdGiven,
)
from controller.core.codes import name_of
from controller.core.elections import status_of
from controller.core.model import Replicas
from controller.core.project.refusals import trouble_of
from controller.core.states import PartitionStatus, ReplicaStatus


class Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One line. What does not apply is left out."""

    at_ms: int
    cluster_id: str
    controller_id: int
    controller_epoch: int
    kind: str  # partition, replica, move, found, election, broker, controller, topic, reassignment, rpc, truncation
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
    cause: str | None = None  # why, as a value of `Cause`
    unclean: bool | None = None  # the leader was not in sync
    #: of a truncation: how many went, and how many of them had been committed
    records: int | None = None
    records_lost: int | None = None
    machine: str | None = None  # partition, replica: whose move it is
    partitions: dict[str, str] | None = None  # topic -> its partitions that moved, as "0-4,7"
    count: int | None = None  # of all that a term finds in a state, however many lines list them
    part: int | None = None  # of the lines about many partitions of one event; with `event_id` it names the line


class Stamp(msgspec.Struct, frozen=True):
    """What all lines of one event share."""

    at_ms: int
    cluster_id: str
    controller_id: int
    controller_epoch: int
    event_id: str


#: so many characters of partitions stand in a line about moves; all of it is below 64 KiB
MOVES_IN_A_LINE: Final = 60_000
_AROUND_A_TOPIC: Final = 6
#: looked up, which costs less than `value`: there may be a line for each partition
_WORDS: Final[Mapping[PartitionStatus | Cause, str]] = {one: one.value for one in (*PartitionStatus, *Cause)}
_DELETED: Final = Cause.TOPIC_DELETED.value
_FAILURES: Final[Mapping[Failure, str]] = {
    Failure.NO_REPLICA_ALIVE: "no assigned replica is alive",
    Failure.NOBODY_CAN_LEAD: "no live replica was in sync, or may lead without having been",
    Failure.PREFERRED_CANNOT_LEAD: "the first replica is not online and in sync, or drains",
    Failure.NOT_NEEDED: "the election found no change needed",
}

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
                yield _state_line(cluster, change, one, stamp)
            case StateFound() | StateLost() as change:
                yield _found_line(cluster, change, stamped)
            case BrokerLive(broker=broker, reason=reason, cause=cause):
                ids = {"broker_id": broker.broker_id, "broker_epoch": broker.epoch}
                # who is there as a term begins did not come just now
                source = None if cause is Cause.TERM_STARTED else "gone"
                yield stamped(kind="broker", source=source, target="live", reason=reason, cause=cause.value, **ids)
            case BrokerChanged(broker=broker):
                ids = {"broker_id": broker.broker_id, "broker_epoch": broker.epoch}
                said = {"reason": "registration changed", "cause": Cause.BROKER_CHANGED.value}
                yield stamped(kind="broker", source="live", target="live", **said, **ids)
            case BrokerGone(broker_id=broker_id, epoch=epoch, reason=reason, cause=cause):
                ids = {"broker_id": broker_id, "broker_epoch": epoch}
                yield stamped(kind="broker", source="live", target="gone", reason=reason, cause=cause.value, **ids)
            case TopicWritten(touched=touched) as change if touched is not None and change.is_reassignment:
                for state in change.states:
                    version = cluster.topics[change.name].partitions[state.partition].version
                    yield _state_line(cluster, state, Committed(state, version, one.zxid), stamp)
                yield from _reassignment_lines(change, one, stamped)
            case TopicFound() | TopicCreated() | TopicWritten() | TopicGone() | Unreadable() as change:
                yield _topic_line(cluster, change, one, stamped)
            case SubjectParked(subject=subject, trouble=trouble):
                yield stamped(kind="controller", target="parked", reason=f"{subject}: {trouble}")
            case WriteRefused(subject=subject, attempts=attempts) as refused:
                if attempts == 1:  # its end has a line, too; the attempts between have none
                    yield stamped(kind="controller", target="refused", reason=f"{subject}: {trouble_of(refused)}")
            case RefusalEnded(subject=subject, reason=reason):
                yield stamped(kind="controller", source="refused", target="taken", reason=f"{subject}: {reason}")
            case change:
                yield from _duty_lines(cluster, change, one, stamped)


def move_lines(moves: Iterable[Move], stamp: Stamp, first_part: int = 1) -> Iterator[Line]:
    """One line for each kind of move of partitions, or of the replicas on one broker; several where one would be
    longer than a line may be."""
    stamped: Stamped = partial(Line, **msgspec.structs.asdict(stamp))
    part = first_part
    for move in moves:
        machine = "partition" if isinstance(move.source, PartitionStatus) else "replica"
        said = {"source": move.source.value, "target": move.target.value, "cause": move.cause.value}
        for partitions in pieces_of(move.topics):
            yield stamped(
                kind="move", machine=machine, broker_id=move.broker_id, partitions=partitions, part=part, **said
            )
            part += 1


def grouped_lines(committed: Iterable[Committed], stamp: Stamp, first_part: int = 1) -> Iterator[Line]:
    """What is said of many partitions at once, as moves are: in which state a term finds them; elections that failed,
    one line for each cause and way."""
    failed: dict[tuple[Failure, Cause], dict[str, int]] = {}
    part = first_part
    for one in committed:
        if type(one.change) is TermFound:
            for line in _found_states(one.change, stamp, part):
                yield line
                part += 1
        elif type(one.change) is ElectionsFailed:
            topics = failed.setdefault((one.change.failure, one.change.cause), {})
            topics[one.change.topic] = topics.get(one.change.topic, 0) | one.change.bits
    stamped: Stamped = partial(Line, **msgspec.structs.asdict(stamp))
    for (failure, cause), topics in failed.items():
        said = {"target": failure.value, "cause": cause.value, "reason": _FAILURES[failure]}
        for partitions in pieces_of(topics):
            yield stamped(kind="election", partitions=partitions, part=part, **said)
            part += 1


def _found_states(found: TermFound, stamp: Stamp, first_part: int) -> Iterator[Line]:
    """The number of those that are online, then all others by state, by broker if they are replicas."""
    stamped: Stamped = partial(Line, **msgspec.structs.asdict(stamp), kind="found", cause=Cause.TERM_STARTED.value)
    counts = [(one, sum(bits.bit_count() for bits in one.topics.values())) for one in found.held]
    part = first_part
    for machine, total, online in (
        ("partition", found.partitions, PartitionStatus.ONLINE),
        ("replica", found.replicas, ReplicaStatus.ONLINE),
    ):
        mine = [(one, count) for one, count in counts if type(one.status) is type(online)]
        count = total - sum(count for _, count in mine)
        yield stamped(machine=machine, target=online.value, count=count, part=part)
        part += 1
        for one, count in mine:
            for partitions in pieces_of(one.topics):
                said = {"broker_id": one.broker_id, "partitions": partitions, "count": count}
                yield stamped(machine=machine, target=one.status.value, part=part, **said)
                part += 1


def pieces_of(topics: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """Topic -> partitions, cut so that each piece fits into a line, within a topic if need be."""
    piece: dict[str, str] = {}
    size = 0
    for topic, bits in topics.items():
        for said in _cut(ranges_of(bits), MOVES_IN_A_LINE - len(topic) - _AROUND_A_TOPIC):
            more = len(topic) + len(said) + _AROUND_A_TOPIC
            if piece and size + more > MOVES_IN_A_LINE:
                yield piece
                piece, size = {}, 0
            piece[topic] = said
            size += more
    if piece:
        yield piece


def _cut(said: str, size: int) -> Iterator[str]:
    while len(said) > size:
        end = said.rindex(",", 0, size)
        yield said[:end]
        said = said[end + 1 :]
    yield said


def ranges_of(bits: int) -> str:
    """Partitions as people write them: 0-4,7."""
    if not bits & (bits - 1):
        return str(bits.bit_length() - 1)
    parts: list[str] = []
    row = bin(bits)[:1:-1]
    start = row.find("1")
    while start >= 0:
        end = row.find("0", start)
        last = (len(row) if end < 0 else end) - 1
        parts.append(str(start) if last == start else f"{start}-{last}")
        start = row.find("1", last + 1)
    return ",".join(parts)


def _duty_lines(cluster: Cluster, change: Change, one: Committed, stamped: Stamped) -> Iterator[Line]:
    """Of deletions, drains, directories and configuration; refusals and notifications change no state."""
    match change:
        case DeletionQueued(topic=topic, is_held=False):
            yield stamped(
                kind="topic", topic=topic, target="deleting", topic_id=_topic_id(cluster, topic), cause=_DELETED
            )
        case DeletionWaits(topic=topic, reason=reason) if reason is not None:
            topic_id = _topic_id(cluster, topic)
            yield stamped(kind="topic", topic=topic, target="waiting", reason=reason, topic_id=topic_id, cause=_DELETED)
        case ReplicasMoved(topic=topic, replicas=replicas, target=target):
            topic_id = _topic_id(cluster, topic)
            for number, broker_id in replicas:
                ids = {"partition": number, "broker_id": broker_id, "topic_id": topic_id, "cause": _DELETED}
                yield stamped(kind="replica", topic=topic, target=target.value, **ids)
        case TopicErased(topic=topic, topic_id=topic_id):
            ids = {"topic_id": topic_id, "cause": _DELETED}
            yield stamped(kind="topic", topic=topic, target="deleted", zxid=one.zxid or None, **ids)
        case DrainGranted(broker_id=broker_id, epoch=epoch, is_shutdown=is_shutdown):
            reason, cause = ("shuts down", Cause.CONTROLLED_SHUTDOWN) if is_shutdown else ("by hand", Cause.DRAIN)
            said = {"target": "draining", "reason": reason, "cause": cause.value}
            yield stamped(kind="broker", broker_id=broker_id, broker_epoch=epoch, **said)
        case DrainEnded(broker_id=broker_id, reason=reason) if broker_id in cluster.brokers:
            yield stamped(kind="broker", broker_id=broker_id, source="draining", target="live", reason=reason)
        case BrokerForgotten(broker_id=broker_id):
            yield stamped(
                kind="broker",
                broker_id=broker_id,
                source="gone",
                target="forgotten",
                reason="asked",
                cause=Cause.BROKER_FORGOTTEN.value,
            )
        case DirsFound(broker_id=broker_id, failed=failed, mended=mended) if failed or mended:
            reason = f"log directories: {len(failed)} replicas cannot be served, {len(mended)} can be again"
            cause = Cause.DISK_FAILED if failed else Cause.DISK_MENDED
            yield stamped(
                kind="broker", broker_id=broker_id, source="live", target="live", reason=reason, cause=cause.value
            )
        case RefusalsFound() as change:
            yield from _refusal_lines(cluster, change, stamped)
        case ConfigWritten(kind="topics", entity=topic):
            yield stamped(kind="topic", topic=topic, target="configured", zxid=one.zxid or None)
        case TopicIdDisputed(topic=topic, claims=claims):
            topic_id = _topic_id(cluster, topic)
            yield stamped(kind="topic", topic=topic, target="disputed", reason=claims_said(claims), topic_id=topic_id)
        case TopicIdGiven(topic=topic):
            yield stamped(kind="topic", topic=topic, target="decided", topic_id=_topic_id(cluster, topic))
        case Reported(subject=subject, trouble=trouble):
            yield stamped(kind="controller", target="reported", reason=f"{subject}: {trouble}")
        case _:
            pass


def _refusal_lines(cluster: Cluster, change: RefusalsFound, stamped: Stamped) -> Iterator[Line]:
    """One for each replica of which its broker begins to refuse what it is told, or ends to."""
    told = [(key, change.refused[key]) for key in sorted(change.begun)]
    for (topic, number), one in (*told, *((key, None) for key in change.ended)):
        said: dict[str, object] = {"target": "obeyed"}
        if one is not None:
            epoch = f" with leader epoch {one.told_epoch}" if one.told_epoch >= 0 else ""
            said = {"target": "refused", "reason": f"{one.request}{epoch}: {name_of(one.code)}", "error_code": one.code}
        if topic:
            ids = {"topic": topic, "partition": number, "topic_id": _topic_id(cluster, topic)}
            yield stamped(kind="replica", broker_id=change.broker_id, **ids, **said)
        else:
            yield stamped(kind="broker", broker_id=change.broker_id, **said)


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
            cause=change.cause.value,
        )


def _ids(broker_ids: Replicas) -> str:
    return "[" + ",".join(map(str, broker_ids)) + "]"


def _topic_id(cluster: Cluster, name: str) -> str | None:
    topic = cluster.topics.get(name)
    return None if topic is None else topic.topic_id


def _state_line(cluster: Cluster, change: StateDecided, one: Committed, stamp: Stamp) -> Line:
    state = change.state
    return Line(  # all by itself: there may be a line for each partition
        at_ms=stamp.at_ms,
        cluster_id=stamp.cluster_id,
        controller_id=stamp.controller_id,
        controller_epoch=stamp.controller_epoch,
        event_id=stamp.event_id,
        kind="partition",
        topic=change.topic,
        partition=change.partition,
        source=_WORDS[change.source],
        target=_WORDS[change.target],
        reason=change.reason,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        version=one.version,
        zxid=one.zxid,
        topic_id=_topic_id(cluster, change.topic),
        cause=_WORDS[change.cause],
        unclean=change.is_unclean or None,
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
            cause=Cause.STATE_LOST.value,
        )
    # a found state was decided by the controller whose epoch it carries
    epoch = {"controller_epoch": change.state.controller_epoch} if change.cause is Cause.FOUND else {}
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
        cause=change.cause.value,
        **epoch,
    )


def _topic_line(
    cluster: Cluster,
    change: TopicFound | TopicCreated | TopicWritten | TopicGone | Unreadable,
    one: Committed,
    stamped: Stamped,
) -> Line:
    cause: Cause | None
    match change:
        case TopicFound(fact=fact):
            name, target, reason, cause = fact.name, "found", None, Cause.TOPIC_FOUND
        case TopicCreated(name=name):
            target, reason, cause = "created", "asked", Cause.TOPIC_CREATED
        case TopicWritten(name=name, reason=reason, cause=cause):
            target = "rewritten"
        case TopicGone(name=name):
            target, reason, cause = "gone", "topic znode is gone", Cause.TOPIC_GONE
        case Unreadable(name=name, trouble=reason):
            target, cause = "unreadable", None
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
        cause=None if cause is None else cause.value,
    )
