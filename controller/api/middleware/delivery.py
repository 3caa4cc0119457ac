"""How a reader's answer leaves: in pieces, each in a turn of its own and only when the one before was taken.

So nobody who reads slowly makes this process hold more than a piece and its buffer, and a hundred who read fast leave
room between two pieces for what is more important. Who takes too long is cut off. What is small, and what brokers and
administrators are answered, leaves at once. It stands before everything else, and knows nothing of what is sent.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.middleware.access import CALLER, Access, access_for
from controller.api.middleware.origin import route_of
from controller.api.middleware.quota import PLACE, caller_of
from controller.api.turns import FOR_ALL, Turns

#: a body of so much costs less than its turn would
SMALL_BYTES: Final = 1_024

log = structlog.get_logger()


def delivery_for(turns: Turns) -> Middleware:
    """The outermost middleware: what it hands on has left."""

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
    """Who asked for a body, and has no right to more than reading by that."""
    return request.method != "HEAD" and access_for(request.method, route_of(request)) in (Access.READ, Access.OPEN)
