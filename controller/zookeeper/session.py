"""A ZooKeeper session of our own, in place of aiozk's: it reconnects by itself and takes its watches along.

Owns the session's identity, its connection of the moment, the lists of armed watches and the deadline. It must
never send a request twice, queue one while there is no connection, or replace a lost session by a new one: only a
server's word or `close` makes a session LOST, and it stays lost.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
import time
from collections.abc import Callable, Sequence

import structlog
from aiozk import protocol  # type: ignore[import-untyped]

from controller.zookeeper.connection import (
    AUTH_XID,
    BODY_OFFSET,
    LENGTH,
    PING_XID,
    Connection,
    ProtocolError,
    Reply,
    open_streams,
    read_frame,
)
from controller.zookeeper.port import (
    EventKind,
    Guard,
    NotSentError,
    OutcomeUnknownError,
    SessionLostError,
    SessionState,
    TooLargeError,
    UnreachableError,
    WatchEvent,
)
from controller.zookeeper.watches import WatchLists

#: `jute.maxbuffer`: the server closes the connection upon a longer message
MAX_REQUEST_BYTES = 0xFFFFF
MAX_BACKOFF_S = 0.25
FIRST_BACKOFF_S = 0.02
STABLE_AFTER_S = 1.0  # a connection that ended sooner counts as an attempt that failed

log = structlog.get_logger()


class Session:
    """Its `_run` task is the owner of every connection; `close` ends and awaits it.

    `on_event`, `on_state` and `on_answer` are called synchronously from the event loop.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        *,
        timeout_ms: int,
        auth: str | None = None,
        resume: tuple[int, bytes] | None = None,
        max_in_flight_requests: int = 1000,
        tls: ssl.SSLContext | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tls = tls
        self._rng = random.Random() if rng is None else rng
        self._servers = self._rng.sample(servers, len(servers))
        self._clock = clock
        self._auth = auth
        self._max_in_flight_requests = max_in_flight_requests
        self.session_id, self.password = (0, bytes(16)) if resume is None else resume
        self.timeout_ms = timeout_ms
        self.state = SessionState.SUSPENDED
        self.watches = WatchLists()
        self.on_event: Callable[[WatchEvent], None] = lambda _event: None
        self.on_state: Callable[[SessionState], None] = lambda _state: None
        self.on_answer: Callable[[float], None] = lambda _took_s: None
        self._connection: Connection | None = None
        self._answered_at = clock()
        self._zxid = 0  # the last one seen in an answer while CONNECTED: all watches are told up to it
        self._attempts = self._failures = 0  # failures since a connection was stable
        self._last_failure = "not tried yet"
        self._is_established = False  # was CONNECTED once
        self._is_closing = False
        self._end = ""
        self._settled = asyncio.Event()  # CONNECTED or LOST
        self.ended = asyncio.Event()
        self._close_turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def deadline(self) -> float:
        """One session time-out after the last request that was answered was sent."""
        return self._answered_at + self.timeout_ms / 1000

    async def start(self, connect_timeout_ms: int) -> None:
        """Reach a server and get the session, or raise and leave nothing behind."""
        self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await self._settled.wait()
        except BaseException as error:
            await self.close()
            if not isinstance(error, TimeoutError):
                raise
            names = ", ".join(f"{host}:{port}" for host, port in self._servers)
            why = f"no ZooKeeper session within {connect_timeout_ms} ms from {names} (last: {self._last_failure})"
            raise UnreachableError(why) from None
        if self.state is SessionState.LOST:
            raise SessionLostError(self._end)

    async def reconnect(self, reason: str) -> None:
        """Leave the present connection and wait for the next one, at most a session time-out."""
        if self._connection is not None and self.state is SessionState.CONNECTED:
            self._connection.abort(reason)
            self._set_state(SessionState.SUSPENDED, reason)
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                await self._settled.wait()
        except TimeoutError:
            raise NotSentError(f"no connection to ZooKeeper: {self._last_failure}") from None

    async def send(
        self,
        payload: bytes,
        *,
        guard: Guard | None = None,
        on_reply: Callable[[Reply], None] | None = None,
    ) -> asyncio.Future[Reply]:
        """Return when the bytes (operation and body) have left; the future is the reply. Never queued, never again."""
        if self.state is SessionState.LOST or self._is_closing:
            raise SessionLostError(self._end or "the session is being closed")
        if len(payload) + 4 > MAX_REQUEST_BYTES:
            raise TooLargeError(f"a request of {len(payload) + 4} bytes; ZooKeeper takes {MAX_REQUEST_BYTES}")
        if self.state is not SessionState.CONNECTED or self._connection is None:
            raise NotSentError("no connection to ZooKeeper")
        return await self._connection.send(payload, guard=guard, on_reply=on_reply)

    async def close(self) -> None:
        """End the session at the server, if it can be told in time, and everything here; idempotent."""
        async with self._close_turn:
            if self._task is None:
                return
            self._is_closing = True
            try:
                if self._is_established:
                    async with asyncio.timeout(self.timeout_ms / 3000):
                        await self._settled.wait()
                        if self.state is SessionState.CONNECTED and self._connection is not None:
                            await (await self._connection.send(protocol.CloseRequest().serialize()))
            except (TimeoutError, NotSentError, OutcomeUnknownError) as error:
                log.warning("session.left_open", session=f"{self.session_id:#x}", reason=repr(error))
            finally:
                task, self._task = self._task, None
                task.cancel()
                await asyncio.wait((task,))
            if not task.cancelled():
                task.result()  # a bug in there ends here

    async def _run(self) -> None:
        reason = "closed"
        try:
            while True:
                await self._serve(await self._reach())
        except SessionLostError as error:
            reason = str(error)
        except BaseException as error:
            reason = reason if isinstance(error, asyncio.CancelledError) else f"a bug: {error!r}"
            raise
        finally:
            self._end = reason
            self._connection = None
            self.ended.set()
            self._set_state(SessionState.LOST)

    async def _reach(self) -> Connection:
        """Returns a connection with this session on it, from the servers in turn, trying for as long as it takes."""
        count = len(self._servers)
        while True:
            rounds = min(self._failures // count, 10)
            if rounds and self._failures % count == 0:
                longest_s = min(FIRST_BACKOFF_S * 2**rounds, MAX_BACKOFF_S)
                await asyncio.sleep(self._rng.uniform(longest_s / 2, longest_s))
            host, port = self._servers[self._attempts % count]
            self._attempts += 1
            timeout_s = min(self.timeout_ms / 3000 / count * 2**rounds, self.timeout_ms / 2000)
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._shake_hands(host, port)
            except (OSError, EOFError, ProtocolError, struct.error) as error:
                self._failures += 1
                why = f"no handshake within {timeout_s:.2f} s" if isinstance(error, TimeoutError) else str(error)
                self._last_failure = f"{host}:{port}: {why}"
                log.debug("connection.failed", server=f"{host}:{port}", reason=why)

    async def _shake_hands(self, host: str, port: int) -> Connection:
        reader, writer = await open_streams(host, port, self._tls)
        try:
            message = protocol.ConnectRequest(protocol_version=0, last_seen_zxid=self._zxid, read_only=False)
            message.timeout, message.session_id, message.password = self.timeout_ms, self.session_id, self.password
            request = message.serialize()
            sent_at = self._clock()
            writer.write(LENGTH.pack(len(request)) + request)
            answer = protocol.ConnectResponse.deserialize(await read_frame(reader))
        except BaseException:
            writer.transport.abort()
            raise
        if answer.session_id == 0 or answer.timeout <= 0:
            writer.transport.abort()
            raise SessionLostError(f"session {self.session_id:#x} has expired")
        self.session_id, self.password, self.timeout_ms = answer.session_id, answer.password, answer.timeout
        self._answered_at = sent_at
        return Connection(
            reader,
            writer,
            clock=self._clock,
            max_in_flight_requests=self._max_in_flight_requests,
            on_answer=self._on_answer,
            on_notification=self._on_notification,
        )

    async def _serve(self, connection: Connection) -> None:
        """Until the connection ends."""
        began_at, self._connection = self._clock(), connection
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self._keep_alive(connection)), group.create_task(self._take_up(connection))]
            reason = await connection.read()
            self._failures = 0 if self._clock() - began_at > STABLE_AFTER_S else self._failures + 1
            self._last_failure = reason
            if not self._is_closing:
                self._set_state(SessionState.SUSPENDED, reason)
            for helper in helpers:
                helper.cancel()
        if self._end:
            raise SessionLostError(self._end)

    async def _take_up(self, connection: Connection) -> None:
        """Send the session's identity and arm the watches again, before any request; then the session is CONNECTED."""
        try:
            if self._auth is not None:
                scheme, _, secret = self._auth.partition(":")
                packet = protocol.AuthRequest(type=0, scheme=scheme, auth=secret.encode()).serialize()
                if (await connection.send_special(AUTH_XID, packet)).code != 0:
                    self._end = f"ZooKeeper refused the {scheme} credentials"
                    connection.abort(self._end)
                    return
            for piece in self.watches.requests(self._zxid):
                code = (await (await connection.send(piece))).code
                if code != 0:
                    connection.abort(f"SetWatches was refused: {code}")
                    return
        except (NotSentError, OutcomeUnknownError):
            return  # `read` says why
        self._is_established = True
        self._set_state(SessionState.CONNECTED)

    async def _keep_alive(self, connection: Connection) -> None:
        """Ping when nothing was sent for a sixth of the time-out; give up after two thirds without an answer."""
        ping = protocol.PingRequest().serialize()
        period_s = self.timeout_ms / 24000
        woke_at = self._clock()
        while True:
            now, before = self._clock(), woke_at
            woke_at = now
            oldest = connection.oldest_unanswered_at
            # If this process stood still, answers may be waiting to be read: judge next time.
            if oldest is not None and now - oldest >= 16 * period_s and now - before < 3 * period_s:
                connection.abort(f"no answer for {now - oldest:.2f} s")
                return
            if now - connection.last_sent_at >= 4 * period_s:
                connection.send_special(PING_XID, ping)
            await asyncio.sleep(period_s)

    def _on_answer(self, sent_at: float, zxid: int) -> None:
        self._answered_at = max(self._answered_at, sent_at)
        self.on_answer(self._clock() - sent_at)
        if self.state is SessionState.CONNECTED:  # before, not every watch is armed: a break would lose changes
            self._zxid = max(self._zxid, zxid)

    def _on_notification(self, frame: bytes) -> None:
        event = protocol.WatchEvent.parse(frame, BODY_OFFSET)[0]
        if event.type in (kind.value for kind in EventKind):
            told = WatchEvent(EventKind(event.type), event.path)
            self.watches.on_event(told)
            self.on_event(told)

    def _set_state(self, state: SessionState, reason: str = "") -> None:
        if state is self.state:
            return
        self.state = state
        if state is SessionState.SUSPENDED:
            self._settled.clear()
        else:
            self._settled.set()
        log.info("session.changed", session=f"{self.session_id:#x}", state=state.value, reason=reason or self._end)
        self.on_state(state)
