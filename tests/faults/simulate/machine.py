"""The faults of one machine, drawn from a run's seed for each period, so that the schedule of a seed stays the same.
Its wall clock jumps every few seconds. Now and then its disk refuses to delete.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Final

PERIOD_MS: Final = 2_500
WALL_CLOCKS_OFF_MS: Final = (0, 0, -86_400_000, -5_000, 5_000, 3_600_000)
DISK_KEEPS_SHARE: Final = 0.25


def wall_clock_off_ms(seed: str, broker_id: int, now_ms: int) -> int:
    """By how much it is wrong."""
    return WALL_CLOCKS_OFF_MS[
        int(_drawn(f"{seed} wall clock {broker_id}", now_ms // PERIOD_MS) * len(WALL_CLOCKS_OFF_MS))
    ]


def disk_keeps(seed: str, broker_id: int, now_ms: int) -> bool:
    """Whether a broker refuses to delete."""
    return _drawn(f"{seed} disk {broker_id}", now_ms // PERIOD_MS) < DISK_KEEPS_SHARE


@lru_cache(4_096)
def _drawn(what: str, period: int) -> float:
    return Random(f"{what} {period}").random()
