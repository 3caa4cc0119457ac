"""Answers about simulated clusters against their known truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkjobs.answers.local import Answers, answers_for
from sparkjobs.files import Zones, find_logs, survey
from sparkjobs.local.ingest import ingest
from sparkjobs.report.write import digest_of
from tests.spark.simulate import Simulation

#: one of them in the fast tests
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8)))


def answers_of(folder: Path) -> Answers:
    return answers_for(ingest(survey(find_logs([str(folder)]), "simulated", Zones())).events)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bad", [False, True])
def test_at_trace_outages_tenures_and_losses_are_exactly_the_truth(tmp_path: Path, seed: int, bad: bool) -> None:
    simulation = Simulation(seed).run(faults=14)
    simulation.write(tmp_path, "TRACE", bad=bad)
    answers, truth = answers_of(tmp_path), simulation.truth
    found = [(f"{o.topic}-{o.partition}", o.start_ms, o.end_ms) for o in answers["partition_outages"]]  # type: ignore[attr-defined]
    assert len(found) >= 5
    assert sorted(found, key=str) == sorted(truth.outages, key=str)
    assert {o.evidence for o in answers["partition_outages"]} <= {"exact"}  # type: ignore[attr-defined]
    tenures = [(t.controller_epoch, t.broker, t.from_ms) for t in answers["controller_tenures"]]  # type: ignore[attr-defined]
    assert tenures == truth.tenures
    lost = sorted(answers["failovers"], key=lambda one: one.detected_ms)  # type: ignore[attr-defined]
    assert [one.broker for one in lost] == [broker for broker, _ in truth.losses]
    assert all(one.last_seen_ms <= at_ms < one.detected_ms for one, (_, at_ms) in zip(lost, truth.losses, strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_at_info_the_truth_lies_within_the_bounds(tmp_path: Path, seed: int) -> None:
    simulation = Simulation(seed).run(faults=14)
    simulation.write(tmp_path, "INFO", bad=True)
    found = sorted(answers_of(tmp_path)["partition_outages"], key=lambda o: (o.end_ms or 1 << 60, o.topic, o.partition))  # type: ignore[attr-defined]
    assert len(found) == len(simulation.truth.outages)
    within = 0
    for name, from_ms, to_ms in simulation.truth.outages:
        same = [o for o in found if f"{o.topic}-{o.partition}" == name and o.end_ms == to_ms]  # type: ignore[attr-defined]
        within += any(o.start_lo_ms <= from_ms <= o.start_hi_ms for o in same)  # type: ignore[attr-defined]
    assert within >= 0.99 * len(simulation.truth.outages)


def test_gold_is_the_same_however_the_logs_are_packed_copied_and_shuffled(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    Simulation(3).run(faults=10).write(good, "TRACE")
    again = Simulation(3).run(faults=10)
    again.write(bad, "TRACE", bad=True)

    def without_places(answers: Answers) -> dict[str, list[object]]:
        hidden = ("file_id", "line_no")
        return {
            name: sorted(
                repr([getattr(row, one) for one in row.__struct_fields__ if one not in hidden]) for row in rows
            )
            for name, rows in answers.items()
        }

    assert without_places(answers_of(good)) == without_places(answers_of(bad))
    assert digest_of(answers_of(good)) == digest_of(answers_of(good))
