"""How much of this process one caller may have: changes and costly questions per second, costly questions and streams
at the same time.

What is over it is answered 429 at once, with Kafka's name for it, and changes nothing. It knows who asks from the gate.
Probes and what brokers ask have no quota, and wait for no reader.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.middleware.access import CALLER, Access, access_for
from controller.api.middleware.origin import route_of
from controller.api.problems import ProblemError
from controller.api.turns import Turns
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
        """Whether there is something left for this caller."""
        if caller not in self._buckets:
            if len(self._buckets) >= CALLERS_MAX:
                self._buckets = {name: one for name, one in self._buckets.items() if not one.is_full(now)}
            if len(self._buckets) >= CALLERS_MAX:
                raise throttled("too many callers at once")
            self._buckets[caller] = Bucket(self.rate, self._burst, now)
        return self._buckets[caller].takes(now)


class Room:
    """So many at the same time, of all callers and of one."""

    def __init__(self, in_all: int, of_one: int, what: str) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._what = what
        self._by_caller: Counter[str] = Counter()

    def enter(self, caller: str) -> Place:
        """A place, or a refusal."""
        if self._by_caller.get(caller, 0) >= self._of_one:
            raise throttled(f"{self._of_one} {self._what} of yours are open; let one end first")
        if self._by_caller.total() >= self._in_all:
            raise throttled(f"{self._in_all} {self._what} are open here; ask again")
        self._by_caller[caller] += 1
        return Place(self._by_caller, caller)


class Place:
    """In a room, until it is left."""

    def __init__(self, by_caller: Counter[str], caller: str) -> None:
        self._by_caller = by_caller
        self._caller = caller

    def leave(self) -> None:
        self._by_caller[self._caller] -= 1
        if not self._by_caller[self._caller]:
            del self._by_caller[self._caller]


#: left when the answer has been read, or never will be
PLACE: Final = web.RequestKey("place", Place)


class Quotas:
    """Of all callers of this process."""

    def __init__(self, limits: Limits, turns: Turns) -> None:
        self._turns = turns
        self._changes = Buckets(limits.changes_per_s, limits.changes_at_once)
        self._costly = Buckets(limits.costly_per_s, limits.costly_at_once)
        self._room = Room(limits.costly_in_flight, limits.costly_per_caller, "costly questions")

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
