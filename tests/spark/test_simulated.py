"""Answers about simulated clusters against their known truth, in every wording, layout and state of decay."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sparkjobs.commands.inputs import inputs_of
from sparkjobs.engine.local.conclude import concluded_by
from sparkjobs.report.write import digest_of
from sparkjobs.rules.rules import Answers
from tests.spark.bundles import write
from tests.spark.dialect_ours import Ours, OursWithMoves
from tests.spark.dialects import Kafka28, Kafka39
from tests.spark.dialects_old import Kafka010, Kafka08, Kafka11
from tests.spark.plain import answers_for
from tests.spark.reading import Silver, silver_of
from tests.spark.simulate import Simulation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIALECTS = {
    "0.8": Kafka08,
    "0.10": Kafka010,
    "1.1": Kafka11,
    "2.8": Kafka28,
    "3.9": Kafka39,
    "ours": Ours,
    "ours, with moves": OursWithMoves,
}
STOCK = "[%d] %p %m (%c)"
LAYOUTS = (STOCK, "%d %-5p [%t] %c - %m", "%d | %-5p | [%t] | %m | %c (%F:%L)", "[%d] (%c) [%t] %p - %m")
WRAPPERS = (None, "docker", "json")
#: one of them in the fast tests
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8)))


class Case(NamedTuple):
    """One simulated cluster and the answers from its logs."""

    simulation: Simulation
    silver: Silver
    answers: Answers

    def rows(self, table: str) -> list[Any]:
        return list(self.answers[table])

    @property
    def shift_ms(self) -> int:
        """Answers are in the time of the reference's clock; that it is off, no log can tell."""
        reference = next((row.broker for row in self.silver.skew if row.method == "reference"), 0)
        return self.simulation.skew_ms.get(reference, 0)

    @property
    def err_ms(self) -> int:
        """How wrong a corrected time may be, as the answers say."""
        return max((row.err_ms or 0) + 1 for row in self.silver.skew)

    @property
    def outages(self) -> list[tuple[str, int, int | None]]:
        ends = [None if one.end_ms is None else one.end_ms - self.shift_ms for one in self.rows("partition_outages")]
        named = [(f"{o.topic}-{o.partition}", o.start_ms - self.shift_ms) for o in self.rows("partition_outages")]
        return sorted(((*one, end_ms) for one, end_ms in zip(named, ends, strict=True)), key=str)

    def within_bounds(self) -> int:
        """How many true outages are told with that end, and a start whose bounds hold the true one."""
        return sum(
            any(
                f"{o.topic}-{o.partition}" == name
                and self._is_near(o.end_ms, to_ms)
                and o.start_lo_ms <= from_ms + self.shift_ms <= o.start_hi_ms
                for o in self.rows("partition_outages")
            )
            for name, from_ms, to_ms in self.simulation.truth.outages
        )

    def _is_near(self, told_ms: int | None, true_ms: int | None) -> bool:
        if told_ms is None or true_ms is None:
            return told_ms is true_ms
        return abs(told_ms - self.shift_ms - true_ms) <= self.err_ms


def a_case(folder: Path, simulation: Simulation, level: str, **how: Any) -> Case:
    write(simulation, folder, level, **how)
    silver = silver_of(inputs_of([str(folder)], "simulated", [], None))
    return Case(simulation, silver, answers_for(silver.ingested.events))


def skew_for(seed: int) -> dict[int, int]:
    """Up to five minutes, either way."""
    chance = random.Random(seed)
    return {broker: chance.randrange(-300_000, 300_001) for broker in range(1, 5)}


def assert_all_but_starts(case: Case) -> None:
    """Tenures and losses as they were; every true outage told once."""
    truth, shift_ms = case.simulation.truth, case.shift_ms
    tenures = [(t.controller_epoch, t.broker) for t in case.rows("controller_tenures")]
    assert tenures == [(epoch, broker) for epoch, broker, _ in truth.tenures]
    for tenure, (_, _, from_ms) in zip(case.rows("controller_tenures"), truth.tenures, strict=True):
        assert abs(tenure.from_ms - shift_ms - from_ms) < case.err_ms
    lost = sorted(case.rows("failovers"), key=lambda one: one.detected_ms)
    assert [one.broker for one in lost] == [broker for broker, _ in truth.losses]
    for one, (_, at_ms) in zip(lost, truth.losses, strict=True):
        assert one.last_seen_ms - shift_ms - case.err_ms <= at_ms < one.detected_ms - shift_ms + case.err_ms
    assert len(case.rows("partition_outages")) == len(truth.outages) >= 5


