"""A plain reading: all answers out of a list of events, one after the other. The engine is held against it, and it is
no part of the engine: nothing here is fast, and nothing is read in stretches or by shares."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sparkjobs.report.page import Quoting
from sparkjobs.report.write import quoting
from sparkjobs.rules import moves, outages, receipts, rules
from sparkjobs.rules.conclude import facts_for
from sparkjobs.rules.facts import (
    Facts,
    Place,
    Tally,
    is_of_cluster,
    tally_key,
)
from sparkjobs.rules.rules import Answers, partition_rows, sorted_rows
from sparkjobs.rules.slo import DEFAULT_TARGET, Extent
from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.silver import BronzeFile, Row, SilverEvent


def quoting_all(files: Iterable[BronzeFile], events: Iterable[SilverEvent], answers: Answers) -> Quoting:
    """Of every line that an answer points at."""
    wanted = {Place(row.file_id, row.line_no) for rows in answers.values() for row in rows if hasattr(row, "line_no")}
    lines = {place: one.line for one in events if (place := Place(one.file_id, one.line_no)) in wanted}
    return quoting(files, lines)


@dataclass(slots=True)
class Sorted:
    """The events of one cluster, put where the rules look for them."""

    cluster: str
    tallies: list[Tally]
    of_cluster: list[SilverEvent]
    by_partition: dict[tuple[str, int], list[SilverEvent]]
    by_topic: dict[str, list[SilverEvent]]
    single: list[SilverEvent]
    calls: list[SilverEvent]  # brokers' lines about partitions of numbered requests
    heard: dict[int, array[int]]
    extents: dict[str, Extent]

    def facts(self) -> Facts:
        """With the voices of all brokers, which need the moments that the facts name."""
        facts = facts_for(self.cluster, self.tallies, self.of_cluster)
        return replace(facts, voices=dict(self.voices(facts.moments)))

    def voices(self, moments: Iterable[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
        """When each broker was last heard before a moment, if it was."""
        for broker, moment in set(moments):
            times = self.heard.get(broker, array("q"))
            index = bisect_left(times, moment)
            if index:
                yield (broker, moment), times[index - 1]


def answers_for(events: Iterable[SilverEvent], target: float = DEFAULT_TARGET) -> Answers:
    """Every table of gold, each sorted by its columns."""
    by_cluster: dict[str, list[SilverEvent]] = defaultdict(list)
    for event in events:
        by_cluster[event.cluster].append(event)
    tables: dict[str, list[Row]] = {name: [] for name in GOLD}
    for cluster, of_cluster in sorted(by_cluster.items()):
        for name, rows in _answers(sort_events(cluster, of_cluster), target).items():
            tables[name] += rows
    return {name: sorted_rows(rows) for name, rows in tables.items()}


def _answers(of: Sorted, target: float) -> dict[str, list[Row]]:
    facts = of.facts()
    for call in of.calls if facts.by_number else ():
        if call.broker in facts.by_number and call.topic is not None and call.partition is not None:
            of.by_partition[call.topic, call.partition].append(call)
    tables = partition_rows(of.by_partition.values(), facts)
    for group in of.by_topic.values():
        for name, rule in rules.OF_TOPIC.items():
            tables[name] += rule.rows(group, facts)
    tables["illegal_transitions"] += rules.illegal_transitions_of(of.single)
    tables["rpc_latency"] += rules.rpc_latency_of(of.single, facts.by_number)
    for name, rows in rules.of_cluster(
        facts,
        of.tallies,
        rules.cut_at_deletion(of.extents, facts),
        tables["partition_outages"],
        tables["leader_changes"],
        target,
        moved={name: tables.pop(name, []) for name in moves.ADDED_UP},
    ):
        tables[name] += rows
    return tables


def sort_events(cluster: str, events: Iterable[SilverEvent]) -> Sorted:
    """One pass."""
    counted: dict[tuple[object, ...], list[Any]] = {}
    of = Sorted(cluster, [], [], defaultdict(list), defaultdict(list), [], [], defaultdict(lambda: array("q")), {})
    spans: dict[str, tuple[set[int], int, int]] = {}
    for event in events:
        name, at_ms = event.event, event.ts_adj
        if event.broker is not None:
            of.heard[event.broker].append(at_ms)
        found = counted.get(key := tally_key(event))
        place = (at_ms, event.file_id, event.line_no)
        if found is None:
            counted[key] = [1, at_ms, place]
        else:
            found[0] += 1
            found[1] = max(found[1], at_ms)
            found[2] = min(found[2], place)
        if is_of_cluster(event):
            of.of_cluster.append(event)
        if event.topic is not None:
            if event.partition is not None and name in rules.PARTITION_EVENTS:
                of.by_partition[event.topic, event.partition].append(event)
            if name in rules.TOPIC_EVENTS:
                of.by_topic[event.topic].append(event)
            if event.partition is not None and name in outages.EVENTS:
                numbers, first_ms, last_ms = spans.get(event.topic, (set(), at_ms, at_ms))
                numbers.add(event.partition)
                spans[event.topic] = numbers, min(first_ms, at_ms), max(last_ms, at_ms)
        if name in rules.SINGLE_EVENTS:
            of.single.append(event)
            if name in receipts.EVENTS:
                of.calls.append(event)
    for times in of.heard.values():
        times[:] = array("q", sorted(times))
    of.tallies += [_tally(key, *found) for key, found in counted.items()]
    of.extents.update({topic: Extent(len(numbers), *times) for topic, (numbers, *times) in spans.items()})
    return of


def _tally(key: tuple[Any, ...], times: int, last_ms: int, first: tuple[int, str, int]) -> Tally:
    place = Place(first[1], first[2])
    return Tally._make((*key, times, first[0], last_ms, place))
