"""One TCP connection to a ZooKeeper server after its handshake: frames, requests in order, silence, its end.

It dies once and never comes back; sessions, watches and reconnecting are `session.py`'s. It never sends a
request twice, never queues one beyond its end, and never leaves a request without an answer or an error.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from controller.zookeeper.port import Guard, NotSentError, OutcomeUnknownError
from controller.zookeeper.tls_stream import TlsStream

LENGTH: Final = struct.Struct("!i")
_REPLY = struct.Struct("!iqi")  # xid, zxid, code
_REQUEST = struct.Struct("!ii")  # length, xid
#: where the body of a reply starts in its frame
BODY_OFFSET: Final = _REPLY.size
READ_BUFFER_BYTES: Final = 1024 * 1024
MAX_REPLY_BYTES: Final = 256 * 1024 * 1024

NOTIFICATION_XID: Final = -1
PING_XID: Final = -2
AUTH_XID: Final = -4
_LAST_XID: Final = 0x7FFFFFFF
#: connection loss, session expired, session moved: said about a request, true of the connection
_CONNECTION_CODES = frozenset((-4, -112, -118))


async def open_streams(host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[Reading, Writing]:
    """A connection without a handshake of ZooKeeper's."""
    reader, writer = await asyncio.open_connection(host, port, limit=READ_BUFFER_BYTES)
    if tls is None:
        return reader, writer
    try:
        stream = TlsStream(reader, writer, tls, host)
        await stream.shake_hands()
    except BaseException:
        writer.transport.abort()
        raise
    return stream, stream


class Reading(Protocol):
    """What is used of asyncio's StreamReader."""

    async def readexactly(self, n: int, /) -> bytes: ...


class Writing(Protocol):
    """What is used of asyncio's StreamWriter."""

    @property
    def transport(self) -> asyncio.WriteTransport: ...
    def write(self, data: bytes, /) -> None: ...
    def is_closing(self) -> bool: ...
    async def drain(self) -> None:
        """Returns when the kernel has taken all bytes, if the transport's limit is 0."""


class Reply(NamedTuple):
    """A server's answer: its body starts at BODY_OFFSET of the frame."""

    zxid: int
    code: int
    frame: bytes


class ProtocolError(Exception):
    """The peer does not keep ZooKeeper's protocol."""


class _Sent(NamedTuple):
    xid: int
    sent_at: float
    answer: asyncio.Future[Reply]
    on_reply: Callable[[Reply], None] | None


class Connection:
    """Requests go out one by one and are answered in that order; replies are matched by xid.

    `on_answer(sent_at, zxid)` and a request's own `on_reply` run before the next message is looked at, so that a
    watch is on its list before the event that follows its reply.
    """

    def __init__(
        self,
        reader: Reading,
        writer: Writing,
        *,
        clock: Callable[[], float],
        max_in_flight_requests: int,
        on_answer: Callable[[float, int], None],
        on_notification: Callable[[bytes], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        # A request is written only when all before it are with the kernel: a request that the guard allowed leaves now.
        writer.transport.set_write_buffer_limits(high=0)
        self._clock = clock
        self._on_answer = on_answer
        self._on_notification = on_notification
        self._slots = asyncio.Semaphore(max_in_flight_requests)
        self._turn = asyncio.Lock()
        self._pending: deque[_Sent] = deque()
        self._special: dict[int, _Sent] = {}  # by xid: these are answered out of order
        self._xid = 0
        self._end: str | None = None
        self.last_sent_at = clock()

    @property
    def oldest_unanswered_at(self) -> float | None:
        """When the oldest request without an answer was sent."""
        oldest = [sent.sent_at for sent in self._special.values()]
        if self._pending:
            oldest.append(self._pending[0].sent_at)
        return min(oldest, default=None)

    async def send(
        self,
        payload: bytes,
        *,
        guard: Guard | None = None,
        on_reply: Callable[[Reply], None] | None = None,
    ) -> asyncio.Future[Reply]:
        """Return once the bytes have left; await the future for the reply. In order of the calls."""
        await self._slots.acquire()
        try:
            async with self._turn:
                await self._drain()
                if guard is not None:
                    guard.check()
                self._xid = self._xid % _LAST_XID + 1
                sent = self._write(self._xid, payload, on_reply)
                self._pending.append(sent)
                return sent.answer
        except BaseException:
            self._slots.release()
            raise

    def send_special(self, xid: int, payload: bytes) -> asyncio.Future[Reply]:
        """A ping or an auth packet: outside the order and the bound. At most one of each is on its way."""
        if xid not in self._special:
            self._special[xid] = self._write(xid, payload, None)
        return self._special[xid].answer

    async def read(self) -> str:
        """Take in replies and notifications until the connection ends, then say why it did."""
        reason = "closed"
        try:
            while True:
                self._on_frame(await read_frame(self._reader))
        except asyncio.IncompleteReadError as end:
            reason = "end of file in the middle of a message" if end.partial else "end of file"
        except (OSError, ProtocolError, struct.error, UnicodeDecodeError) as error:
            reason = str(error)
        finally:
            self._fail(reason)
        return self._end or reason

    def abort(self, reason: str) -> None:
        """End it; `read` returns with this reason. Requests on their way have an unknown outcome."""
        if self._end is None:
            self._end = reason
        self._writer.transport.abort()

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise NotSentError(f"the connection broke before the request was sent: {error}") from error
        if self._end is not None or self._writer.is_closing():
            raise NotSentError("the connection ended before the request was sent")

    def _write(self, xid: int, payload: bytes, on_reply: Callable[[Reply], None] | None) -> _Sent:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        sent = _Sent(xid, self._clock(), answer, on_reply)
        self.last_sent_at = sent.sent_at
        self._writer.write(_REQUEST.pack(len(payload) + 4, xid) + payload)
        return sent

    def _on_frame(self, frame: bytes) -> None:
        if len(frame) < BODY_OFFSET:
            raise ProtocolError(f"a reply of {len(frame)} bytes has no header")
        xid, zxid, code = _REPLY.unpack_from(frame)
        if xid == NOTIFICATION_XID:
            self._on_notification(frame)
            return
        if code in _CONNECTION_CODES:
            raise ProtocolError(f"the server said {code}: the session moved or is gone")
        if xid in self._special:
            sent = self._special.pop(xid)
        elif self._pending and self._pending[0].xid == xid:
            sent = self._pending.popleft()
            self._slots.release()
        else:
            raise ProtocolError(f"a reply with xid {xid}, which is not the next one")
        reply = Reply(zxid, code, frame)
        self._on_answer(sent.sent_at, zxid)
        if sent.on_reply is not None:
            sent.on_reply(reply)
        if not sent.answer.done():  # its caller may have gone
            sent.answer.set_result(reply)

    def _fail(self, reason: str) -> None:
        self.abort(reason)
        for sent in (*self._pending, *self._special.values()):
            if not sent.answer.done():
                sent.answer.set_exception(OutcomeUnknownError(f"no answer: {self._end}"))
                sent.answer.exception()  # it counts as seen: no task awaits a ping
        for _ in self._pending:
            self._slots.release()  # a task that waits for a slot learns that the connection ended
        self._pending.clear()
        self._special.clear()


async def read_frame(reader: Reading) -> bytes:
    """One length-prefixed message."""
    (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if not 0 <= size <= MAX_REPLY_BYTES:
        raise ProtocolError(f"a message of {size} bytes")
    return await reader.readexactly(size)
