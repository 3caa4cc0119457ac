"""One who listens to a stream: begun once, written to, dropped when it does not read. It knows nothing of events."""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import web

from controller.wire import CONTROLLER_EPOCH

log = structlog.get_logger()


class SubscriberGoneError(Exception):
    """Who listened has left, or does not read."""


class Subscriber:
    """One request for a stream, and its answer."""

    def __init__(self, request: web.Request, write_timeout_ms: int) -> None:
        self.request = request
        self.response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        self._write_timeout_ms = write_timeout_ms

    async def begin(self, controller_epoch: int) -> None:
        """From now on there is no refusal any more. Once is enough."""
        if not self.response.prepared:
            self.response.headers[CONTROLLER_EPOCH] = str(controller_epoch)
            await self.response.prepare(self.request)

    async def write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._write_timeout_ms / 1_000):
                await self.response.write(data)
        except ConnectionResetError as error:
            raise SubscriberGoneError from error
        except TimeoutError as error:
            log.warning("subscriber.dropped", waited_ms=self._write_timeout_ms)
            raise SubscriberGoneError from error

    def abort(self) -> None:
        """Without waiting for what could not be written."""
        if self.request.transport is not None:
            self.request.transport.abort()
