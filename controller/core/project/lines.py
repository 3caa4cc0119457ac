"""The lines of the state-change log. Each change says its own (`lines`); moves, and facts about many partitions at
once, are grouped here.

`docs/state-change-log.md` is the contract: fields may be added, never renamed or re-typed, because Spark jobs and other
people's tools read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from controller.core.belief.kept_states import Move
from controller.core.bitset import numbers_of
from controller.core.causes import Cause, Failure
from controller.core.changes.duties import ElectionsFailed, TermFound
from controller.core.model import Leadership, Replicas
from controller.core.states import PartitionStatus, ReplicaStatus

if TYPE_CHECKING:
    from controller.core.belief.cluster import Cluster
    from controller.core.changes.cluster import Committed


class Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line. Fields that do not apply are left out."""

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
    #: of a truncation: how many went, how many of them, from the first on, had been committed, and which is the first
    records: int | None = None
    records_lost: int | None = None
    records_epoch: int | None = None
    offset: int | None = None
    machine: str | None = None  # partition, replica: the machine of the move
    partitions: dict[str, str] | None = None  # topic -> its partitions that moved, as "0-4,7"
    count: int | None = None  # of all that a term finds in a state, however many lines list them
    part: int | None = None  # of the lines about many partitions of one event; with `event_id` it names the line


class Stamp(msgspec.Struct, frozen=True):
    """The fields that all lines of one event share."""

    at_ms: int
    cluster_id: str
    controller_id: int
    controller_epoch: int
    event_id: str


#: so many characters of partitions stand in a line about moves; all of it is below 64 KiB
MOVES_IN_A_LINE: Final = 60_000
_AROUND_A_TOPIC: Final = 6
_FAILURES: Final[Mapping[Failure, str]] = {
    Failure.NO_REPLICA_ALIVE: "no assigned replica is alive",
    Failure.NOBODY_CAN_LEAD: "no live replica was in sync, or may lead without having been",
    Failure.PREFERRED_CANNOT_LEAD: "the first replica is not online and in sync, or drains",
    Failure.NOT_NEEDED: "the election found no change needed",
}

#: makes a line that carries its event's stamp
Stamped = Callable[..., Line]


def partition_line(
    stamp: Stamp,
    topic: str,
    number: int,
    move: tuple[str | None, str],
    why: tuple[str, str],
    state: Leadership,
    written: tuple[int | None, int],
    topic_id: str | None,
    *,
    unclean: bool | None = None,
) -> Line:
    """Of a partition's leadership: `move` is source and target, `why` reason and cause, `written` version and zxid.
    There may be one for each partition, so its fields are given in their order: by their names it takes longer."""
    return Line(
        stamp.at_ms, stamp.cluster_id, stamp.controller_id, stamp.controller_epoch, "partition", stamp.event_id,
        topic, number, None, move[0], move[1], why[0], state.leader, state.leader_epoch, state.isr,
        written[0], written[1], topic_id, None, None, None, why[1], unclean,
    )  # fmt: skip


def phase_line(stamp: Stamp, phase: str, since_ms: float) -> Line:
    """A phase of a failover is over, so long after the seat was seen vacant."""
    ids = {"broker_id": stamp.controller_id, **msgspec.structs.asdict(stamp)}
    return Line(kind="controller", target=phase, took_ms=round(since_ms, 1), **ids)


def lines_for(cluster: Cluster, committed: Iterable[Committed], stamp: Stamp) -> list[Line]:
    """Returns the lines of each change."""
    stamped: Stamped = partial(Line, **msgspec.structs.asdict(stamp))
    lines: list[Line] = []
    for one in committed:
        lines += one.change.lines(cluster, one, stamp, stamped)
    return lines


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
    """Facts about many partitions at once, as moves are: the states that a term finds; failed elections, one line for
    each cause and way."""
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
    firsts, lasts = numbers_of(bits & ~(bits << 1)), numbers_of(bits & ~(bits >> 1))
    return ",".join([str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True)])
