"""All answers about files of one cluster, on all cores, without an object per line: what `ingest`, `skew` and `answers`
conclude one after the other, of large logs. It needs numpy, which comes with the Spark engine.

Workers read the files in stretches (`digest`) and then keep the events about partitions, each worker a share of
the partitions; what is about the whole cluster is put together here. The rules are those of `sparkjobs.rules`, which
the tests hold this to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.ma  # `np.unique` asks for it: loaded here, not by every member anew

from sparkjobs.clocks.causality import OF_PAIRS, Gaps, gaps_in, is_of_pair
from sparkjobs.clocks.skew import (
    OF_TRIPS,
    ahead_of,
    all_trips_in,
    applied_ms,
    corrected,
    rows_for,
)
from sparkjobs.clocks.unnumbered import is_unnumbered
from sparkjobs.engine.local.answers import Answers, partition_rows, sorted_rows
from sparkjobs.engine.local.deduplication import skipped_in
from sparkjobs.engine.local.digest import SaidMove, StretchDigest, bucket_of, digest_stretch
from sparkjobs.engine.local.ingest import UNREAD, count_of_copy
from sparkjobs.engine.local.ingest import Tally as LineTally
from sparkjobs.engine.local.packed_events import PACK, unpacked
from sparkjobs.engine.local.rpc_columns import (
    RpcColumns,
    answered_calls,
    by_share,
    calls_by_number,
)
from sparkjobs.engine.local.stretches import stretches_of
from sparkjobs.engine.local.workers import Workers, WorkerState, worker_count_for, workers_of
from sparkjobs.parse.moments import HOUR_MS
from sparkjobs.rules import moves, outages, receipts, rules
from sparkjobs.rules.conclude import facts_for
from sparkjobs.rules.facts import (
    Facts,
    Place,
    Tally,
    is_of_cluster,
)
from sparkjobs.rules.slo import DEFAULT_TARGET, Extent
from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.silver import (
    LINE_KEPT,
    BronzeFile,
    Row,
    SilverCount,
    SilverEvent,
    SilverQuarantine,
    SilverSkew,
)

_EVENTS: Final = "events"
_MOVES: Final = "moves"
_SAID_MOVES: Final = msgspec.msgpack.Decoder(list[SaidMove])


class Question(NamedTuple):
    """What the rules need besides the events. `calls`: of brokers that name what they did by a request's number."""

    facts: Facts
    skew: Sequence[SilverSkew]
    only: Collection[str]
    calls: RpcColumns | None = None
    others: Sequence[SilverEvent] = ()  # calls that were read one by one


class Share(NamedTuple):
    """What the rules said, packed; of each topic how many partitions are named, and when."""

    tables: dict[str, bytes]
    spans: dict[str, tuple[int, int, int]]


class Kept(NamedTuple):
    """Of a share, packed: of each stretch with the lines above it, and its file."""

    events: list[tuple[bytes, int]]
    moves: list[tuple[bytes, int, str]]


def keep(state: WorkerState, kept: Kept) -> None:
    """Take them."""
    state[_EVENTS], state[_MOVES] = unpacked(kept.events), kept.moves


def gaps_of_share(state: WorkerState, _: Any) -> Gaps:
    """What its elections say about clocks."""
    return gaps_in(event for event in state[_EVENTS] if event.event in OF_PAIRS)


def rows_of_share(state: WorkerState, asked: Question) -> Share:
    """Of the rules about partitions."""
    groups: dict[tuple[str, int], list[SilverEvent]] = defaultdict(list)
    spans: dict[str, tuple[set[int], int, int]] = {}
    events = corrected(state.pop(_EVENTS), asked.skew)
    for event in events:
        assert event.topic is not None
        assert event.partition is not None
        groups[event.topic, event.partition].append(event)
        if "slo_daily" in asked.only and event.event in outages.EVENTS:
            at_ms = event.ts_adj
            numbers, first_ms, last_ms = spans.get(event.topic, (set(), at_ms, at_ms))
            numbers.add(event.partition)
            spans[event.topic] = numbers, min(first_ms, at_ms), max(last_ms, at_ms)
    calls = [] if asked.calls is None else asked.calls.events()
    for event in corrected([*calls, *asked.others], asked.skew):
        if event.topic is not None and event.partition is not None:
            groups[event.topic, event.partition].append(event)
    said = dict[tuple[str, int], list[moves.Move]]()
    if not {*moves.TABLES}.isdisjoint(asked.only):
        said = _moves_in(state.pop(_MOVES), asked)
    tables: dict[str, list[Any]] = dict(partition_rows(groups.values(), asked.facts, asked.only, said))
    if "illegal_transitions" in asked.only:
        tables["illegal_transitions"] = list(rules.illegal_transitions_of(events))
    return Share(
        {name: PACK.encode(rows) for name, rows in tables.items()},
        {topic: (len(numbers), first_ms, last_ms) for topic, (numbers, first_ms, last_ms) in spans.items()},
    )


