"""The output of a soak's producer is judged: how much came through, how long nothing did, and that none was refused."""

from __future__ import annotations

import pytest

from tests.real_brokers.judge import RATE, SILENCE_MAX_S, Produced

MINUTE_MS = 60_000


def steady(from_ms: int = 0, to_ms: int = MINUTE_MS) -> list[int]:
    return list(range(from_ms, to_ms, 1_000 // RATE))


def test_a_producer_that_was_served_all_the_time_is_no_trouble() -> None:
    assert Produced(0, MINUTE_MS, steady(), 0).faults() == []


@pytest.mark.parametrize(
    ("produced", "said"),
    [
        (Produced(0, MINUTE_MS, steady(), 1), "1 records were refused"),
        (Produced(0, MINUTE_MS, steady()[::2], 0), "only 3000 records were acknowledged, and not 4800"),
        (Produced(0, 10 * MINUTE_MS, steady(to_ms=9 * MINUTE_MS), 0), "nothing was acknowledged for 60 s"),
        (Produced(0, 10 * MINUTE_MS, steady(MINUTE_MS, 10 * MINUTE_MS), 0), "nothing was acknowledged for 60 s"),
        (Produced(0, MINUTE_MS, [], 0), "nothing was acknowledged for 60 s"),
    ],
    ids=["refused", "too few", "silent at the end", "silent at the beginning", "nothing"],
)
def test_a_producer_that_was_not_is_trouble(produced: Produced, said: str) -> None:
    assert any(one.startswith(said) for one in produced.faults()), produced.faults()


def test_an_acknowledgement_after_the_end_breaks_no_silence() -> None:
    late = [*steady(0, 10_000), *range(MINUTE_MS, 2 * MINUTE_MS, 10)]
    assert Produced(0, MINUTE_MS, late, 0).silence_s > SILENCE_MAX_S
