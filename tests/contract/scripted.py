"""A server whose answers a test writes, on real sockets: for answers that no real ZooKeeper can be made to give."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

PING, CLOSE, AUTH, SET_WATCHES, MULTI_READ, EXISTS = 11, -11, 100, 101, 22, 3
STAT = struct.pack("!qqqqiiiqiiq", *range(11))


@dataclass
class Request:
    """A client's request."""

    link: Link
    xid: int
    opcode: int
    body: bytes

    def reply(self, zxid: int, code: int = 0, body: bytes = b"", xid: int | None = None) -> None:
        self.link.write(struct.pack("!iqi", self.xid if xid is None else xid, zxid, code) + body)


@dataclass
class Link:
    writer: asyncio.StreamWriter
    handshake: bytes

    @property
    def last_seen_zxid(self) -> int:
        return int(struct.unpack_from("!iq", self.handshake)[1])

    def write(self, frame: bytes) -> None:
        self.writer.write(struct.pack("!i", len(frame)) + frame)

    def notify(self, kind: int, path: str, zxid: int = -1) -> None:
        self.write(struct.pack("!iqi", -1, zxid, 0) + struct.pack("!iii", kind, 3, len(path)) + path.encode())

    def end(self) -> None:
        self.writer.transport.abort()


@dataclass
class ScriptedServer:
    """Answers every request with its zxid, unless `script` takes it (returns True)."""

    zxid: int = 1
    session_id: int = 77
    timeout_ms: int = 4000
    requests: list[Request] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    script: Callable[[Request], bool] = lambda _request: False
    on_handshake: Callable[[], None] = lambda: None
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads.set()

    def opcodes(self) -> list[int]:
        return [request.opcode for request in self.requests if request.opcode != PING]

    async def on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        try:
            link = Link(writer, await self._frame(reader))
            self.links.append(link)
            self.on_handshake()
            link.write(struct.pack("!iiqi16s?", 0, self.timeout_ms, self.session_id, 16, b"p" * 16, False))
            while await self.reads.wait():
                frame = await self._frame(reader)
                xid, opcode = struct.unpack_from("!ii", frame)
                request = Request(link, xid, opcode, frame[8:])
                self.requests.append(request)
                if not self.script(request):
                    request.reply(self.zxid, body=STAT)
        except (EOFError, OSError):
            writer.transport.abort()

    async def _frame(self, reader: asyncio.StreamReader) -> bytes:
        (size,) = struct.unpack("!i", await reader.readexactly(4))
        return await reader.readexactly(size)


@asynccontextmanager
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    server = await asyncio.start_server(scripted.on_client, "127.0.0.1", 0)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()
        for link in scripted.links:
            link.end()
        if scripted.tasks:
            scripted.reads.set()
            await asyncio.wait(scripted.tasks)
        await server.wait_closed()
