"""What is costly is made once for all who ask at the same time, and kept for a moment.

A question is asked with the version of what it is about. Who asks while it is being answered shares the answer, if that
was begun with the version of now or after the question came; otherwise it waits, and shares the next one with all who
wait. It knows nothing of what is asked. `Answers` does this for large answers as bytes; one that is older than a second
by the time it leaves says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from aiohttp import hdrs, web

from controller.api.ports import ClusterView
from controller.base.config import Limits

_T = TypeVar("_T")


class Shown(NamedTuple, Generic[_T]):
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


class Shared(Generic[_T]):
    """Answers by question. `size` says what keeping one costs; so much of all is kept for `kept_s` after it was made,
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
    ) -> Shown[_T]:
        """The answer of now or, while the version keeps changing, one that was begun after this was asked."""
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
            return Shown(value, asyncio.get_running_loop().time() - flight.began_at)

    def close(self) -> None:
        """Nobody asks any more."""
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
        self._shared: Shared[bytes] = Shared(limits.answer_kept_ms / 1_000, limits.answers_kept_bytes, len)

    async def told(
        self, question: Hashable, make: Callable[[], Awaitable[bytes]], content_type: str = JSON
    ) -> web.Response:
        """About what this process was told."""
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
