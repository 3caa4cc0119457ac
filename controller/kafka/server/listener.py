"""Listens in Kafka's protocol: connections, frames and headers. An `Api` answers each request.

It knows no API by name but ApiVersions, whose header is special. One request of a connection is answered before the
next is read. A malformed request ends its connection and nothing else; so does an API or version that is not served, as
Kafka itself does it. On a listener with a login, no other request is served before the login.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec
import structlog

from controller.base.bell import Bell
from controller.base.config import Limits
from controller.base.connection_slots import ConnectionSlot, ConnectionSlots, NoSlotError
from controller.base.tasks import end_accepting
from controller.core.acls import Caller
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.kafka.server.callers import caller_of

log = structlog.get_logger()

API_VERSIONS: Final = 18
#: the APIs that are answered here, and only read: versions, groups, reassignments, transactions; by a broker with
#: records also Fetch, ListOffsets, Metadata, FindCoordinator, OffsetForLeaderEpoch, DescribeConfigs and DescribeCluster
_READING: Final = frozenset({API_VERSIONS, 16, 46, 66, 1, 2, 3, 10, 23, 32, 60})
UNSUPPORTED_VERSION: Final = 35
PIECE_BYTES: Final = 64 * 1024
_LENGTH = struct.Struct(">i")

#: version, the request's fields, where the answer's go
Handler = Callable[[int, Reader, Writer], Awaitable[None]]
#: a whole frame, and the whole answer to it
Passer = Callable[[bytes], Awaitable[bytes]]
#: room for so many bytes more
Take = Callable[[int], Awaitable[None]]


class Api(msgspec.Struct, frozen=True):
    """One API: the versions served, since which it is compact, and its handler; without a handler it is passed on."""

    first: int
    last: int
    flexible_since: int
    handler: Handler | None = None


class NoAnswerWanted(Exception):  # noqa: N818 - it is none
    """Raised by a handler: the client does not read an answer (Produce with `acks=0`)."""


class Head(msgspec.Struct, frozen=True):
    """Of a request."""

    key: int
    version: int
    correlation_id: int


class Login(Protocol):
    """The login of one connection: before it is done, only its own requests are served."""

    is_done: bool
    has_failed: bool
    user: str | None

    def table(self) -> Mapping[int, Api]:
        """Returns the requests of the login."""


class Gate(Protocol):
    """Where brokers have ACLs: what each caller may ask."""

    def within(self, apis: Mapping[int, Api]) -> Mapping[int, Api]:
        """Returns those that it can judge."""

    async def answer(self, caller: Caller, frame: bytes, serve: Passer) -> bytes:
        """Returns the answer to a request as far as the caller may ask it. `serve` answers what is allowed."""


class KafkaServer:
    """`start` for each listener, then `close`. `own` is answered here. `foreign` returns the APIs that every broker
    serves, and may have to wait for them. `pass_on` raises WireError for an API that none of them serves. Without a
    `gate` every caller may ask everything."""

    def __init__(
        self,
        own: Mapping[int, Api],
        foreign: Callable[[], Awaitable[Mapping[int, Api]]],
        pass_on: Passer,
        limits: Limits,
        gate: Gate | None = None,
    ) -> None:
        self._gate = gate
        self._own = own
        self._foreign = foreign
        self._pass_on = pass_on
        self._limits = limits
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._places = ConnectionSlots(limits.kafka_connections, limits.kafka_connections_per_peer)
        self._room = RequestMemory(limits.kafka_in_flight_bytes)
        self._refusals = Refusals(limits.kafka_refusal_ms)

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._connections)

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, login: Callable[[], Login] | None = None
    ) -> int:
        """Returns the port it listens on."""

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._on_connection(reader, writer, None if login is None else login())

        patience_s = None if tls is None else self._limits.head_timeout_ms / 1000
        server = await asyncio.start_server(on_connection, host, port, ssl=tls, ssl_handshake_timeout=patience_s)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        for server in self._servers:
            await end_accepting(server)
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login: Login | None
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = writer.get_extra_info("peername") or ("nowhere", 0)
        host = str(peer[0])
        try:
            place = self._places.open(host, writer.transport.abort)
        except NoSlotError:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            if login is None or await self._log_in(reader, writer, login, place):
                while await self._serve_one(reader, writer, login, place):
                    pass
            writer.close()
        except (WireError, struct.error) as error:
            log.warning("connection.refused", reason=str(error), peer=str(peer))
        except TimeoutError:
            log.info("connection.given_up", reason="it waited in vain, or neither reads nor writes on", peer=str(peer))
        except (OSError, EOFError):
            pass  # the client is gone, and waits for no answer
        except asyncio.CancelledError:
            pass  # the server closes: the task is its own, and no caller awaits its result
        finally:
            self._connections.discard(task)
            place.leave()
            if not writer.is_closing():
                writer.transport.abort()

    async def _log_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login: Login, place: ConnectionSlot
    ) -> bool:
        """Whether the client has logged in. One deadline for all of it: a stranger holds a place no longer than
        that."""
        async with asyncio.timeout(self._limits.kafka_login_ms / 1000):
            while not login.is_done:
                if not await self._serve_one(reader, writer, login, place):
                    return False
        return True

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login: Login | None, place: ConnectionSlot
    ) -> bool:
        """One request. Whether there may be another."""
        limits = self._limits
        is_stranger = login is not None and not login.is_done
        async with asyncio.timeout(limits.kafka_idle_ms / 1000):
            begun = await reader.read(1)
        if not begun:
            return False
        place.hear()
        with self._room.share() as take:
            async with asyncio.timeout(limits.body_timeout_ms / 1000):
                size = _LENGTH.unpack(begun + await reader.readexactly(3))[0]
                if not 8 <= size <= (limits.kafka_login_max_bytes if is_stranger else limits.rpc_body_max_bytes):
                    raise WireError(f"a request of {size} bytes")
                frame = await _read(reader, size, None if is_stranger else take)
            place.work(is_reading=not self._is_ours(frame))
            try:
                answer = await self._answer(frame, login, writer)
            except NoAnswerWanted:
                place.rest()
                return True
            if login is not None and login.has_failed:
                await self._refusals.wait(str((writer.get_extra_info("peername") or ("nowhere",))[0]))
        writer.write(_LENGTH.pack(len(answer)) + answer)
        async with asyncio.timeout(limits.stall_ms / 1000):
            await writer.drain()
        place.rest()
        return login is None or not login.has_failed

    def _is_ours(self, frame: bytes) -> bool:
        """Whether it is a broker's request to its controller, or a change. Any client may send a request that is passed
        on."""
        (key,) = struct.unpack_from(">h", frame)
        return key in self._own and key not in _READING

    async def _answer(self, frame: bytes, login: Login | None, writer: asyncio.StreamWriter) -> bytes:
        head = Head(*struct.unpack_from(">hhi", frame))
        logs_in = {} if login is None else login.table()
        if head.key == API_VERSIONS:
            served: Mapping[int, Api] = {**await self._foreign(), **self._own}
            return _api_versions(head, {**(served if self._gate is None else self._gate.within(served)), **logs_in})
        if head.key in logs_in:
            return await _handled(logs_in[head.key], head, frame)
        if login is not None and not login.is_done:
            raise WireError(f"API {head.key} before a login")
        if self._gate is None:
            return await self._serve(frame)
        return await self._gate.answer(caller_of(writer, None if login is None else login.user), frame, self._serve)

    async def _serve(self, frame: bytes) -> bytes:
        """Returns the answer to a request that is allowed."""
        head = Head(*struct.unpack_from(">hhi", frame))
        if (api := self._own.get(head.key)) is None:
            return await self._pass_on(frame)
        return await _handled(api, head, frame)


async def _handled(api: Api, head: Head, frame: bytes) -> bytes:
    if api.handler is None or not api.first <= head.version <= api.last:
        raise WireError(f"API {head.key} in version {head.version} is not served")
    is_flexible = head.version >= api.flexible_since
    client = Reader(frame, 8, flexible=False)
    client.nullable_string()  # the client's id: never compact
    reader = Reader(frame, client.at, flexible=is_flexible)
    reader.tags()
    writer = Writer(flexible=is_flexible).i32(head.correlation_id).tags()
    await api.handler(head.version, reader, writer)
    return writer.message()


class Refusals:
    """Refused clients of one peer get their answers one after the other, with a pause between: so many guesses a
    second, over any number of connections."""

    def __init__(self, pause_ms: int) -> None:
        self._pause_s = pause_ms / 1000
        self._last: dict[str, float] = {}  # of a peer that waits: when the last of its refusals is due

    async def wait(self, peer: str) -> None:
        now = asyncio.get_running_loop().time()
        due = self._last[peer] = max(now, self._last.get(peer, now)) + self._pause_s
        try:
            await asyncio.sleep(due - now)
        finally:
            if self._last.get(peer) == due:  # no later client waits
                del self._last[peer]


class RequestMemory:
    """Room for the bytes of all requests that are being read or answered. A request without room waits."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self._freed = Bell()

    @contextmanager
    def share(self) -> Iterator[Take]:
        """One request's: it grows by `take`, and is given back whole."""
        held = 0

        async def take(size: int) -> None:
            nonlocal held
            while self._left < size:
                await self._freed.wait()
            self._left -= size
            held += size

        try:
            yield take
        finally:
            self._left += held
            self._freed.ring()


async def _read(reader: asyncio.StreamReader, size: int, take: Take | None) -> bytes:
    """Returns a frame. Room is taken for the bytes that have arrived, not for those announced, and none for a
    stranger's."""
    pieces = []
    while size:
        piece = await reader.read(min(size, PIECE_BYTES))
        if not piece:
            raise EOFError
        if take is not None:
            await take(len(piece))
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _api_versions(head: Head, apis: Mapping[int, Api]) -> bytes:
    """Returns the APIs served. A client with an unknown version gets them too, as in Kafka: in version 0."""
    own = apis[API_VERSIONS]
    is_known = own.first <= head.version <= own.last
    version = head.version if is_known else 0
    writer = Writer(flexible=version >= own.flexible_since)
    # its header has no tags in any version, because the client cannot know the versions yet
    writer.i32(head.correlation_id).i16(0 if is_known else UNSUPPORTED_VERSION)
    writer.array(sorted(apis.items()), lambda one: writer.i16(one[0]).i16(one[1].first).i16(one[1].last).tags())
    if version >= 1:
        writer.i32(0)
    return writer.tags().message()
