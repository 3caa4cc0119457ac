"""The table of a bench: targets, by how much they are missed, ratios, and waits in vain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.bench import acks
from tests.bench.acks import LEADER_AND_ISR, Acks, OverdueError
from tests.bench.contender import KAFKA, OURS, OURS_AS_KAFKA
from tests.bench.rows import BACK, DEATH, FAILOVER, FEW_REASSIGNED, LOAD, REASSIGNMENT
from tests.bench.table import LIMIT, cells_of, markdown_of, missed_by, target_of

VALUES = {
    FAILOVER: {OURS: [1.0, 1.2, 0.9], LIMIT: [0.25], OURS_AS_KAFKA: [2.0], KAFKA: [20.0]},
    BACK: {OURS: [0.1], KAFKA: [0.5]},
    DEATH: {OURS: [1.0], KAFKA: [8.0]},
    FEW_REASSIGNED: {OURS: [0.2]},
    REASSIGNMENT: {OURS: [0.6]},
    LOAD: {OURS: [0.25], OURS_AS_KAFKA: [0.3]},
}


def the_result(values: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    targets = {row: target_of(row, values, 100_000) for row in values}
    return {
        "topics": 1_000, "partitions_per_topic": 100, "brokers": 10, "rounds": 3, "day": "2026-01-01", "took_s": 60,
        "longest_hold_s": 0.1, "session_timeout_s": 18.0, "memory_bytes": 1 << 27, "values": values,
        "targets": {row: {"value": one[0], "why": one[1]} for row, one in targets.items() if one is not None},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "target"),
    [
        (FAILOVER, (0.75, "3 limits")),  # a tenth of Kafka's would be 2.0
        (BACK, (0.5, "Kafka")),
        (DEATH, (0.8, "Kafka / 10")),
        (REASSIGNMENT, (1.0, "5 times reassignment of 200")),
        (LOAD, (0.5, "200,000/s")),
        (FEW_REASSIGNED, None),
    ],
)
def test_a_row_has_the_hardest_of_its_targets(row: str, target: tuple[float, str] | None) -> None:
    assert target_of(row, VALUES, 100_000) == target


def test_a_missed_target_shows_by_how_many_times_and_a_kept_one_shows_nothing() -> None:
    result = the_result(VALUES)
    assert missed_by(result, FAILOVER) == pytest.approx(1.0 / 0.75)
    assert missed_by(result, DEATH) == pytest.approx(1.25)
    assert missed_by(result, BACK) == 0.0


def test_both_of_our_dialects_stand_beside_kafka_with_their_ratios() -> None:
    heads, rows = cells_of(the_result(VALUES))
    failover = dict(zip(heads, rows[0], strict=True))
    assert failover[KAFKA] == "20.000"
    assert failover[OURS] == "1.000 (0.90-1.20)"
    assert failover[f"{KAFKA} / {OURS}"] == "20.0"
    assert failover[f"{KAFKA} / {OURS_AS_KAFKA}"] == "10.0"


def test_without_kafka_there_are_no_columns_of_it() -> None:
    heads, rows = cells_of(the_result({row: {OURS: by[OURS]} for row, by in VALUES.items()}))
    assert KAFKA not in heads
    assert {len(row) for row in rows} == {len(heads)}


def test_the_markdown_has_every_row_once() -> None:
    text = markdown_of(the_result(VALUES))
    assert [text.count(f"\n| {row} |") for row in VALUES] == [1] * len(VALUES)


async def test_a_wait_in_vain_names_the_missing_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "DEADLINE_S", 0.3)
    monkeypatch.setattr(acks, "QUIET_S", 0.01)
    stream = asyncio.StreamReader()
    stream.feed_data(b"1e12 1 leader-and-isr 10\n")
    stream.feed_eof()
    told = Acks(stream)
    await told.follow()

    async def nothing() -> bool:
        return True

    wanted = {(1, LEADER_AND_ISR), (3, LEADER_AND_ISR)}
    with pytest.raises(OverdueError, match=r"kafka: failover: acknowledgements \[\(3, 'leader-and-isr'\)\]"):
        await told.row("kafka: failover", nothing, wanted, nothing, lambda: 0.0)
