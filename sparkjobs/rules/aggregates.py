"""What a running cluster came to so far, small enough for a page: since when, what had no leader, and which moves.

A stream keeps it (`engine/spark/stream.py`) and writes it as JSON; who serves it reads the file. The numbers are sums
over all lines that were read; of the outages only the latest are named. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from sparkjobs.rules.facts import Facts
from sparkjobs.rules.moves import times_of
from sparkjobs.rules.state_machines import MACHINE_OF
from sparkjobs.tables.gold import Outage

#: outages that are named, those without an end first
NAMED: Final = 50


class Leaderless(msgspec.Struct, frozen=True, kw_only=True):
    """A partition without a leader, once or now."""

    topic: str
    partition: int
    start_ms: int
    felt_from_ms: int  # its leader may have been silent to clients since then
    end_ms: int | None  # none: it has no leader, or nobody knows
    cause: str
    first_broker: int | None
    leader: int | None
    unclean: bool
    unseen: str | None  # what may have ended it unseen


class MoveCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often partitions, or replicas, moved from one state to another, for one cause."""

    machine: str
    source: str | None
    target: str
    cause: str | None
    times: int
    last_ms: int


class Aggregates(msgspec.Struct, frozen=True, kw_only=True):
    """Of one cluster."""

    cluster: str
    kept_by: str
    looked_ms: int  # when its logs were looked at last
    from_ms: int | None  # the first line; none: there is no line
    to_ms: int | None
    events: int
    controllers: int  # terms that these logs tell of
    outages: int
    partitions: int  # that were without a leader at some time
    leaderless_now: int
    leaderless_unknown: int  # what may have ended them is in no line
    leaderless_ms: int  # summed, of those whose end is known, from when a controller knew
    longest_felt_ms: int  # as clients felt it, at most
    latest: list[Leaderless]
    moves: list[MoveCount]


def aggregates_of(facts: Facts, events: int, outages: Iterable[Outage], kept_by: str, looked_ms: int) -> Aggregates:
    """`events`: how many lines were understood. `outages`: as they read now."""
    found = sorted(outages, key=lambda one: (one.end_ms is not None, -one.start_ms, one.topic, one.partition))
    took = [one.end_ms - one.start_ms for one in found if one.end_ms is not None]
    is_empty = events == 0
    return Aggregates(
        cluster=facts.cluster,
        kept_by=kept_by,
        looked_ms=looked_ms,
        from_ms=None if is_empty else facts.first_ms,
        to_ms=None if is_empty else facts.last_ms,
        events=events,
        controllers=len(facts.terms),
        outages=len(found),
        partitions=len({(one.topic, one.partition) for one in found}),
        leaderless_now=sum(one.end_ms is None and one.unseen is None for one in found),
        leaderless_unknown=sum(one.end_ms is None and one.unseen is not None for one in found),
        leaderless_ms=sum(took),
        longest_felt_ms=max((one.end_ms - _felt_from_ms(one) for one in found if one.end_ms is not None), default=0),
        latest=[_named(one) for one in found[:NAMED]],
        moves=sorted(_moves_in(facts), key=lambda one: (-one.last_ms, one.machine, str(one.source), one.target)),
    )


def _named(one: Outage) -> Leaderless:
    said = {name: getattr(one, name) for name in Leaderless.__struct_fields__ if name != "felt_from_ms"}
    return Leaderless(felt_from_ms=_felt_from_ms(one), **said)


def _felt_from_ms(one: Outage) -> int:
    """A leader that is lost is silent before a controller knows."""
    return one.start_lo_ms if one.leader_last_seen_ms is None else one.leader_last_seen_ms


def _moves_in(facts: Facts) -> Iterable[MoveCount]:
    for (source, target, cause), (times, last_ms) in times_of(facts.moved).items():
        machine = MACHINE_OF[target]
        yield MoveCount(machine=machine, source=source, target=target, cause=cause, times=times, last_ms=last_ms)
