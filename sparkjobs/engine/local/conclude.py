"""All answers about files, without an object per line, with any executor (`engine.executor`).

The executor reads stretches of files (`digest`) and divides them into parts by subject: partitions, requests to a
broker, and the times at which a broker was heard. Each share of these parts is then concluded by itself. This module
puts together the answers about the whole cluster. The rules are those of `sparkjobs.rules`; the tests compare all
answers with a plain reading, line by line. This module needs numpy, which comes with the Spark engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.ma  # `np.unique` asks for it: loaded here, not by every member anew

from sparkjobs.clocks.causality import OF_PAIRS, HourlyGaps, gaps_in, is_of_pair
from sparkjobs.clocks.skew import (
    OF_TRIPS,
    AheadOf,
    ahead_of,
    all_trips_in,
    applied_ms,
    corrected,
    is_unnumbered,
    rows_for,
)
from sparkjobs.engine.local.deduplication import skipped_in
from sparkjobs.engine.local.digest import (
    CALLS_OF,
    EVENTS,
    HEARD,
    SaidMove,
    StretchDigest,
    digest_stretch,
    kinds_for,
)
from sparkjobs.engine.local.executor import Executor, Share, worker_count_for, workers_of
from sparkjobs.engine.local.packed_events import PACK, StretchContext, unpacked
from sparkjobs.engine.local.rpc_columns import answered_calls, calls_by_number
from sparkjobs.engine.local.stretches import WantedLines, lines_in, stretches_of
from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.rules import moves, outages, rules
from sparkjobs.rules.conclude import facts_for
from sparkjobs.rules.facts import (
    Facts,
    Place,
    Tally,
    is_of_cluster,
)
from sparkjobs.rules.rules import Answers, partition_rows, sorted_rows
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

_SAID_MOVES: Final = msgspec.msgpack.Decoder(list[SaidMove])


#: statuses of files that no line is taken from
UNREAD: Final = ("vanished", "unreadable")


class ClusterKnowledge(NamedTuple):
    """The facts that a share cannot know by itself. `aboves`: of each stretch."""

    cluster: str
    aboves: Sequence[StretchContext]
    skew: Sequence[SilverSkew] = ()


class RuleInputs(NamedTuple):
    """The facts that the rules about partitions need besides the events. `only`: tables that are asked for."""

    known: ClusterKnowledge
    facts: Facts
    only: Collection[str]


class ShareAnswer(NamedTuple):
    """The answers of the rules, packed; for each topic, how many partitions are named, and when."""

    tables: dict[str, bytes]
    spans: dict[str, tuple[int, int, int]]


def _events_of(share: Share, known: ClusterKnowledge) -> list[SilverEvent]:
    if EVENTS not in share.kept:
        share.kept[EVENTS] = unpacked((part.packed, known.aboves[number]) for number, part in share.parts)
    return share.kept[EVENTS]  # type: ignore[no-any-return]


def gaps_of_share(share: Share, known: ClusterKnowledge) -> HourlyGaps:
    """Returns the gaps between clocks that the elections of the share show."""
    return gaps_in(event for event in _events_of(share, known) if event.event in OF_PAIRS)


def rows_of_share(share: Share, asked: RuleInputs) -> ShareAnswer:
    """Of the rules about partitions."""
    known, facts = asked.known, asked.facts
    groups: dict[tuple[str, int], list[SilverEvent]] = defaultdict(list)
    spans: dict[str, tuple[set[int], int, int]] = {}
    events = corrected(_events_of(share, known), known.skew)
    share.kept.clear()
    for event in events:
        assert event.topic is not None
        assert event.partition is not None
        groups[event.topic, event.partition].append(event)
        if "slo_daily" in asked.only and event.event in outages.EVENTS:
            at_ms = event.ts_adj
            numbers, first_ms, last_ms = spans.get(event.topic, (set(), at_ms, at_ms))
            numbers.add(event.partition)
            spans[event.topic] = numbers, min(first_ms, at_ms), max(last_ms, at_ms)
    if facts.by_number and "leader_changes" in asked.only:
        others = unpacked((part.told_packed, known.aboves[number]) for number, part in share.parts)
        others = [event for event in others if event.broker in facts.by_number]
        called = [(part.told, known.aboves[number]) for number, part in share.parts if part.told]
        told = calls_by_number(called, others, known.cluster, facts.by_number)
        for event in corrected([*told, *others], known.skew):
            if event.topic is not None and event.partition is not None:
                groups[event.topic, event.partition].append(event)
    said = dict[tuple[str, int], list[moves.Move]]()
    if not {*moves.TABLES}.isdisjoint(asked.only):
        said = _moves_of(share, asked)
    tables: dict[str, list[Any]] = dict(partition_rows(groups.values(), facts, asked.only, said))
    if "illegal_transitions" in asked.only:
        tables["illegal_transitions"] = list(rules.illegal_transitions_of(events))
    return ShareAnswer(
        {name: PACK.encode(rows) for name, rows in tables.items()},
        {topic: (len(numbers), first_ms, last_ms) for topic, (numbers, first_ms, last_ms) in spans.items()},
    )


def _moves_of(share: Share, asked: RuleInputs) -> dict[tuple[str, int], list[moves.Move]]:
    """Of replicas, by partition."""
    shifts, found = shifts_of(asked.known.skew), defaultdict[tuple[str, int], list[moves.Move]](list)
    for number, part in share.parts:
        above = asked.known.aboves[number]
        for topic, partition, epoch, ts_utc, line_no, broker, replica, source, target in _SAID_MOVES.decode(part.moves):
            at_ms = ts_utc - (0 if broker is None else shifts.get((broker, ts_utc - ts_utc % HOUR_MS), 0))
            if epoch is None:
                epoch = moves.epoch_of(None, broker, at_ms, asked.facts)  # noqa: PLW2901
            said = moves.Move(epoch, ts_utc, above.file_id, line_no + above.lines, at_ms, replica, source, target)
            found[topic, partition].append(said)
    return found


class _Requests(NamedTuple):
    """Lines about requests to some brokers: those that were answered, and all that were read one by one."""

    read: list[SilverEvent]
    answered: list[SilverEvent]


def _requests_of(share: Share, known: ClusterKnowledge) -> _Requests:
    if CALLS_OF not in share.kept:
        read = unpacked((part.packed, known.aboves[number]) for number, part in share.parts)
        answered = list[SilverEvent]()
        if any(event.event == "response_received" for event in read):
            called = [(part.columns, known.aboves[number]) for number, part in share.parts if part.columns]
            answered = answered_calls(called, read, known.cluster)
            answered += unpacked((part.sent, known.aboves[number]) for number, part in share.parts)
        share.kept[CALLS_OF] = _Requests(read, answered)
    return share.kept[CALLS_OF]  # type: ignore[no-any-return]


def _told_of(share: Share, known: ClusterKnowledge, brokers: frozenset[int]) -> list[SilverEvent]:
    """Returns the acts of brokers that name a partition by numbers alone."""
    called = [(part.columns, known.aboves[number]) for number, part in share.parts if part.columns]
    return calls_by_number(called, _requests_of(share, known).read, known.cluster, brokers)


def ahead_in_share(share: Share, known: ClusterKnowledge) -> AheadOf:
    """Returns the clock differences that round trips to the brokers of the share show."""
    read, answered = _requests_of(share, known)
    brokers = {event.peer_broker for event in read if is_unnumbered(event) and event.peer_broker is not None}
    told = _told_of(share, known, frozenset(brokers))
    return ahead_of(all_trips_in([event for event in (*read, *answered, *told) if event.event in OF_TRIPS]))


def latencies_of_share(share: Share, asked: tuple[ClusterKnowledge, frozenset[int]]) -> bytes:
    """Returns the latencies of requests to the brokers of the share, packed. Brokers that name their acts by numbers
    are included."""
    known, by_number = asked
    read, answered = _requests_of(share, known)
    events = corrected([*read, *answered, *_told_of(share, known, by_number)], known.skew)
    share.kept.clear()
    return PACK.encode(list(rules.rpc_latency_of(events, by_number)))


def voices_in_share(
    share: Share, asked: tuple[Mapping[int, Collection[int]], Mapping[tuple[int, int], int]]
) -> dict[tuple[int, int], int]:
    """Returns when each broker was last heard before a moment, if it was. Moments by broker; how far each clock is
    ahead."""
    wanted, shifts = asked
    times: dict[int, list[Any]] = defaultdict(list)
    for _, part in share.parts:
        for (broker, hour), moments in part.items():
            if broker in wanted:
                times[broker].append(moments - shifts.get((broker, hour), 0))
    found: dict[tuple[int, int], int] = {}
    for broker, heard in times.items():
        ordered = np.sort(np.concatenate(heard))
        for moment in wanted[broker]:
            index = int(np.searchsorted(ordered, moment))
            if index:
                found[broker, moment] = int(ordered[index - 1])
    return found


class Concluded(NamedTuple):
    """The answers and their evidence."""

    answers: Answers
    lines: Mapping[Place, str]  # the lines that were asked for; a line that can no longer be read is left out
    tallies: Sequence[Tally]
    spoke: Mapping[str, frozenset[int]]  # whose lines are in a file
    files: list[BronzeFile]
    counts: list[SilverCount]
    quarantine: list[SilverQuarantine]
    skew: list[SilverSkew]


OnBytes = Callable[[int], None]
#: which lines a reader of the answers will want to see
PlacesIn = Callable[[Answers], Iterable[Place]]


def conclude(
    files: Sequence[BronzeFile], target: float = DEFAULT_TARGET, only: Collection[str] = tuple(GOLD)
) -> Concluded:
    """By processes of this machine."""
    with workers_of(worker_count_for(sum(file.size_bytes for file in files))) as workers:
        return concluded_by(workers, files, target, only)


def concluded_by(
    executor: Executor,
    files: Sequence[BronzeFile],
    target: float = DEFAULT_TARGET,
    only: Collection[str] = tuple(GOLD),
    places_in: PlacesIn = lambda answers: (),
    on_bytes: OnBytes = lambda size: None,
) -> Concluded:
    """`only`: of the tables about partitions those that are asked for, outages always; all others are given anyway.
    Each cluster is concluded by itself."""
    found = [Conclusion(executor, its, on_bytes).answers(target, only, places_in) for its in by_cluster(files)]
    if len(found) == 1:
        return found[0]
    return Concluded(
        answers={name: sorted_rows(row for one in found for row in one.answers[name]) for name in GOLD if name in only},
        lines={place: line for one in found for place, line in one.lines.items()},
        tallies=[tally for one in found for tally in one.tallies],
        spoke={file_id: brokers for one in found for file_id, brokers in one.spoke.items()},
        files=[row for one in found for row in one.files],
        counts=[row for one in found for row in one.counts],
        quarantine=[row for one in found for row in one.quarantine],
        skew=[row for one in found for row in one.skew],
    )


#: tables that rest on others about partitions
_RESTS_ON: Final = {
    "failovers": ("leader_changes",),
    "leader_churn": ("leader_changes",),
    "flapping": ("leader_changes", "isr_timeline"),
}


def by_cluster(files: Iterable[BronzeFile]) -> list[list[BronzeFile]]:
    """In the order that counts."""
    found: dict[str, list[BronzeFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: (file.cluster, file.file_id)):
        found[file.cluster].append(file)
    return list(found.values())


class ClusterLogs:
    """The logs of one cluster, read. `files` are in the order that counts, which is that of their ids."""

    def __init__(self, executor: Executor, files: Sequence[BronzeFile], on_bytes: OnBytes = lambda size: None) -> None:
        self.executor, self.cluster, self.files = executor, files[0].cluster, files
        self.kinds = kinds_for(executor.shares_for(sum(file.size_bytes for file in files)))
        self.stretches = [
            one for file in self.files if file.status not in UNREAD for one in stretches_of(file, self.kinds)
        ]

        def on_done(number: int) -> None:
            stretch = self.stretches[number]
            on_bytes((stretch.end or stretch.file.size_bytes) - stretch.start)

        self.shares = executor.divide(digest_stretch, self.stretches, self.kinds, on_done)
        self.skipped = skipped_in(executor, self.stretches, self.shares)
        if self.skipped:
            for number, its in self.skipped.items():
                self.stretches[number] = self.stretches[number]._replace(skipped=its)
            self.shares.replace({number: self.stretches[number] for number in self.skipped})
        self.digests: list[list[StretchDigest]] = self.shares.told
        self.known = ClusterKnowledge(self.cluster, list(self._aboves()))
        self.others = unpacked(
            (digest.others, above)
            for digests, above in zip(self.digests, self.known.aboves, strict=True)
            for digest in digests
        )

    def _aboves(self) -> Iterator[StretchContext]:
        lines, following = 0, [*self.stretches[1:], None]
        for stretch, after, digests, its in zip(
            self.stretches, following, self.digests, [*self.digests[1:], []], strict=True
        ):
            lines = lines if stretch.start else 0
            is_one = after is not None and after.start and after.file is stretch.file
            heads = {digest.first_line - 1: digest.head for digest in digests[1:]}
            heads |= {sum(digest.lines for digest in digests): digest.head for digest in its[:1] if is_one}
            yield StretchContext(
                stretch.file.file_id, lines, {at: head for at, head in heads.items() if head is not None}
            )
            lines += sum(digest.lines for digest in digests)

    def accounts(self) -> tuple[list[BronzeFile], list[SilverCount], list[SilverQuarantine]]:
        """Returns where the lines of each file went."""
        files, counts, quarantine = [], list[SilverCount](), list[SilverQuarantine]()
        of_file: dict[str, list[tuple[int, StretchDigest, StretchContext]]] = defaultdict(list)
        for number, (digests, above) in enumerate(zip(self.digests, self.known.aboves, strict=True)):
            of_file[above.file_id] += [(number, digest, above) for digest in digests]
        for file in self.files:
            its, trouble = of_file.get(file.file_id, ()), None
            for _, digest, above in its:
                trouble = trouble or digest.trouble
                quarantine += [_quarantined(file, line_no + above.lines, *why) for line_no, *why in digest.quarantine]
            if file.status == "read" and file.file_id not in of_file:
                trouble = "FileNotFoundError: gone when it was to be read"
            if trouble is not None:
                status = "vanished" if trouble.startswith("FileNotFoundError") else "unreadable"
                file = msgspec.structs.replace(file, status=status, trouble=trouble)  # noqa: PLW2901
            files.append(file)
            count = SilverCount(
                cluster=file.cluster,
                path=file.paths[0],
                file_id=file.file_id,
                lines=sum(digest.lines for _, digest, _ in its),
                events=sum(digest.events for _, digest, _ in its),
                continuations=sum(digest.continuations for _, digest, _ in its),
                duplicates=sum(len(self.skipped.get(number, ())) for number, one, _ in its if one.first_line == 1),
                quarantined=sum(digest.quarantined for _, digest, _ in its),
            )
            counts.append(count)
            if file.status not in UNREAD or trouble is not None:
                counts += [copy_of(count, path) for path in file.paths[1:]]
        return files, counts, quarantine

    def _ask(self, kind: str, function: Callable[[Share, Any], Any], given: Any) -> list[Any]:
        """To all shares of a kind the same."""
        return self.shares.ask(kind, function, [given] * self.kinds[kind])

    def skew(self) -> list[SilverSkew]:
        """Returns how far each broker's clock was off, by the hour."""
        heard: dict[int, set[int]] = defaultdict(set)
        for digest in self._each_digest():
            for key, hours in digest.tallies.items():
                if key[1] is not None:
                    heard[key[1]] |= hours.keys()
        if not heard:
            return []
        ahead: dict[tuple[int, int], Any] = {}
        for share in self._ask(CALLS_OF, ahead_in_share, self.known):
            ahead |= share
        return rows_for(self.cluster, ahead, dict(sorted(heard.items())), self._gaps)

    def _gaps(self) -> HourlyGaps:
        gaps = gaps_in(event for event in self.others if is_of_pair(event))
        for share in self._ask(EVENTS, gaps_of_share, self.known):
            gaps.join(share)
        return gaps

    def _each_digest(self) -> Iterator[StretchDigest]:
        return (digest for digests in self.digests for digest in digests)