def assert_failovers_are_exact(case: Case) -> None:
    """To the millisecond: when each was detected, the partitions that moved, the brokers that acknowledged, and the
    last."""
    truth = case.simulation.truth
    assert sum(len(one.elected_ms) for one in truth.failovers) > 0
    for told, true in zip(
        sorted(case.rows("failovers"), key=lambda one: one.detected_ms), truth.failovers, strict=True
    ):
        assert (told.broker, told.detected_ms, told.controller_epoch) == (true.broker, true.detected_ms, true.epoch)
        assert told.moved == len(true.elected_ms)
        moments = (min(true.elected_ms, default=None), max(true.elected_ms, default=None))
        assert (told.first_elected_ms, told.last_elected_ms) == moments
        slowest = max(true.done_ms, key=lambda broker: (true.done_ms[broker], -broker), default=None)
        assert (told.acked, told.slowest) == (tuple(sorted(true.done_ms)), slowest)
        assert told.expected == told.acked
        assert told.last_acked_ms == max(true.done_ms.values(), default=None)


def assert_tenures_end_within_bounds(case: Case) -> None:
    """The last of them does not."""
    for one in case.rows("controller_tenures"):
        died_ms = case.simulation.truth.ends.get(one.controller_epoch)
        assert (one.to_ms is None) == (died_ms is None)
        assert died_ms is None or one.to_lo_ms <= died_ms <= one.to_hi_ms


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("version", ["0.8", "0.10", "2.8", "3.9"])
def test_at_trace_outages_tenures_and_losses_are_exactly_the_truth(
    tmp_path: Path, version: str, seed: int, bad: bool
) -> None:
    case = a_case(tmp_path, Simulation(seed, dialect=DIALECTS[version]()).run(faults=14), "TRACE", bad=bad)
    assert case.outages == sorted(case.simulation.truth.outages, key=str)
    assert {one.evidence for one in case.rows("partition_outages")} == {"exact"}
    assert_all_but_starts(case)
    assert_failovers_are_exact(case)
    assert_tenures_end_within_bounds(case)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (4, 5, 7))])
@pytest.mark.parametrize(("version", "proof"), [("0.8", "said"), ("2.8", "derived"), ("3.9", "derived")])
def test_every_unclean_election_is_told_and_no_other(tmp_path: Path, version: str, proof: str, seed: int) -> None:
    simulation = Simulation(seed, dialect=DIALECTS[version](), is_unclean=True).run(faults=14)
    case = a_case(tmp_path, simulation, "TRACE", bad=True)
    told = [(f"{one.topic}-{one.partition}", one.at_ms, one.leader) for one in case.rows("unclean_elections")]
    assert sorted(told) == sorted(simulation.truth.unclean)
    assert {one.proof for one in case.rows("unclean_elections")} == {proof}
    assert case.outages == sorted(simulation.truth.outages, key=str)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", ["0.8", "0.10", "3.9"])
def test_at_trace_they_are_exact_whatever_the_clocks_show_if_ways_are_even(
    tmp_path: Path, version: str, seed: int
) -> None:
    """Where a message takes as long to a broker as its answer back, the offset of the clocks is known to the
    millisecond; and then so is all else."""
    even = Simulation(seed, dialect=DIALECTS[version](), skew_ms=skew_for(seed), way_ms=(10, 11))
    simulation = even.run(faults=14)
    case = a_case(tmp_path, simulation, "TRACE", bad=True)
    assert case.outages == sorted(simulation.truth.outages, key=str)
    assert_all_but_starts(case)


@pytest.mark.parametrize("seed", SEEDS)
def test_at_trace_they_are_exact_to_the_stated_error_of_the_clocks(tmp_path: Path, seed: int) -> None:
    simulation = Simulation(seed, skew_ms=skew_for(seed)).run(faults=14)
    case = a_case(tmp_path, simulation, "TRACE", bad=True)
    assert {row.method for row in case.silver.skew} == {"reference", "round_trips"}
    assert case.err_ms <= 25  # a message takes that long
    assert case.within_bounds() == len(simulation.truth.outages)
    assert_all_but_starts(case)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", ["1.1", "ours"])