def _moves_in(kept: Sequence[tuple[bytes, int, str]], asked: Question) -> dict[tuple[str, int], list[moves.Move]]:
    """Of replicas, by partition."""
    shifts, found = _shifts(asked.skew), defaultdict[tuple[str, int], list[moves.Move]](list)
    for packed, above, file_id in kept:
        for topic, partition, epoch, ts_utc, line_no, broker, replica, source, target in _SAID_MOVES.decode(packed):
            at_ms = ts_utc - (0 if broker is None else shifts.get((broker, ts_utc - ts_utc % HOUR_MS), 0))
            if epoch is None:
                epoch = moves.epoch_of(None, broker, at_ms, asked.facts)  # noqa: PLW2901
            said = moves.Move(epoch, ts_utc, file_id, line_no + above, at_ms, replica, source, target)
            found[topic, partition].append(said)
    return found


class Concluded(NamedTuple):
    """The answers and what they rest on."""

    answers: Answers
    files: list[BronzeFile]
    counts: list[SilverCount]
    quarantine: list[SilverQuarantine]
    skew: list[SilverSkew]


def conclude(
    files: Sequence[BronzeFile],
    target: float = DEFAULT_TARGET,
    only: Collection[str] = tuple(GOLD),
    on_bytes: Callable[[int], None] = lambda size: None,
) -> Concluded:
    """`only`: of the tables about partitions those that are asked for, outages always; all others are given anyway."""
    with workers_of(worker_count_for(sum(file.size_bytes for file in files))) as workers:
        return _Conclusion(workers, files, on_bytes).answers(target, only)


#: tables that rest on others about partitions
_RESTS_ON: Final = {
    "failovers": ("leader_changes",),
    "leader_churn": ("leader_changes",),
    "flapping": ("leader_changes", "isr_timeline"),
}


