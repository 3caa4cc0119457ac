"""How much of this process one caller may use: requests per second, costly questions and streams, and slow answers.

A request over its quota (changes and costly questions per second, costly questions and streams at the same time) is
answered 429 at once, with Kafka's name for it, and changes nothing. The gate says who the caller is. Probes and
brokers' requests have no quota, and wait for no reader.

A reader's large answer leaves in pieces, each in a turn of its own, and only when the one before was taken. So a slow
reader makes this process hold no more than a piece and its buffer, and a hundred fast readers leave room between two
pieces for more important work. A reader that takes too long is cut off. Small answers, and answers to brokers and
administrators, leave at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.middleware.access import CALLER, Access, access_for, route_of
from controller.api.problems import ProblemError
from controller.api.reader_turns import FOR_ALL, ReaderTurns
from controller.base.config import Limits

THROTTLED: Final = "THROTTLING_QUOTA_EXCEEDED"
#: these walk over partitions without number, or decide, or say much
COSTLY: Final = {
    "/metrics",
    "/v1/deletions",
    "/v1/matrix",
    "/v1/partitions",
    "/v1/partitions/{topic}/{partition}/log",
    "/v1/partitions/{topic}/{partition}/story",
    "/v1/reassignments",
    "/v1/topics",
    "/v1/topics/{topic}",
    "/v1/topics/{topic}/partitions",
    "/v1/what-if",
}
CALLERS_MAX: Final = 1_000


class Bucket:
    """So many at once, and so many more each second."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, now

    def takes(self, now: float) -> bool:
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def is_full(self, now: float) -> bool:
        return self._left + (now - self._at) * self._rate >= self._burst


class Buckets:
    """One for each caller, as long as it is not full."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self._burst = burst
        self._buckets: dict[str, Bucket] = {}

    def take(self, caller: str, now: float) -> bool:
        """Returns whether there is something left for this caller."""
        if caller not in self._buckets:
            if len(self._buckets) >= CALLERS_MAX:
                self._buckets = {name: one for name, one in self._buckets.items() if not one.is_full(now)}
            if len(self._buckets) >= CALLERS_MAX:
                raise throttled("too many callers at once")
            self._buckets[caller] = Bucket(self.rate, self._burst, now)
        return self._buckets[caller].takes(now)


class ConcurrencyLimit:
    """So many at the same time, of all callers and of one."""

    def __init__(self, in_all: int, of_one: int, what: str) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._what = what
        self._by_caller: Counter[str] = Counter()

    def enter(self, caller: str) -> ConcurrencySlot:
        """A place, or a refusal."""
        if self._by_caller.get(caller, 0) >= self._of_one:
            raise throttled(f"{self._of_one} {self._what} of yours are open; let one end first")
        if self._by_caller.total() >= self._in_all:
            raise throttled(f"{self._in_all} {self._what} are open here; ask again")
        self._by_caller[caller] += 1
        return ConcurrencySlot(self._by_caller, caller)


class ConcurrencySlot:
    """In a room, until it is left."""

    def __init__(self, by_caller: Counter[str], caller: str) -> None:
        self._by_caller = by_caller
        self._caller = caller

    def leave(self) -> None:
        self._by_caller[self._caller] -= 1
        if not self._by_caller[self._caller]:
            del self._by_caller[self._caller]


#: left when the answer has been read, or never will be
PLACE: Final = web.RequestKey("place", ConcurrencySlot)


class Quotas:
    """Of all callers of this process."""

    def __init__(self, limits: Limits, turns: ReaderTurns) -> None:
        self._turns = turns
        self._changes = Buckets(limits.changes_per_s, limits.changes_at_once)
        self._costly = Buckets(limits.costly_per_s, limits.costly_at_once)
        self._room = ConcurrencyLimit(limits.costly_in_flight, limits.costly_per_caller, "costly questions")

    def check_change(self, caller: str, now: float) -> None:
        if not self._changes.take(caller, now):
            raise throttled(f"more than {self._changes.rate} changes a second; nothing was changed")

    def check_costly(self, caller: str, now: float) -> None:
        if not self._costly.take(caller, now):
            raise throttled(f"more than {self._costly.rate} costly questions a second")

    def middleware(self) -> Middleware:
        @web.middleware
        async def quota(request: web.Request, handler: Handler) -> web.StreamResponse:
            path, now = route_of(request), asyncio.get_running_loop().time()
            match access_for(request.method, path):
                case Access.ADMIN:
                    self.check_change(caller_of(request), now)
                case Access.READ:
                    caller = caller_of(request)
                    await self._turns.next(caller)
                    if path in COSTLY:
                        self.check_costly(caller, now)
                        request[PLACE] = self._room.enter(caller)
            return await handler(request)

        return quota


def caller_of(request: web.Request) -> str:
    """Whose quota it is: a right, and where it comes from."""
    return f"{request[CALLER]} {request.remote}"


def throttled(detail: str) -> ProblemError:
    return ProblemError(429, THROTTLED, detail, headers={"Retry-After": "1"})


#: a body of so much costs less than its turn would
SMALL_BYTES: Final = 1_024

log = structlog.get_logger()


def delivery_for(turns: ReaderTurns) -> Middleware:
    """Returns the outermost middleware: after it, an answer has left."""

    @web.middleware
    async def delivery(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
            body = response.body if isinstance(response, web.Response) else None
            if isinstance(body, bytes) and len(body) > SMALL_BYTES and _is_for_a_reader(request):
                return await _delivered(request, response, body)
            return response
        finally:
            if PLACE in request:
                request[PLACE].leave()

    async def _delivered(request: web.Request, response: web.StreamResponse, body: bytes) -> web.StreamResponse:
        caller = caller_of(request) if CALLER in request else FOR_ALL
        whole, step = memoryview(body), turns.limits.bytes_per_turn
        stream = web.StreamResponse(status=response.status, headers=response.headers)
        stream.content_length = len(body)
        try:
            async with asyncio.timeout(turns.limits.answer_timeout_ms / 1_000):
                await turns.next(caller)
                await stream.prepare(request)
                for start in range(0, len(body), step):
                    if start:
                        await turns.next(caller)
                    await stream.write(whole[start : start + step])
                await stream.write_eof()
        except ConnectionError as error:
            log.debug("reader.left", peer=request.remote, path=request.path, reason=str(error))
        except TimeoutError:
            log.warning("reader.dropped", peer=request.remote, path=request.path, bytes=len(body))
            if request.transport is not None:
                request.transport.abort()
        return stream

    return delivery


def _is_for_a_reader(request: web.Request) -> bool:
    """Returns whether the caller asked for a body, and has by this request no right but to read."""
    return request.method != "HEAD" and access_for(request.method, route_of(request)) in (Access.READ, Access.OPEN)
