"""The wall clock, for times that people and other machines read: lines, znodes, answers. It may jump at any moment.

All code that needs the time of day asks here, so that the lab can make it jump. It must never measure a
duration: that is for the monotonic clock, which no fault moves.
"""

from __future__ import annotations

import time

_jumped_ms = 0


def wall_ms() -> int:
    """Milliseconds since 1970, as this process believes."""
    return time.time_ns() // 1_000_000 + _jumped_ms


def monotonic_ms() -> int:
    """Milliseconds of the clock that durations are measured by; its zero means nothing, nor does it to others."""
    return time.monotonic_ns() // 1_000_000


def wall_ms_at(clock_ms: int) -> int:
    """Returns the time of day at a moment of the monotonic clock, as this process believes now: for people."""
    return wall_ms() + clock_ms - monotonic_ms()


def jump(by_ms: int) -> None:
    """From now on the clock is so much ahead of the machine's, or behind; a fault of the lab's."""
    global _jumped_ms  # noqa: PLW0603 - a process has one wall clock
    _jumped_ms = by_ms
