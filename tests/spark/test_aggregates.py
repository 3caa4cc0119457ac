"""The results of a stream, in one small page: the sums of the tables that a batch over the same lines has."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.api.v1.reports import Aggregates as Served
from sparkjobs.rules.rules import Answers
from sparkjobs.rules.stream_state import NAMED, Aggregates, aggregates_of
from tests.spark import plain
from tests.spark.bundles import write
from tests.spark.dialect_ours import OursWithMoves
from tests.spark.simulate import Simulation
from tests.spark.test_watch import Watching, events_in


def assert_sums_of(found: Aggregates, answers: Answers) -> None:
    outages: list[Any] = list(answers["partition_outages"])
    ended = [one for one in outages if one.end_ms is not None]
    assert found.outages == len(outages)
    assert found.partitions == len({(one.topic, one.partition) for one in outages})
    assert found.leaderless_now + found.leaderless_unknown == len(outages) - len(ended)
    assert found.leaderless_ms == sum(one.end_ms - one.start_ms for one in ended)
    assert len(found.latest) == min(len(outages), NAMED)
    moved = Counter[tuple[Any, ...]]()
    rows: list[Any] = list(answers["state_transitions"])
    for row in rows:
        moved[row.machine, row.source, row.target, row.cause] += row.times
    assert {(one.machine, one.source, one.target, one.cause): one.times for one in found.moves} == moved


@pytest.mark.parametrize("seed", range(4))
def test_after_each_handful_of_lines_it_is_the_sum_of_a_batch_over_all_so_far(tmp_path: Path, seed: int) -> None:
    write(Simulation(seed, dialect=OursWithMoves()).run(faults=6), tmp_path, "TRACE")
    events = events_in(tmp_path)
    random.Random(seed).shuffle(events)
    watching, size = Watching("c"), len(events) // 4 + 1
    for start in range(0, len(events), size):
        watching.see(events[start : start + size])
        standing = watching.told.standing
        found = aggregates_of(watching.watch.facts, watching.watch.events, standing, "the test", 5)
        assert found.events == len(watching.so_far)
        assert_sums_of(found, plain.answers_for(watching.so_far))
    assert found.outages > 0
    assert sum(one.times for one in found.moves) > 0
    assert msgspec.json.decode(msgspec.json.encode(found), type=Served).kept_by == "the test"


def test_of_no_line_it_says_nothing() -> None:
    watching = Watching("c")
    found = aggregates_of(watching.watch.facts, 0, [], "the test", 5)
    assert (found.from_ms, found.to_ms, found.outages, found.latest, found.moves) == (None, None, 0, [], [])


def test_trouble_that_lasts_stands_first_and_only_the_latest_is_named(tmp_path: Path) -> None:
    write(Simulation(3, dialect=OursWithMoves()).run(faults=6), tmp_path, "TRACE")
    watching = Watching("c")
    watching.see(events_in(tmp_path))
    first = watching.told.standing[0]
    outages = [msgspec.structs.replace(first, start_ms=number, start_lo_ms=number, end_ms=900) for number in range(90)]
    outages[7] = msgspec.structs.replace(outages[7], end_ms=None, open=True, unseen=None)
    outages[8] = msgspec.structs.replace(outages[8], end_ms=None, open=True, unseen="deletion")
    found = aggregates_of(watching.watch.facts, 1, outages, "the test", 5)
    assert [one.start_ms for one in found.latest] == [8, 7, *range(89, 41, -1)]
    assert (found.leaderless_now, found.leaderless_unknown) == (1, 1)
