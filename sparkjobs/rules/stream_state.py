"""The state that a stream of logs keeps: the outages so far, concluded again where new lines may change them, and the
totals. Pure.

A partition is watched from the first line that can begin an outage. Only lines of watched partitions are kept here, and
the caller looks up the earlier lines about them. New lines about a watched partition touch it. New lines about
controllers, brokers or deletions may change the facts about the cluster; then every watched partition is touched. No
clock and no watermark: a line that comes late is sorted in by its epochs, as in a batch.

The totals (since when, partitions without a leader, moves) are small enough for a page: a stream
(`engine/spark/stream.py`) writes them as JSON, and brokers serve the file. They are sums over all lines that were read;
of the outages only the latest are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from sparkjobs.rules import outages
from sparkjobs.rules.conclude import facts_for
from sparkjobs.rules.facts import Facts, Tally, together
from sparkjobs.rules.moves import times_of
from sparkjobs.rules.state_machines import MACHINE_OF
from sparkjobs.tables.gold import Outage
from sparkjobs.tables.silver import SilverEvent

Moment = tuple[int, int]  # broker, milliseconds
Partition = tuple[str, int]


class Revision(NamedTuple):
    """The current reading of an outage; `retracted` where an outage that was told turned out to be none."""

    outage_id: str
    rev: int
    retracted: bool
    outage: Outage


class StreamState:
    """One cluster."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._tallies: dict[tuple[object, ...], Tally] = {}
        self._of_cluster: dict[str, SilverEvent] = {}
        self._of_partition: dict[Partition, dict[str, SilverEvent]] = {}
        self._voices: dict[Moment, int | None] = {}
        self._facts = facts_for(cluster, [], [])
        self._touched: set[Partition] = set()

    @property
    def kept(self) -> int:
        """How many lines about partitions are in memory."""
        return sum(map(len, self._of_partition.values()))

    @property
    def facts(self) -> Facts:
        """As of the last look for moments."""
        return self._facts

    @property
    def events(self) -> int:
        """How many lines were understood."""
        return sum(one.times for one in self._tallies.values())

    def take(
        self, tallies: Iterable[Tally], of_cluster: Iterable[SilverEvent], of: Iterable[SilverEvent]
    ) -> set[Partition]:
        """Lines that are new, those about partitions in `of`; a line that was taken before changes nothing. The
        partitions that are watched from now on: all lines about them, so far, are to be `recall`ed."""
        for one in tallies:
            key = (*one[: Tally._fields.index("times")],)
            known = self._tallies.get(key)
            self._tallies[key] = one if known is None else together(known, one)
        for event in of_cluster:
            self._of_cluster[event.event_id] = _earlier(event, self._of_cluster.get(event.event_id))
        fresh = set()
        for event in of:
            partition = _partition_of(event)
            if partition not in self._of_partition and outages.may_begin(event):
                self._of_partition[partition] = {}
                fresh.add(partition)
            self._keep(partition, event)
        return fresh

    def recall(self, of: Iterable[SilverEvent]) -> None:
        """Lines about watched partitions, from before they were."""
        for event in of:
            self._keep(_partition_of(event), event)

    def _keep(self, partition: Partition, event: SilverEvent) -> None:
        mine = self._of_partition.get(partition)
        if mine is not None:
            mine[event.event_id] = _earlier(event, mine.get(event.event_id))
            self._touched.add(partition)

    def moments(self) -> tuple[list[Moment], list[Moment]]:
        """Returns the brokers and moments for which the last word before the moment matters: those known before, and
        the new ones."""
        facts = facts_for(self._cluster, list(self._tallies.values()), self._of_cluster.values())
        if _basis(facts) != _basis(self._facts):
            self._touched |= self._of_partition.keys()
        self._facts = facts
        asked = {(loss.broker, loss.silent_from_ms) for loss in facts.losses}
        self._voices = {moment: ms for moment, ms in self._voices.items() if moment in asked}
        return sorted(asked & self._voices.keys()), sorted(asked - self._voices.keys())

    def hear(self, moments: Iterable[Moment], voices: Mapping[Moment, int]) -> None:
        """When they were last heard, as far as the lines go that were looked through."""
        for moment in moments:
            known, heard_ms = self._voices.get(moment), voices.get(moment)
            latest = max((ms for ms in (known, heard_ms) if ms is not None), default=None)
            if latest != known:
                self._touched |= self._of_partition.keys()
            self._voices[moment] = latest

    def conclude(self) -> dict[Partition, list[Outage]]:
        """Returns the outages of each partition that was touched; there may be none any more."""
        voices = {moment: ms for moment, ms in self._voices.items() if ms is not None}
        facts = replace(self._facts, voices=voices)
        touched, self._touched = self._touched, set()
        return {
            partition: list(outages.outages_of(list(self._of_partition[partition].values()), facts))
            for partition in sorted(touched)
        }


