"""The connections of a server: how many are open, in all and of one peer, and how long each may keep us waiting.

A head that does not end is answered 408, and a client that does not read its answer is cut off. Where there are as many
connections as there may be, one that waits or reads gives way to a new one. Where all work for brokers and for clients
that change something, the new one gets 503 or 429. A malformed request gets the same kind of problem as all other
refusals. This module knows no path.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from controller.api.problems import ProblemError, problem_for, response_for
from controller.base.config import LIMITS, Limits
from controller.base.connection_slots import ConnectionSlot, ConnectionSlots, NoSlotError
from controller.base.tasks import end_accepting


class Connections:
    """All that are open here."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.places = ConnectionSlots(limits.connections, limits.connections_per_peer)

    def open(self, peer: str, give_way: Callable[[], None]) -> ConnectionSlot | ProblemError:
        """A place, or why it is one too many."""
        retry = {"Retry-After": "1"}
        try:
            return self.places.open(peer, give_way)
        except NoSlotError as full:
            if full.is_of_peer:
                return ProblemError(429, "TOO_MANY_CONNECTIONS", "close some of your connections first", headers=retry)
            return ProblemError(503, "TOO_MANY_CONNECTIONS", "no more connections are taken now", headers=retry)


def let_in(request: web.BaseRequest, *, is_reading: bool) -> None:
    """The caller is known: its connection does not give way as one does that has sent nothing."""
    if isinstance(request.protocol, Connection):
        request.protocol.work(is_reading=is_reading)


class BoundedListener(web.TCPSite):
    """A listener whose connections are bounded."""

    def __init__(
        self, runner: web.AppRunner, connections: Connections, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(runner, host, port, ssl_context=tls)
        self._connections = connections

    async def start(self) -> None:
        await web.BaseSite.start(self)
        loop, server = asyncio.get_running_loop(), self._runner.server
        assert server is not None

        def on_accepted() -> asyncio.BaseProtocol:
            tls = self._ssl_context
            connection = Connection(server, self._connections, loop)
            return connection if tls is None else Handshake(self._connections, loop, connection, tls)

        self._server = await loop.create_server(on_accepted, self._host, self._port, backlog=self._backlog)

    async def stop(self) -> None:
        if isinstance(self._server, asyncio.Server):
            await end_accepting(self._server)
        await super().stop()


class Handshake(SSLProtocol):
    """TLS before a connection, which exists only when the handshake is over: until then it is bounded here.

    One connection too many ends without an answer: an answer would need the handshake, which is the expensive part.
    """

    def __init__(
        self,
        connections: Connections,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        context: ssl.SSLContext,
    ) -> None:
        patience_s = connections.limits.head_timeout_ms / 1_000
        super().__init__(
            loop,
            connection,
            context,
            None,  # type: ignore[arg-type]  # no task waits for it
            server_side=True,
            ssl_handshake_timeout=patience_s,  # type: ignore[arg-type]  # asyncio says itself that it is a float
            ssl_shutdown_timeout=patience_s,
        )
        self._connections = connections
        self._connection = connection
        self._place: ConnectionSlot | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        place = self._connections.open(_peer_of(transport), transport.abort)
        if isinstance(place, ProblemError):
            transport.abort()
            return
        self._place = self._connection.place = place
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._place is not None:
            self._place.leave()
        super().connection_lost(exc)


class Connection(web.RequestHandler):
    """One of them; behind TLS its handshake has taken its place. aiohttp does the talking."""

    def __init__(self, server: web.Server, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        limits = connections.limits
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # as AppRunner takes it
            keepalive_timeout=limits.keep_alive_ms / 1_000,
            max_headers=limits.headers,
            auto_decompress=False,  # a kilobyte could become a gigabyte before anybody looks at it
            lingering_time=limits.head_timeout_ms / 1_000,
        )
        self._connections = connections
        self.place: ConnectionSlot | None = None
        self._is_begun = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._has_heard = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self.place is None:
            place = self._connections.open(_peer_of(transport), self._give_way)
            if isinstance(place, ProblemError):
                transport.write(_bytes_of(place))
                transport.close()
                return
            self.place = place
        self._is_begun = True
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self._is_begun:
            return
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        if self.place is not None:
            self.place.leave()
        self._is_begun = False
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.place is None or not self._is_begun:
            return
        self._has_heard = True
        self.place.hear()
        super().data_received(data)
        if not self._is_idle:
            self._forget_head()
        elif self._head_timer is None:
            self._expect_head()

    def work(self, *, is_reading: bool) -> None:
        """For a request, until it is answered."""
        if self.place is not None:
            self.place.work(is_reading=is_reading)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            if self.place is not None:
                self.place.rest()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self._loop.call_later(self._connections.limits.stall_ms / 1_000, self._on_stall)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if status >= 500:
            super().handle_error(request, status, exc, message)  # for its log; the answer says nothing of the inside
            error = ProblemError(status, "UNKNOWN_SERVER_ERROR", "a bug was met here; the log of this broker has it")
        elif isinstance(exc, LineTooLong) or (isinstance(exc, BadHttpMessage) and "headers" in exc.message.lower()):
            error = ProblemError(431, "HEADERS_TOO_LARGE", "the request line or the headers are too large")
        else:
            error = ProblemError(status, "INVALID_REQUEST", "this is not HTTP as it should be")
        response = response_for(error)
        response.force_close()
        return response

    @property
    def _is_idle(self) -> bool:
        """Whether it waits for a head, or for the rest of one."""
        return self._waiter is not None and not self._waiter.done()

    def _expect_head(self) -> None:
        self._head_timer = self._loop.call_later(self._connections.limits.head_timeout_ms / 1_000, self._on_slow_head)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_slow_head(self) -> None:
        self._head_timer = None
        transport: Any = self.transport
        if not self._is_idle or transport is None:
            return
        if self._has_heard:
            transport.write(_bytes_of(ProblemError(408, "REQUEST_TIMED_OUT", "the head of the request took too long")))
        self.force_close()

    def _give_way(self) -> None:
        """To a new connection."""
        if self.transport is not None:
            self.transport.abort()

    def _on_stall(self) -> None:
        """The client does not take its answer."""
        if self.transport is not None:
            self.transport.abort()


def _peer_of(transport: asyncio.BaseTransport) -> str:
    address = transport.get_extra_info("peername")
    return address[0] if isinstance(address, tuple) else ""


def _bytes_of(error: ProblemError) -> bytes:
    """Returns the whole answer, where there is no request to answer to."""
    body = msgspec.json.encode(problem_for(error))
    headers = {
        **error.headers,
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {error.status} {error.code}\r\n{head}\r\n".encode() + body