def test_where_no_line_says_when_a_takeover_found_it_the_truth_lies_within_the_bounds(
    tmp_path: Path, version: str, seed: int
) -> None:
    case = a_case(tmp_path, Simulation(seed, dialect=DIALECTS[version]()).run(faults=14), "TRACE", bad=True)
    assert case.within_bounds() == len(case.simulation.truth.outages)
    told = [o for o in case.rows("partition_outages") if o.evidence == "exact"]
    assert {(f"{o.topic}-{o.partition}", o.start_ms, o.end_ms) for o in told} <= set(case.simulation.truth.outages)
    assert_all_but_starts(case)
    assert_failovers_are_exact(case)
    assert_tenures_end_within_bounds(case)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_no_layout_and_no_wrapper_hides_anything(tmp_path: Path, layout: str, wrapper: str | None) -> None:
    simulation = Simulation(2, partitions=8).run(faults=8)
    case = a_case(tmp_path, simulation, "TRACE", bad=True, layout=layout, wrapper=wrapper)
    assert case.outages == sorted(simulation.truth.outages, key=str)
    assert_all_but_starts(case)


@pytest.mark.parametrize("version", ["2.8", "3.9", "ours"])
def test_at_info_the_truth_lies_within_the_bounds_whatever_the_clocks_show(tmp_path: Path, version: str) -> None:
    """Over some clusters; `test_many_...` has more of them."""
    cases = [_at_info(tmp_path / str(seed), version, seed) for seed in range(3)]
    assert sum(within for within, _ in cases) == sum(count for _, count in cases) >= 50


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["2.8", "3.9", "ours"])
def test_many_at_info_lie_within_the_bounds(tmp_path: Path, version: str) -> None:
    cases = [_at_info(tmp_path / str(seed), version, seed) for seed in range(60)]
    within, count = sum(within for within, _ in cases), sum(count for _, count in cases)
    assert count > 1_000
    assert within >= 0.99 * count


def _at_info(folder: Path, version: str, seed: int) -> tuple[int, int]:
    simulation = Simulation(seed, skew_ms=skew_for(seed), dialect=DIALECTS[version]()).run(faults=14)
    case = a_case(folder, simulation, "INFO", bad=True)
    assert {row.method for row in case.silver.skew} == {"reference", "one_way"}
    assert_all_but_starts(case)
    return case.within_bounds(), len(simulation.truth.outages)


def without_places(answers: Answers) -> dict[str, list[str]]:
    hidden = ("file_id", "line_no")
    return {
        name: sorted(repr([getattr(row, one) for one in row.__struct_fields__ if one not in hidden]) for row in rows)
        for name, rows in answers.items()
    }


def test_gold_is_the_same_however_the_logs_are_packed_copied_and_shuffled(tmp_path: Path) -> None:
    good = a_case(tmp_path / "good", Simulation(3).run(faults=10), "TRACE").answers
    bad = a_case(tmp_path / "bad", Simulation(3).run(faults=10), "TRACE", bad=True).answers
    assert without_places(good) == without_places(bad)
    again = silver_of(inputs_of([str(tmp_path / "good")], "simulated", [], None))
    assert digest_of(good) == digest_of(answers_for(again.ingested.events))


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("level", ["TRACE", "INFO"])
def test_spark_finds_the_same_truth_behind_wrong_clocks(spark: SparkSession, tmp_path: Path, level: str) -> None:
    from sparkjobs.engine.spark.executor import SparkExecutor

    simulation = Simulation(1, partitions=6, skew_ms=skew_for(1), quiet_ms=(12_000, 60_000)).run(faults=4)
    case = a_case(tmp_path / "logs", simulation, level, bad=True)
    files = inputs_of([str(tmp_path / "logs")], "simulated", [], None).files
    done = concluded_by(SparkExecutor(spark, tmp_path), files)
    assert done.skew == case.silver.skew
    for name, rows in case.answers.items():
        assert done.answers[name] == rows, name
