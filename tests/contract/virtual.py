"""Real sockets in virtual time: bytes under way on loopback arrive first, then the clock goes to the next timer.

For the session's own timers, so that a test's times are exact, and true on a machine that has much to do.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

#: bytes between both ends of a connection on loopback have arrived when none did for so long, in real time
QUIET_S = 0.005


class _Arrivals(selectors.DefaultSelector):
    """The sockets with arrived bytes; if there are none, time has passed instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            return super().select(None)
        if timeout <= 0:
            return super().select(0)
        if arrived := super().select(QUIET_S):
            return arrived
        self.now_s += timeout
        return []


class SocketLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual seconds."""

    def __init__(self) -> None:
        self._arrivals = _Arrivals()
        super().__init__(self._arrivals)

    def time(self) -> float:
        return self._arrivals.now_s


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs on such a loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=SocketLoop) as runner:
            runner.run(test(*arguments, **named))

    return run
