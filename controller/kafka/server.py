"""Listens in Kafka's protocol: connections, frames and headers. What is asked is answered by an `Api`.

It knows no API by name but ApiVersions, whose header is special. One request of a connection is answered before the
next is read. What makes no sense ends its connection and nothing else; so does an API or version that is not served,
as Kafka itself does it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
import structlog

from controller.config import Limits
from controller.dialects.kafka_codec import Reader, WireError, Writer

log = structlog.get_logger()

API_VERSIONS: Final = 18
UNSUPPORTED_VERSION: Final = 35
_LENGTH = struct.Struct(">i")

#: version, the request's fields, where the answer's go
Handler = Callable[[int, Reader, Writer], Awaitable[None]]
#: a whole frame, and the whole answer to it
Passer = Callable[[bytes], Awaitable[bytes]]


class Api(msgspec.Struct, frozen=True):
    """One API: the versions served, since which it is compact, and who answers; without a handler it is passed on."""

    first: int
    last: int
    flexible_since: int
    handler: Handler | None = None


class Head(msgspec.Struct, frozen=True):
    """Of a request."""

    key: int
    version: int
    correlation_id: int


class KafkaServer:
    """`start`, then `close`. `apis` says which are served now: those that are passed on come and go with brokers."""

    def __init__(self, apis: Callable[[], Awaitable[Mapping[int, Api]]], pass_on: Passer, limits: Limits) -> None:
        self._apis = apis
        self._pass_on = pass_on
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """The port it listens on."""
        self._server = await asyncio.start_server(self._on_connection, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._limits.kafka_connections:
            writer.close()
            return
        self._connections.add(task)
        try:
            while (frame := await self._frame(reader)) is not None:
                answer = await self._answer(frame)
                writer.write(_LENGTH.pack(len(answer)) + answer)
                await writer.drain()
        except (WireError, struct.error) as error:
            log.warning("connection.refused", reason=str(error), peer=str(writer.get_extra_info("peername")))
        except (OSError, EOFError):
            pass  # it is gone, and nobody waits for an answer
        except asyncio.CancelledError:
            pass  # we close: the task is ours, and awaited by nobody who would want to know
        finally:
            self._connections.discard(task)
            writer.close()

    async def _frame(self, reader: asyncio.StreamReader) -> bytes | None:
        """The next request; None at the end of the connection."""
        length = await reader.read(1)
        if not length:
            return None
        size = _LENGTH.unpack(length + await reader.readexactly(3))[0]
        if not 8 <= size <= self._limits.rpc_body_max_bytes:
            raise WireError(f"a request of {size} bytes")
        return await reader.readexactly(size)

    async def _answer(self, frame: bytes) -> bytes:
        head = Head(*struct.unpack_from(">hhi", frame))
        apis = await self._apis()
        api = apis.get(head.key)
        if head.key == API_VERSIONS:
            return _api_versions(head, apis)
        if api is None or not api.first <= head.version <= api.last:
            raise WireError(f"API {head.key} in version {head.version} is not served")
        if api.handler is None:
            return await self._pass_on(frame)
        is_flexible = head.version >= api.flexible_since
        client = Reader(frame, 8, flexible=False)
        client.nullable_string()  # the client's id: never compact
        reader = Reader(frame, client.at, flexible=is_flexible)
        reader.tags()
        writer = Writer(flexible=is_flexible).i32(head.correlation_id).tags()
        await api.handler(head.version, reader, writer)
        return writer.message()


def _api_versions(head: Head, apis: Mapping[int, Api]) -> bytes:
    """What is served; also to who asks in a version that is not, as Kafka answers it: in version 0."""
    own = apis[API_VERSIONS]
    is_known = own.first <= head.version <= own.last
    version = head.version if is_known else 0
    writer = Writer(flexible=version >= own.flexible_since)
    # its header has no tags in any version: who asks cannot know yet what is spoken here
    writer.i32(head.correlation_id).i16(0 if is_known else UNSUPPORTED_VERSION)
    writer.array(sorted(apis.items()), lambda one: writer.i16(one[0]).i16(one[1].first).i16(one[1].last).tags())
    if version >= 1:
        writer.i32(0)
    return writer.tags().message()
