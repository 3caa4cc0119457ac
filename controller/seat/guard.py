"""The guard of a term: the process's own clock says whether it may still act.

It compares, latches and tells; it never extends a term, never closes a session and never asks ZooKeeper.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from controller.zookeeper.port import DeadlinePassedError


class TermGuard:
    """Built at the start of a term from the session's `deadline`; asked before every byte of the term leaves.

    The timer behind `tripped` is only for an idle term: after a freeze runnable tasks run before overdue timers,
    so `check` compares the clock itself.
    """

    def __init__(
        self,
        deadline: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._deadline = deadline
        self._clock = clock
        self._sleep = sleep
        self._reason: str | None = None
        self._latched = asyncio.Event()

    @property
    def reason(self) -> str | None:
        """Why the term is over; None while it is not."""
        return self._reason

    def check(self) -> None:
        """Raise DeadlinePassedError if the time is over or was ever found to be."""
        late_s = self._clock() - self._deadline()
        if self._reason is None and late_s >= 0:
            self.trip(f"no answer from ZooKeeper for a session time-out ({late_s:.3f} s too late)")
        if self._reason is not None:
            raise DeadlinePassedError(self._reason)

    def trip(self, reason: str) -> None:
        """End the time now. The first reason stays."""
        if self._reason is None:
            self._reason = reason
            self._latched.set()

    async def tripped(self) -> str:
        """Return why, once the time is over."""
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._watch_clock())
            await self._latched.wait()
            timer.cancel()
        return self._reason or ""

    async def _watch_clock(self) -> None:
        while (left_s := self._deadline() - self._clock()) > 0:  # it moves with every answer
            await self._sleep(left_s)
        self.trip("no answer from ZooKeeper for a session time-out")
