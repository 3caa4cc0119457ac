"""Records in simulated clusters: the clients' answers are Kafka's, and a run has something to judge."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from tests.faults.checker.history import History
from tests.faults.checker.records import Kept, batches_in, is_at
from tests.faults.checker.verdict import report
from tests.faults.simulate.batch import Producer, batch_of
from tests.faults.simulate.run import Outcome, run
from tests.records.support import START, read_by_kio

SEEDS = range(12)


@cache
def outcome_of(seed: int) -> Outcome:
    return run(str(seed), records=True)


def histories() -> list[History]:
    return [outcome_of(seed).history for seed in SEEDS]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_batch_of_a_simulated_producer_is_read_by_another_codec(count: int) -> None:
    (batch,) = read_by_kio(batch_of("alpha-0 i7 12", count, START, Producer(7, 40)))
    assert [record.value for record in batch.records] == [b"alpha-0 i7 12;", *[b";"] * (count - 1)]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 0, 40)
    (once,) = read_by_kio(batch_of("alpha-0 o 12", count, START, Producer()))
    assert (once.producer_id, once.producer_epoch, once.base_sequence) == (-1, -1, -1)


def test_a_torn_or_damaged_batch_is_in_no_log() -> None:
    first, second = (batch_of(name, 2, START, Producer()) for name in ("alpha-0 o 1", "alpha-0 o 12"))
    log = first + second
    assert list(batches_in(log)) == [Kept(0, 2, -1, "alpha-0 o 1"), Kept(0, 2, -1, "alpha-0 o 12")]
    assert is_at(log, "alpha-0 o 1", 0)
    assert is_at(log, "alpha-0 o 12", 0)
    assert not is_at(log, "alpha-0 o 12", 2)
    assert not is_at(log, "alpha-0 o", 0)
    for size in range(len(first), len(log)):
        assert [one.name for one in batches_in(log[:size])] == ["alpha-0 o 1"]
        assert not is_at(log[:size], "alpha-0 o 12", 0)
    for place in Random(1).sample(range(len(first) + 12, len(log)), 20):
        damaged = bytearray(log)
        damaged[place] ^= 0x55
        assert not is_at(bytes(damaged), "alpha-0 o 12", 0) or place < len(first) + 17  # leader epoch, and format


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_with_records_breaks_no_rule(seed: int) -> None:
    outcome = outcome_of(seed)
    assert outcome.findings == [], "\n".join(report(outcome.history, outcome.findings))


def test_the_same_seed_is_the_same_run_with_records() -> None:
    again = run("3", records=True)
    assert (again.trace, again.history.records) == (outcome_of(3).trace, outcome_of(3).history.records)


def test_schedules_with_records_test_something() -> None:
    """Without load, and without deaths that take something, nothing is proved."""
    known = [one.records for one in histories() if one.records is not None]
    assert len(known) == len(SEEDS)
    relied = [one for each in known for one in each.relied]
    assert sum(one.how == "acknowledged" for one in relied) > 10 * len(SEEDS)
    assert sum(one.how == "read" for one in relied) > 10 * len(SEEDS)
    assert {one.acks for each in known for one in each.sent} == {-1, 0, 1}
    assert all(each.copies for each in known)
    assert sum(len(one.batches) for each in known for one in each.copies) > 30 * len(SEEDS)
    assert sum(len(each.damages) for each in known) > len(SEEDS) / 4
    lines = [one for each in histories() for one in each.lines if one["kind"] == "truncation"]
    assert len(lines) > 1  # logs have parted
    faults = [one.kind for each in histories() for one in each.faults]
    assert {"lose power", "kill"} <= set(faults)
    assert faults.count("lose power") < faults.count("kill")


def test_a_share_of_the_schedules_has_records() -> None:
    shares = [run(str(seed)).history.records is not None for seed in SEEDS]
    assert len(SEEDS) / 6 < sum(shares) < len(SEEDS)
