"""A clock that only the test moves. Nothing in here sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class FakeClock:
    """`clock()` for monotonic seconds, `clock.sleep` for `asyncio.sleep`, `clock.advance(s)` for the test."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self._now_s = now_s
        self._sleepers: list[tuple[float, asyncio.Event]] = []
        self._listeners: list[Callable[[], None]] = []

    def __call__(self) -> float:
        return self._now_s

    def on_advance(self, listener: Callable[[], None]) -> None:
        """Be told after every move."""
        self._listeners.append(listener)

    def advance(self, seconds: float) -> None:
        """Move on and wake the due sleepers; they run when the test next awaits."""
        self._now_s += seconds
        for listener in self._listeners:
            listener()
        for due_s, wake in self._sleepers:
            if due_s <= self._now_s:
                wake.set()

    async def sleep(self, seconds: float) -> None:
        sleeper = (self._now_s + seconds, asyncio.Event())
        self._sleepers.append(sleeper)
        try:
            if seconds > 0:
                await sleeper[1].wait()
        finally:
            self._sleepers.remove(sleeper)
