"""Turns: how what is done for readers gives way to everything else in the event loop.

A round of the loop has one turn for readers at most, whoever asks and however many, and a turn walks so many
partitions or writes so many bytes and no more. So pings to ZooKeeper, RPCs and decisions wait for one turn, and never
for a page, a scrape or a hundred of them. Callers take turns with each other; while the controller works there is a
pause after each turn. It measures no time: what a turn may do is counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from controller.api.ports import ControllerHandle
from controller.base.config import LIMITS, Limits
from controller.statelog.metrics import IDLE

#: what is made once for all who ask is nobody's
FOR_ALL: Final = ""


def is_working(handle: ControllerHandle) -> bool:
    """Whether the controller of this process loads or has something to decide."""
    if handle.phase == "loading":
        return True
    term = handle.term
    return term is not None and handle.is_active and (handle.meters.controller_state != IDLE or term.inbox_depth > 0)


class Turns:
    """Of one process."""

    def __init__(self, is_working: Callable[[], bool] = lambda: False, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self._is_working = is_working
        #: who waits, by caller; the first caller has the next turn
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._granting: asyncio.Handle | None = None
        self._not_before = 0.0

    async def next(self, caller: str = FOR_ALL) -> None:
        """Returns when it is this caller's turn, which lasts until it awaits anything."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        if self._granting is None:
            is_due = loop.time() >= self._not_before
            self._granting = loop.call_soon(self._grant) if is_due else loop.call_at(self._not_before, self._grant)
        await turn

    def _grant(self) -> None:
        """To one who waits. It runs in the next round, and so does the next grant at the earliest."""
        loop = asyncio.get_running_loop()
        self._granting = None
        turn = self._taken()
        if turn is None:
            return
        turn.set_result(None)
        pause_s = self.limits.reader_pause_ms / 1_000 if self._is_working() else 0
        self._not_before = loop.time() + pause_s
        if self._waiting:
            self._granting = loop.call_later(pause_s, self._grant) if pause_s else loop.call_soon(self._grant)

    def _taken(self) -> asyncio.Future[None] | None:
        """The first of the next caller, who then stands behind all others; those that have left are passed over."""
        while self._waiting:
            caller = next(iter(self._waiting))
            line = self._waiting.pop(caller)
            while line:
                turn = line.popleft()
                if not turn.done():
                    if line:
                        self._waiting[caller] = line
                    return turn
        return None