def _partition_of(event: SilverEvent) -> Partition:
    return event.topic or "", -1 if event.partition is None else event.partition


def _earlier(event: SilverEvent, known: SilverEvent | None) -> SilverEvent:
    """Of two copies of a line the first."""
    if known is None or (event.file_id, event.line_no) < (known.file_id, known.line_no):
        return event
    return known


def _basis(facts: Facts) -> tuple[object, ...]:
    """Returns the facts on which an outage rests."""
    terms = [(term.controller_epoch, term.from_ms, term.ready_ms, term.evidence) for term in facts.terms]
    said = (facts.starts, facts.goodbyes, facts.signs, facts.deletions, facts.deleted)
    return (facts.first_ms, terms, facts.losses, facts.tell_deletions, facts.is_end_told, *said)


class ToldOutages:
    """The outages that were told so far."""

    def __init__(self, told: Iterable[Revision] = ()) -> None:
        self._last: dict[Partition, dict[str, Revision]] = {}
        for one in told:
            self._note(one)

    def tell(self, partition: Partition, found: Sequence[Outage]) -> list[Revision]:
        """Returns the revisions that make the last revisions about a partition equal to the outages found."""
        told = self._last.get(partition, {})
        now = _named(found)
        fresh = []
        for outage_id, outage in now.items():
            before = told.get(outage_id)
            if before is None or before.retracted or _reads(before.outage) != _reads(outage):
                fresh.append(Revision(outage_id, 1 if before is None else before.rev + 1, False, outage))
        for outage_id, before in told.items():
            if outage_id not in now and not before.retracted:
                fresh.append(Revision(outage_id, before.rev + 1, True, before.outage))
        for one in fresh:
            self._note(one)
        return fresh

    def tell_all(self, found: Iterable[Outage]) -> list[Revision]:
        """Returns the same for all partitions: those that are not found have none."""
        by_partition: dict[Partition, list[Outage]] = {partition: [] for partition in self._last}
        for outage in found:
            by_partition.setdefault((outage.topic, outage.partition), []).append(outage)
        return [one for partition, its in sorted(by_partition.items()) for one in self.tell(partition, its)]

    @property
    def standing(self) -> list[Outage]:
        """Returns the outages that a reader of every revision believes in."""
        return [one.outage for its in self._last.values() for one in its.values() if not one.retracted]

    def _note(self, one: Revision) -> None:
        self._last.setdefault((one.outage.topic, one.outage.partition), {})[one.outage_id] = one


def _reads(outage: Outage) -> Outage:
    """Returns all but where the proof stands: another copy of the same line is no news."""
    return msgspec.structs.replace(outage, file_id="", line_no=0)


def _named(found: Iterable[Outage]) -> dict[str, Outage]:
    """By partition and start; as long as lines are missing, several of a partition may seem to start at once."""
    named: dict[str, Outage] = {}
    for outage in found:
        name = first = f"{outage.cluster}/{outage.topic}/{outage.partition}/{outage.start_ms}"
        number = 2
        while name in named:
            name, number = f"{first}/{number}", number + 1
        named[name] = outage
    return named


#: outages that are named, those without an end first
NAMED: Final = 50


class Leaderless(msgspec.Struct, frozen=True, kw_only=True):
    """A partition without a leader, once or now."""

    topic: str
    partition: int
    start_ms: int
    felt_from_ms: int  # its leader may have been silent to clients since then
    end_ms: int | None  # none: it has no leader, or its end is unknown
    cause: str
    first_broker: int | None
    leader: int | None
    unclean: bool
    unseen: str | None  # the event that may have ended it unseen


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
    leaderless_unknown: int  # no line shows whether they have ended
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
        latest=[_leaderless(one) for one in found[:NAMED]],
        moves=sorted(_moves_in(facts), key=lambda one: (-one.last_ms, one.machine, str(one.source), one.target)),
    )


def _leaderless(one: Outage) -> Leaderless:
    said = {name: getattr(one, name) for name in Leaderless.__struct_fields__ if name != "felt_from_ms"}
    return Leaderless(felt_from_ms=_felt_from_ms(one), **said)


def _felt_from_ms(one: Outage) -> int:
    """A leader that is lost is silent before a controller knows."""
    return one.start_lo_ms if one.leader_last_seen_ms is None else one.leader_last_seen_ms


def _moves_in(facts: Facts) -> Iterable[MoveCount]:
    for (source, target, cause), (times, last_ms) in times_of(facts.moved).items():
        machine = MACHINE_OF[target]
        yield MoveCount(machine=machine, source=source, target=target, cause=cause, times=times, last_ms=last_ms)
