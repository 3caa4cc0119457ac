"""A proxy that follows HTTP/1.1, so that a single request or answer can be lost, doubled, or made nonsense.

Owns the faults that are armed, and where each of its connections stands in its messages. It must never hold back more
than a head, unless a request may be answered in its receiver's stead, or touch a connection whose messages it cannot
tell apart (TLS, an answer without a length).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from brokerstub.lab.proxy import Direction, Link, Proxy

HEAD_MAX_BYTES: Final = 64 * 1024
#: how long the second of two equal requests is listened to
AGAIN_TIMEOUT_S: Final = 5.0
_END_OF_HEAD = b"\r\n\r\n"
_FIRST_WORDS = (b"GET /", b"POST /", b"PUT /", b"PATCH /", b"DELETE /", b"HTTP/1.")

#: the bytes that can stand in place of an answer: by name, so that a schedule can draw one
GARBAGE: Final = {
    "error": b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "nonsense": b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\n\xff{"',
    "torn": b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 900\r\n\r\n{"error_code":',
    "no http": b"\0\1\2 what is this\r\n\r\n",
    "huge": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9000000\r\n\r\n" + b" " * 9_000_000,
}


class Head(NamedTuple):
    """The first line of a message, and how long the message is with its head."""

    first_line: str
    total_bytes: int

    @property
    def path(self) -> str:
        """Of a request."""
        return self.first_line.split(" ")[1] if self.first_line.count(" ") == 2 else ""


#: from here on one endless message that is no fault's business
FOREIGN: Final = Head("", sys.maxsize)


class HttpScanner:
    """Finds where messages begin in one direction of a connection. Pure."""

    def __init__(self) -> None:
        self._head = b""  # the beginning of one that is not complete yet
        self.left_bytes = 0

    def pieces(self, chunk: bytes) -> Iterator[tuple[Head | None, bytes]]:
        """The chunk, cut where messages begin; a message's first piece comes with its head."""
        chunk, self._head = self._head + chunk, b""
        at = 0
        while at < len(chunk):
            head = None
            if self.left_bytes == 0:
                head = _head_at(chunk, at)
                if head is None:
                    self._head = chunk[at:]
                    return
                self.left_bytes = head.total_bytes
            piece = chunk[at : at + self.left_bytes]
            self.left_bytes -= len(piece)
            at += len(piece)
            yield head, piece


def _head_at(chunk: bytes, at: int) -> Head | None:
    """None while it is not complete."""
    if not any(chunk.startswith(word[: len(chunk) - at], at) for word in _FIRST_WORDS):
        return FOREIGN
    end = chunk.find(_END_OF_HEAD, at)
    if end < 0:
        return None if len(chunk) - at <= HEAD_MAX_BYTES else FOREIGN
    first_line, *rest = chunk[at:end].decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    is_answer = first_line.startswith("HTTP/")
    length = fields.get("content-length", "" if is_answer or "transfer-encoding" in fields else "0")
    if "transfer-encoding" in fields or not length.isdecimal():
        return FOREIGN
    return Head(first_line, end - at + len(_END_OF_HEAD) + int(length))


@dataclass(eq=False)
class HttpFault:
    """Waits for the first request that fits, after `skip` others that do."""

    kind: Literal["lose_answer", "drop_request", "garble", "double"]
    path: str = ""  # the beginning of the request's path
    skip: int = 0
    garbage: bytes = b""
    after_s: float = 0.0
    happened: asyncio.Event = field(default_factory=asyncio.Event)


class Exchange(NamedTuple):
    """A request that is passed on, and its answer; empty while there is none."""

    path: str
    request: bytes
    answer: bytes
    #: when the last of the request was read here: it was sent then or before
    arrived_ms: int


#: the answer to a whole request in its receiver's stead; None: the request is passed on
Stead = Callable[[bytes], bytes | None]


@dataclass(eq=False)
class _Asked:
    path: str
    fault: HttpFault | None
    #: it is held back until all of it is here
    stead: Stead | None = None
    request: bytearray = field(default_factory=bytearray)
    arrived_ms: int = 0
    answer: bytearray = field(default_factory=bytearray)


