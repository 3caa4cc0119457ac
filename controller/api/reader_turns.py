"""How readers give way to everything else in the event loop: turns, and costly answers that are made once for all.

A round of the loop has one turn for readers at most, and a turn walks over a bounded number of partitions or writes a
bounded number of bytes. So pings to ZooKeeper, RPCs and decisions wait for one turn, and never for a page, a scrape or
a hundred of them. Callers take turns with each other; while the controller works there is a pause after each turn.
Turns are counted, no time is measured.

A costly answer is shared (`TimedAnswer`, `Answers`). A question is asked with the version of its subject. A caller that
asks while it is being answered shares the answer if that was begun with the present version, or after the question
came; otherwise it waits, and shares the next answer. `Answers` does this for large answers as bytes. An answer that is
older than a second when it leaves says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from aiohttp import hdrs, web

from controller.api.ports import ClusterView, ControllerHandle
from controller.base.config import LIMITS, Limits
from controller.statelog.metrics import IDLE

#: answers made for several callers belong to none of them
FOR_ALL: Final = ""


def is_working(handle: ControllerHandle) -> bool:
    """Returns whether the controller of this process loads or has something to decide."""
    if handle.phase == "loading":
        return True
    term = handle.term
    return term is not None and handle.is_active and (handle.meters.controller_state != IDLE or term.inbox_depth > 0)


class ReaderTurns:
    """Of one process."""

    def __init__(self, is_working: Callable[[], bool] = lambda: False, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self._is_working = is_working
        #: the waiting turns, by caller; the first caller has the next turn
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
        """Grants a waiting turn. It runs in the next round, and so does the next grant at the earliest."""
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
        """Takes the first turn of the next caller, which then stands behind all others. Turns that were given up are
        passed over."""
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


_T = TypeVar("_T")


class TimedAnswer(NamedTuple, Generic[_T]):
    """An answer, and since when it is one."""

    value: _T
    age_s: float


class _Flight(Generic[_T]):
    """One answer, being made or made."""

    def __init__(self, number: int, version: object, task: asyncio.Task[_T], began_at: float) -> None:
        self.number = number
        self.version = version
        self.task = task
        self.began_at = began_at
        self.size = 0
        self.forgetting: asyncio.TimerHandle | None = None

    @property
    def has_failed(self) -> bool:
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)


class SharedAnswers(Generic[_T]):
    """Answers by question. `size` says the cost of keeping one; so much of all is kept for `kept_s` after it was made,
    or, without that, until another version is asked for."""

    def __init__(
        self, kept_s: float | None = None, sizes_max: int | None = None, size: Callable[[_T], int] = lambda _: 1
    ) -> None:
        self._kept_s = kept_s
        self._sizes_max = sizes_max
        self._size = size
        self._flights: dict[Hashable, _Flight[_T]] = {}
        self._number = 0
        self._kept = 0

    async def ask(self, question: Hashable, version: Callable[[], object], make: Callable[[], Awaitable[_T]]) -> _T:
        """As `shown`, without its age."""
        return (await self.shown(question, version, make)).value

    async def shown(
        self, question: Hashable, version: Callable[[], object], make: Callable[[], Awaitable[_T]]
    ) -> TimedAnswer[_T]:
        """Returns the answer of now or, while the version keeps changing, one that was begun after this was asked."""
        asked_at = self._number
        while True:
            flight = self._flights.get(question)
            if flight is None or flight.has_failed:
                flight = self._begin(question, version(), make)
            elif flight.number <= asked_at and flight.version != version():
                if flight.task.done():
                    flight = self._begin(question, version(), make)
                else:
                    await asyncio.wait([flight.task])
                    continue
            value = await asyncio.shield(flight.task)
            return TimedAnswer(value, asyncio.get_running_loop().time() - flight.began_at)

    def close(self) -> None:
        """Ends the questions under way: no caller asks any more."""
        for flight in self._flights.values():
            flight.task.cancel()

    def _begin(self, question: Hashable, version: object, make: Callable[[], Awaitable[_T]]) -> _Flight[_T]:
        if (before := self._flights.get(question)) is not None:
            self._forget(question, before)
        loop = asyncio.get_running_loop()
        self._number += 1

        async def made() -> _T:
            return await make()

        task = loop.create_task(made(), name="an answer for all who ask")
        flight = self._flights[question] = _Flight(self._number, version, task, loop.time())
        task.add_done_callback(lambda _: self._keep(question, flight))
        return flight

    def _keep(self, question: Hashable, flight: _Flight[_T]) -> None:
        """For a moment, and never so much that keeping costs more than making it again."""
        if flight.has_failed or self._flights.get(question) is not flight:
            self._forget(question, flight)
            return
        flight.size = self._size(flight.task.result())
        self._kept += flight.size
        if self._sizes_max is not None and self._kept > self._sizes_max:
            self._forget(question, flight)
        elif self._kept_s is not None:
            loop = asyncio.get_running_loop()
            flight.forgetting = loop.call_later(self._kept_s, self._forget, question, flight)

    def _forget(self, question: Hashable, flight: _Flight[_T]) -> None:
        if flight.forgetting is not None:
            flight.forgetting.cancel()
        self._kept -= flight.size
        flight.size = 0
        if self._flights.get(question) is flight:
            del self._flights[question]


JSON: Final = "application/json"


class Answers:
    """Of one process."""

    def __init__(self, view: ClusterView, limits: Limits) -> None:
        self._view = view
        self._shared: SharedAnswers[bytes] = SharedAnswers(
            limits.answer_kept_ms / 1_000, limits.answers_kept_bytes, len
        )

    async def told(
        self, question: Hashable, make: Callable[[], Awaitable[bytes]], content_type: str = JSON
    ) -> web.Response:
        """Returns an answer from the metadata of this process."""
        return await self.answer(question, lambda: self._view.metadata_version, make, content_type)

    async def answer(
        self,
        question: Hashable,
        version: Callable[[], object],
        make: Callable[[], Awaitable[bytes]],
        content_type: str = JSON,
    ) -> web.Response:
        shown = await self._shared.shown(question, version, make)
        headers = {hdrs.CONTENT_TYPE: content_type}
        if shown.age_s >= 1:
            headers[hdrs.AGE] = str(int(shown.age_s))
        return web.Response(body=shown.value, headers=headers)

    def close(self) -> None:
        self._shared.close()