class Conclusion(ClusterLogs):
    """The conclusions from all logs of a cluster."""

    def answers(
        self,
        target: float = DEFAULT_TARGET,
        only: Collection[str] = tuple(GOLD),
        places_in: PlacesIn = lambda answers: (),
    ) -> Concluded:
        """Returns the tables that are asked for; the rest of `gold` is not there."""
        skew = self.skew()
        known = self.known._replace(skew=skew)
        tallies = list(self._tallies(skew))
        others = corrected(self.others, skew)
        facts = facts_for(self.cluster, tallies, list(filter(is_of_cluster, others)))
        facts = replace(facts, voices=self._voices(facts.moments, skew))
        question = RuleInputs(known, replace(facts, moved=()), _needed(only, facts))
        shares: list[ShareAnswer] = self._ask(EVENTS, rows_of_share, question)
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
            for packed in self._ask(CALLS_OF, latencies_of_share, (known, facts.by_number)):
                tables["rpc_latency"] += msgspec.msgpack.decode(packed, type=_rows_type(GOLD["rpc_latency"]))
        ended, changes = tables["partition_outages"], tables["leader_changes"]
        extents = rules.cut_at_deletion(_extents(shares), facts)
        moved = {name: tables.pop(name, []) for name in moves.ADDED_UP}
        for name, rows in rules.of_cluster(facts, tallies, extents, ended, changes, target, moved, only):
            tables[name] += rows
        answers = {name: sorted_rows(tables[name]) for name in GOLD if name in only}
        return Concluded(answers, self._lines(places_in(answers)), tallies, self._spoke(), *self.accounts(), skew)

    def _tallies(self, skew: Sequence[SilverSkew]) -> Iterator[Tally]:
        shifts = shifts_of(skew)
        found: dict[tuple[Any, ...], tuple[int, tuple[int, str, int], int]] = {}
        for digests, above in zip(self.digests, self.known.aboves, strict=True):
            for digest in digests:
                for key, hours in digest.tallies.items():
                    for hour, (times, first_ms, line_no, last_ms) in hours.items():
                        shift = shifts.get((key[1], hour), 0)
                        first = (first_ms - shift, above.file_id, line_no + above.lines)
                        known = found.get(key, (0, first, last_ms - shift))
                        found[key] = (known[0] + times, min(known[1], first), max(known[2], last_ms - shift))
        for key, (times, first, last_ms) in found.items():
            yield Tally._make((*key, times, first[0], last_ms, Place(first[1], first[2])))

    def _voices(self, moments: Iterable[tuple[int, int]], skew: Sequence[SilverSkew]) -> dict[tuple[int, int], int]:
        """Returns when each broker was last heard before a moment, if it was."""
        wanted = defaultdict[int, set[int]](set)
        for broker, moment in moments:
            wanted[broker].add(moment)
        voices: dict[tuple[int, int], int] = {}
        if wanted:
            for share in self._ask(HEARD, voices_in_share, (dict(wanted), shifts_of(skew))):
                voices |= share
        return voices

    def _lines(self, places: Iterable[tuple[str, int]]) -> dict[Place, str]:
        """Only the stretches that hold one of them are looked at."""
        wanted: dict[int, list[int]] = defaultdict(list)
        ends = [
            above.lines + sum(digest.lines for digest in digests)
            for digests, above in zip(self.digests, self.known.aboves, strict=True)
        ]
        first = {above.file_id: number for number, above in reversed([*enumerate(self.known.aboves)])}
        for file_id, line_no in sorted(set(places)):
            number = first.get(file_id, len(ends))
            while number < len(ends) and self.known.aboves[number].file_id == file_id and ends[number] < line_no:
                number += 1
            if number < len(ends) and self.known.aboves[number].file_id == file_id:
                wanted[number].append(line_no - self.known.aboves[number].lines)
        tasks = [WantedLines(self.stretches[number], its) for number, its in wanted.items()]
        told = self.executor.divide(lines_in, tasks, {}).told if tasks else []
        return {
            Place(self.known.aboves[number].file_id, self.known.aboves[number].lines + line_no): line
            for number, portions in zip(wanted, told, strict=True)
            for found in portions
            for line_no, line in found
        }

    def _spoke(self) -> dict[str, frozenset[int]]:
        found: dict[str, frozenset[int]] = {}
        for digests, above in zip(self.digests, self.known.aboves, strict=True):
            brokers = {key[1] for digest in digests for key in digest.tallies if key[1] is not None}
            found[above.file_id] = found.get(above.file_id, frozenset()) | brokers
        return found