class HttpLink(Link):
    """Follows the messages both ways and lets the armed faults happen to them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proxy: HttpProxy) -> None:
        super().__init__(reader, writer)
        self._proxy = proxy
        self._scanners: dict[Direction, HttpScanner] = {"up": HttpScanner(), "down": HttpScanner()}
        self._asked: deque[_Asked] = deque()
        self._is_foreign = False
        self._read_ms = 0

    def arrived(self, direction: Direction) -> None:
        if direction == "up":
            self._read_ms = time.time_ns() // 1_000_000

    def passed(self, direction: Direction, chunk: bytes) -> bytes:
        if self._is_foreign:
            self._proxy.is_followed &= direction == "down"
            return chunk
        out = bytearray()
        for head, piece in self._scanners[direction].pieces(chunk):
            self._is_foreign = self._is_foreign or head is FOREIGN
            if self._is_foreign:
                self._proxy.is_followed &= direction == "down"
                out += piece
            else:
                out += self._asking(head, piece) if direction == "up" else self._answering(head, piece)
            if self.is_ending:
                break
        return bytes(out)

    def _asking(self, head: Head | None, piece: bytes) -> bytes:
        if head is not None:
            fault = self._proxy.fault_for(head.path)
            if fault is not None and fault.kind == "drop_request":
                return self._end(fault)
            self._asked.append(_Asked(head.path, fault, None if fault else self._proxy.steads.get(head.path)))
        asked = self._asked[-1]
        if asked.stead is not None:
            return self._held_back(asked, asked.stead, piece)
        return self._passed_on(asked, piece)

    def _held_back(self, asked: _Asked, stead: Stead, piece: bytes) -> bytes:
        asked.request += piece
        if self._scanners["up"].left_bytes > 0:
            return b""
        request = bytes(asked.request)
        answer = stead(request)
        if answer is None or len(self._asked) > 1:  # its answer would overtake another one's
            asked.request.clear()
            return self._passed_on(asked, request)
        self._asked.pop()
        self.writers["down"].write(answer)
        return b""

    def _passed_on(self, asked: _Asked, piece: bytes) -> bytes:
        doubles = asked.fault is not None and asked.fault.kind == "double"
        if doubles or self._proxy.witness is not None:
            asked.request += piece
        if self._proxy.witness is not None and self._scanners["up"].left_bytes == 0:
            asked.arrived_ms = self._read_ms
            self._proxy.witness(Exchange(asked.path, bytes(asked.request), b"", asked.arrived_ms))
        if asked.fault is not None and doubles and self._scanners["up"].left_bytes == 0:
            asked.fault.happened.set()
            self._proxy.send_again(bytes(asked.request), asked.fault.after_s)
        return piece

    def _answering(self, head: Head | None, piece: bytes) -> bytes:
        if not self._asked:
            return piece
        asked = self._asked[0]
        if head is not None and asked.fault is not None and asked.fault.kind in ("lose_answer", "garble"):
            return self._end(asked.fault)
        if self._proxy.witness is not None:
            asked.answer += piece
        if self._scanners["down"].left_bytes == 0:
            self._asked.popleft()
            if self._proxy.witness is not None:
                self._proxy.witness(Exchange(asked.path, bytes(asked.request), bytes(asked.answer), asked.arrived_ms))
        return piece

    def _end(self, fault: HttpFault) -> bytes:
        """Returns the last bytes that the client gets before the end."""
        fault.happened.set()
        self.is_ending = True
        return fault.garbage


class HttpProxy(Proxy):
    """Each fault happens once, to the first request of any connection that fits; its Event tells when."""

    def __init__(self, target: tuple[str, int], *, port: int = 0) -> None:
        super().__init__(target, port=port)
        #: told of every request as it is passed on, and once more when its answer was
        self.witness: Callable[[Exchange], None] | None = None
        #: whether all requests so far could be told apart
        self.is_followed = True
        #: by path, the function that answers requests in their receiver's stead
        self.steads: dict[str, Stead] = {}
        self._faults: list[HttpFault] = []
        self._again: set[asyncio.Task[None]] = set()

    def lose_answer(self, path: str = "", *, skip: int = 0) -> asyncio.Event:
        """Such a request is answered; instead of the answer the client sees the end."""
        return self._arm(HttpFault("lose_answer", path, skip))

    def drop_request(self, path: str = "", *, skip: int = 0) -> asyncio.Event:
        """Such a request never reaches the server, and its connection ends."""
        return self._arm(HttpFault("drop_request", path, skip))

    def garble(self, kind: str, path: str = "", *, skip: int = 0) -> asyncio.Event:
        """Instead of the answer the client gets one of `GARBAGE`, and the end."""
        return self._arm(HttpFault("garble", path, skip, GARBAGE[kind]))

    def double(self, path: str = "", *, skip: int = 0, after_s: float = 0.0) -> asyncio.Event:
        """Such a request reaches the server twice."""
        return self._arm(HttpFault("double", path, skip, after_s=after_s))

    def disarm(self, *happened: asyncio.Event) -> None:
        """Remove the faults that have not happened yet: these, or all."""
        self._faults[:] = [fault for fault in self._faults if happened and fault.happened not in happened]

    async def close(self) -> None:
        for task in self._again:
            task.cancel()
        if self._again:
            await asyncio.wait(self._again)
        await super().close()

    def fault_for(self, path: str) -> HttpFault | None:
        """Returns the fault that is to happen to this request, taken out."""
        for fault in self._faults:
            if path.startswith(fault.path):
                if fault.skip == 0:
                    self._faults.remove(fault)
                    return fault
                fault.skip -= 1
        return None

    def send_again(self, request: bytes, after_s: float) -> None:
        task = asyncio.create_task(self._send_again(request, after_s))
        self._again.add(task)
        task.add_done_callback(self._again.discard)

    async def _send_again(self, request: bytes, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            async with asyncio.timeout(AGAIN_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(*self.target)
                with closing(writer):
                    writer.write(request)
                    await reader.read(1)
        except (OSError, TimeoutError):
            return  # the server has gone meanwhile

    def _arm(self, fault: HttpFault) -> asyncio.Event:
        self._faults.append(fault)
        return fault.happened

    def _link_for(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Link:
        return HttpLink(reader, writer, self)
