"""Many reads at once: pieces in flight, bounded by count and by bytes, answered in order, the event loop fed between.

Arms no watch and keeps nothing. The caller owns the look of a request and the parsing of an answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from controller.zookeeper.connection import Reply
from controller.zookeeper.port import refusal_for

MULTI_READ_PATHS: Final = 1000
FIRST_MULTI_READ_PATHS: Final = 100  # as long as nothing is known of the sizes
MULTI_READ_BYTES: Final = 8 * 1024 * 1024  # the server does not limit its answers
MULTI_READS_IN_FLIGHT: Final = 3
READS_IN_FLIGHT: Final = 100

_UNIMPLEMENTED = -6

T = TypeVar("T")
Send = Callable[[bytes], Awaitable[asyncio.Future[Reply]]]


class MultiReadMissingError(Exception):
    """The server is older than 3.6. It closes the connection after saying so."""


async def multi_read(
    send: Send,
    paths: Sequence[str],
    request_for: Callable[[Sequence[str]], bytes],
    parse: Callable[[Reply, Sequence[str]], list[T]],
) -> list[T]:
    """By operation 22. The first piece goes alone, to learn how big answers are."""
    found: list[T] = []
    window: deque[tuple[Sequence[str], asyncio.Future[Reply]]] = deque()
    at, piece_paths, in_flight = 0, FIRST_MULTI_READ_PATHS, 1
    try:
        while window or at < len(paths):
            while at < len(paths) and len(window) < in_flight:
                piece = paths[at : at + piece_paths]
                at += len(piece)
                window.append((piece, await send(request_for(piece))))
            piece, answer = window.popleft()
            reply = await answer
            if reply.code == _UNIMPLEMENTED:
                raise MultiReadMissingError
            if reply.code != 0:
                raise refusal_for(piece[0], reply.code)
            found += parse(reply, piece)
            piece_paths = min(max(MULTI_READ_BYTES * len(piece) // len(reply.frame), 1), MULTI_READ_PATHS)
            in_flight = MULTI_READS_IN_FLIGHT
            await asyncio.sleep(0)
    finally:
        for _, answer in window:
            answer.cancel()
    return found


async def single_reads(
    send: Send,
    paths: Sequence[str],
    request_for: Callable[[str], bytes],
    parse: Callable[[Reply, str], T],
) -> list[T]:
    """One request for each path, pipelined."""
    found: list[T] = []
    window: deque[asyncio.Future[Reply]] = deque()
    try:
        for path in paths:
            if len(window) == READS_IN_FLIGHT:
                found.append(parse(await window.popleft(), paths[len(found)]))
            window.append(await send(request_for(path)))
        while window:
            found.append(parse(await window.popleft(), paths[len(found)]))
    finally:
        for answer in window:
            answer.cancel()
    return found