def _needed(only: Collection[str], facts: Facts) -> set[str]:
    """Returns the needed tables about partitions. Where no broker died, the question of a substitute leader does not
    arise."""
    asked = [name for name in only if name != "failovers" or facts.losses]
    return {*only, "partition_outages"}.union(*(_RESTS_ON.get(name, ()) for name in asked))


def _rows_type(table: type[Row]) -> Any:
    return list[table]  # type: ignore[valid-type]


def shifts_of(skew: Sequence[SilverSkew]) -> dict[tuple[int, int], int]:
    return {(row.broker, row.hour): applied_ms(row) for row in skew}


def copy_of(count: SilverCount, path: str) -> SilverCount:
    """All lines of a copy are duplicates."""
    none = {"events": 0, "continuations": 0, "quarantined": 0}
    return msgspec.structs.replace(count, path=path, duplicates=count.lines, **none)


def _quarantined(file: BronzeFile, line_no: int, reason: str, line: str) -> SilverQuarantine:
    return SilverQuarantine(
        cluster=file.cluster, file_id=file.file_id, line_no=line_no, reason=reason, line=line[:LINE_KEPT]
    )


def _extents(shares: Iterable[ShareAnswer]) -> dict[str, Extent]:
    found: dict[str, Extent] = {}
    for share in shares:
        for topic, (partitions, first_ms, last_ms) in share.spans.items():
            known = found.get(topic, Extent(0, first_ms, last_ms))
            found[topic] = Extent(known[0] + partitions, min(known[1], first_ms), max(known[2], last_ms))
    return found
