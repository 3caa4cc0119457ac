"""How much of this process one caller may have: changes per second, and costly questions at the same time.

What is over it is answered 429 at once, with Kafka's name for it, and changes nothing. It knows who asks from the gate.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.access import CALLER, Access, access_for
from controller.api.problems import ProblemError
from controller.api.security import route_of
from controller.config import Limits

THROTTLED: Final = "THROTTLING_QUOTA_EXCEEDED"
#: these walk over every partition, or decide
_COSTLY: Final = {"/metrics", "/v1/matrix", "/v1/what-if", "/v1/partitions", "/v1/partitions/{topic}/{partition}/story"}
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


class Quotas:
    """Of all callers of this process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buckets: dict[str, Bucket] = {}
        self._costly = 0

    def check_change(self, caller: str, now: float) -> None:
        if caller not in self._buckets:
            if len(self._buckets) >= CALLERS_MAX:
                self._buckets = {name: one for name, one in self._buckets.items() if not one.is_full(now)}
            if len(self._buckets) >= CALLERS_MAX:
                raise _throttled("too many callers at once")
            self._buckets[caller] = Bucket(self._limits.changes_per_s, self._limits.changes_at_once, now)
        if not self._buckets[caller].takes(now):
            raise _throttled(f"more than {self._limits.changes_per_s} changes a second; nothing was changed")

    def middleware(self) -> Middleware:
        @web.middleware
        async def quota(request: web.Request, handler: Handler) -> web.StreamResponse:
            path = route_of(request)
            if access_for(request.method, path) is Access.ADMIN:
                now = asyncio.get_running_loop().time()
                self.check_change(f"{request[CALLER]} {request.remote}", now)
            if path not in _COSTLY:
                return await handler(request)
            if self._costly >= self._limits.costly_in_flight:
                raise _throttled(f"{self._costly} costly questions are being answered; ask again")
            self._costly += 1
            try:
                return await handler(request)
            finally:
                self._costly -= 1

        return quota


def _throttled(detail: str) -> ProblemError:
    return ProblemError(429, THROTTLED, detail, headers={"Retry-After": "1"})
