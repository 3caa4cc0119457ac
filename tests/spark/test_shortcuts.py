"""Where a rule need not look closely, looking closely says the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from sparkjobs.commands.inputs import LogInputs
from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.rules import isr_timeline, partitions, slo
from sparkjobs.rules.tenures import Stretch
from tests.bench.spark.world import write_logs
from tests.spark.plain import answers_for
from tests.spark.reading import silver_of
from tests.spark.test_engines import write_anything

DAY_MS = 86_400_000


@pytest.mark.parametrize("seed", range(4))
def test_order_and_clean_elections_are_the_same_when_looked_for_closely(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_anything(tmp_path, random.Random(seed))
    write_logs(tmp_path / "bench", 1_200)
    events = silver_of(LogInputs(survey(find_logs([str(tmp_path)]), "c", Zones()))).ingested.events
    quickly = answers_for(events)
    taken = {"order": 0, "clean": 0}
    is_in_order, is_surely_clean = partitions._is_in_order, isr_timeline._is_surely_clean

    def not_in_order(some: Sequence[object]) -> bool:
        taken["order"] += is_in_order(some)  # type: ignore[arg-type]
        return False

    def not_surely_clean(some: Sequence[object]) -> bool:
        taken["clean"] += is_surely_clean(some)  # type: ignore[arg-type]
        return False

    monkeypatch.setattr(partitions, "_is_in_order", not_in_order)
    monkeypatch.setattr(isr_timeline, "_is_surely_clean", not_surely_clean)
    assert answers_for(events) == quickly
    assert min(taken.values()) > 10
    assert quickly["partition_outages"]


@pytest.mark.parametrize("seed", range(30))
def test_how_long_an_outage_is_on_each_day_is_the_same_day_by_day(seed: int) -> None:
    draw = random.Random(seed)
    stretches = sorted((start := draw.randrange(5 * DAY_MS), start + draw.randrange(DAY_MS // 2)) for _ in range(20))
    stretches += [(2 * DAY_MS - 5, 2 * DAY_MS), (3 * DAY_MS, 3 * DAY_MS + 5)]
    extent = slo.Extent(1, draw.randrange(DAY_MS), 6 * DAY_MS)
    covered = {ms for begin, end in slo._union(sorted(stretches), extent) for ms in (begin, end)}
    assert min(covered) >= extent.first_ms
    never: list[Stretch] = [Stretch(9 * DAY_MS, 9 * DAY_MS + 1)]  # a stretch that touches nothing takes the long way
    assert slo._lengths(sorted(stretches), extent, []) == slo._lengths(sorted(stretches), extent, never)