class _Conclusion:
    """The logs of one cluster."""

    def __init__(self, workers: Workers, files: Sequence[BronzeFile], on_bytes: Callable[[int], None]) -> None:
        self.workers, self.cluster = workers, files[0].cluster
        self.files = sorted(files, key=lambda file: file.file_id)
        self.stretches = [
            one for file in self.files if file.status not in UNREAD for one in stretches_of(file, workers.size)
        ]

        def on_done(number: int) -> None:
            stretch = self.stretches[number]
            on_bytes((stretch.end or stretch.file.size_bytes) - stretch.start)

        self.digests: list[StretchDigest] = workers.spread(digest_stretch, self.stretches, on_done)
        self.skipped = skipped_in(workers, self.stretches, self.digests)
        again = [number for number, skipped in enumerate(self.skipped) if skipped]
        asked = [self.stretches[number]._replace(skipped=self.skipped[number]) for number in again]
        for number, digest in zip(again, workers.spread(digest_stretch, asked), strict=True):
            self.digests[number] = digest
        self.above = list(self._lines_above())
        read = list(zip(self.stretches, self.digests, self.above, strict=True))
        shares = [
            Kept(
                [(digest.partitions[member], above) for _, digest, above in read],
                [(digest.moves[member], above, stretch.file.file_id) for stretch, digest, above in read],
            )
            for member in range(workers.size)
        ]
        workers.each(keep, shares)
        self.others = unpacked([(digest.others, above) for digest, above in zip(self.digests, self.above, strict=True)])
        self.heard: dict[int, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))  # broker, hour: moments
        for digest in self.digests:
            for (broker, hour), moments in digest.heard.items():
                self.heard[broker][hour].append(moments)

    def _lines_above(self) -> Iterator[int]:
        above = 0
        for stretch, digest in zip(self.stretches, self.digests, strict=True):
            above = above if stretch.start else 0
            yield above
            above += digest.lines

    def answers(self, target: float, only: Collection[str]) -> Concluded:
        """The tables that are asked for; the rest of `gold` is not there."""
        calls = self._calls()
        skew = self._skew([*calls, *self._unnumbered()])
        tallies = list(self._tallies(skew))
        others = corrected(self.others, skew)
        facts = facts_for(self.cluster, tallies, list(filter(is_of_cluster, others)))
        facts = replace(facts, voices=dict(self._voices(facts.moments, skew)))
        question = Question(replace(facts, moved=()), skew, _needed(only, facts))
        told = self._told(facts.by_number) if {*question.only} & {"leader_changes", "rpc_latency"} else None
        shares = self.workers.each(rows_of_share, self._questions(question, told))
        tables: dict[str, list[Row]] = defaultdict(list)
        for share in shares:
            for name, packed in share.tables.items():
                tables[name] += msgspec.msgpack.decode(packed, type=_rows_type(GOLD[name]))
        by_topic: dict[str, list[SilverEvent]] = defaultdict(list)
        for event in others:
            if event.event in rules.TOPIC_EVENTS and event.topic is not None:
                by_topic[event.topic].append(event)
        for group in by_topic.values():
            for name, rule in rules.OF_TOPIC.items():
                tables[name] += rule.rows(group, facts)
        tables["illegal_transitions"] += rules.illegal_transitions_of(others)
        if "rpc_latency" in only:
            calls += [] if told is None else told.events()
            tables["rpc_latency"] += rules.rpc_latency_of(corrected([*self.others, *calls], skew), facts.by_number)
        ended, changes = tables["partition_outages"], tables["leader_changes"]
        extents = rules.cut_at_deletion(_extents(shares), facts)
        moved = {name: tables.pop(name, []) for name in moves.ADDED_UP}
        for name, rows in rules.of_cluster(facts, tallies, extents, ended, changes, target, moved, only):
            tables[name] += rows
        answers = {name: sorted_rows(tables[name]) for name in GOLD if name in only}
        return Concluded(answers, *self._accounts(), skew)

    def _calls(self) -> list[SilverEvent]:
        """Requests that were answered, as events: who sent them, who received them, who was done."""
        if not any(event.event == "response_received" for event in self.others):
            return []
        places = [(one.file.file_id, above) for one, above in zip(self.stretches, self.above, strict=True)]
        sent = unpacked([(digest.sent, above) for digest, above in zip(self.digests, self.above, strict=True)])
        return [*answered_calls(places, self.digests, self.others, self.cluster), *sent]

    def _unnumbered(self) -> list[SilverEvent]:
        """What brokers did whose controller does not say which request they answered."""
        brokers = {event.peer_broker for event in self.others if is_unnumbered(event) and event.peer_broker is not None}
        told = self._told(frozenset(brokers))
        return [] if told is None else told.events()

    def _told(self, brokers: frozenset[int]) -> RpcColumns | None:
        """What brokers did that name it by numbers alone."""
        if not brokers:
            return None
        places = [(one.file.file_id, above) for one, above in zip(self.stretches, self.above, strict=True)]
        return calls_by_number(places, self.digests, self.others, self.cluster, brokers)

    def _questions(self, question: Question, told: RpcColumns | None) -> list[Question]:
        """To each member; who did what only to those who keep the partition."""
        if told is None or "leader_changes" not in question.only:
            return [question] * self.workers.size
        others: list[list[SilverEvent]] = [[] for _ in range(self.workers.size)]
        for event in self.others:
            is_its = event.event in receipts.EVENTS and event.topic is not None and event.partition is not None
            if is_its and event.broker in question.facts.by_number:
                others[bucket_of(str(event.topic), event.partition or 0, self.workers.size)].append(event)
        shares = zip(by_share(told, self.workers.size), others, strict=True)
        return [question._replace(calls=calls, others=its) for calls, its in shares]

    def _skew(self, calls: Sequence[SilverEvent]) -> list[SilverSkew]:
        heard = {broker: {*hours} for broker, hours in sorted(self.heard.items())}
        if not heard:
            return []
        trips = all_trips_in([event for event in (*self.others, *calls) if event.event in OF_TRIPS])
        return rows_for(self.cluster, ahead_of(trips), heard, self._gaps)

    def _gaps(self) -> Gaps:
        gaps = gaps_in(event for event in self.others if is_of_pair(event))
        for share in self.workers.each(gaps_of_share, [None] * self.workers.size):
            gaps.join(share)
        return gaps

    def _tallies(self, skew: Sequence[SilverSkew]) -> Iterator[Tally]:
        shifts = _shifts(skew)
        found: dict[tuple[Any, ...], tuple[int, tuple[int, str, int], int]] = {}
        for stretch, digest, above in zip(self.stretches, self.digests, self.above, strict=True):
            for key, hours in digest.tallies.items():
                for hour, (times, first_ms, line_no, last_ms) in hours.items():
                    shift = shifts.get((key[1], hour), 0)
                    first = (first_ms - shift, stretch.file.file_id, line_no + above)
                    known = found.get(key, (0, first, last_ms - shift))
                    found[key] = (known[0] + times, min(known[1], first), max(known[2], last_ms - shift))
        for key, (times, first, last_ms) in found.items():
            yield Tally._make((*key, times, first[0], last_ms, Place(first[1], first[2])))

    def _voices(
        self, moments: Iterable[tuple[int, int]], skew: Sequence[SilverSkew]
    ) -> Iterator[tuple[tuple[int, int], int]]:
        """When each broker was last heard before a moment, if it was."""
        shifts, wanted = _shifts(skew), defaultdict[int, set[int]](set)
        for broker, moment in moments:
            wanted[broker].add(moment)
        for broker, its in wanted.items():
            hours = self.heard.get(broker, {})
            parts = [some - shifts.get((broker, hour), 0) for hour, of_hour in hours.items() for some in of_hour]
            times = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
            for moment in its:
                index = int(np.searchsorted(times, moment))
                if index:
                    yield (broker, moment), int(times[index - 1])

    def _accounts(self) -> tuple[list[BronzeFile], list[SilverCount], list[SilverQuarantine]]:
        files, counts, quarantine = [], list[SilverCount](), list[SilverQuarantine]()
        for file in self.files:
            tally, trouble = LineTally(), None
            for stretch, digest, above, skipped in zip(
                self.stretches, self.digests, self.above, self.skipped, strict=True
            ):
                if stretch.file is file:
                    tally.lines += digest.lines
                    tally.events += digest.events
                    tally.continuations += digest.continuations
                    tally.duplicates += len(skipped)
                    tally.quarantined += len(digest.quarantine)
                    trouble = trouble or digest.trouble
                    quarantine += [_quarantined(file, number + above, *why) for number, *why in digest.quarantine]
            if trouble is not None:
                status = "vanished" if trouble.startswith("FileNotFoundError") else "unreadable"
                file = msgspec.structs.replace(file, status=status, trouble=trouble)  # noqa: PLW2901
            files.append(file)
            counts.append(tally.row(file, file.paths[0]))
            if file.status not in UNREAD or trouble is not None:
                counts += [count_of_copy(file, path, tally.lines) for path in file.paths[1:]]
        return files, counts, quarantine


def _needed(only: Collection[str], facts: Facts) -> set[str]:
    """Of the tables about partitions. Where no broker went nobody asks who led instead."""
    asked = [name for name in only if name != "failovers" or facts.losses]
    return {*only, "partition_outages"}.union(*(_RESTS_ON.get(name, ()) for name in asked))


def _rows_type(table: type[Row]) -> Any:
    return list[table]  # type: ignore[valid-type]


def _shifts(skew: Sequence[SilverSkew]) -> dict[tuple[int, int], int]:
    return {(row.broker, row.hour): applied_ms(row) for row in skew}


def _quarantined(file: BronzeFile, line_no: int, reason: str, line: str) -> SilverQuarantine:
    return SilverQuarantine(
        cluster=file.cluster, file_id=file.file_id, line_no=line_no, reason=reason, line=line[:LINE_KEPT]
    )


def _extents(shares: Iterable[Share]) -> dict[str, Extent]:
    found: dict[str, Extent] = {}
    for share in shares:
        for topic, (partitions, first_ms, last_ms) in share.spans.items():
            known = found.get(topic, Extent(0, first_ms, last_ms))
            found[topic] = Extent(known[0] + partitions, min(known[1], first_ms), max(known[2], last_ms))
    return found
