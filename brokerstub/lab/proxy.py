"""A TCP proxy that inflicts the network's faults: cut, freeze, one-way silence, delay.

Owns a listener on loopback and the connections made through it. It must never hold more than a few chunks of a
connection, change a byte that it passes on, listen beyond loopback, or leave a task or socket behind after `close`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, Literal

import structlog

from controller.base.tasks import end_accepting

Direction = Literal["up", "down"]  # up: from the client to the server

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
#: of the event loop: a connection that was accepted just before the end gets an abort, and then its socket is closed
_ROUNDS_TO_ABORT: Final = 4

log = structlog.get_logger()


class LinkEndedError(Exception):
    """A fault ends this link in an orderly way: the bytes that were passed on still go out."""


class Link:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.readers: dict[Direction, asyncio.StreamReader] = {"up": reader}
        self.writers: dict[Direction, asyncio.StreamWriter] = {"down": writer}
        self.is_ending = False

    def arrived(self, direction: Direction) -> None:
        """A chunk was read, and is passed on when it may be."""

    def passed(self, _direction: Direction, chunk: bytes) -> bytes:
        """Returns the bytes of a chunk that go on; may ask for the end of the link, after that, by `is_ending`."""
        return chunk

    def reset(self) -> None:
        """Both ends get a reset instead of an end-of-file; bytes under way are lost."""
        for writer in self.writers.values():
            if not writer.transport.is_closing():
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()


class Proxy:
    """Passes bytes between its port and `target`. A changed target counts for new connections."""

    def __init__(self, target: tuple[str, int], *, port: int = 0) -> None:
        self.target = target
        self.port = port
        # Each piece waits at least this long before it goes on, and later pieces wait behind it.
        self.delay_ms: dict[Direction, int] = {"up": 0, "down": 0}
        self.accepted = 0  # connections ever, those that were cut at once too
        self.passed_bytes: dict[Direction, int] = {"up": 0, "down": 0}
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._is_cut = False
        self._open: dict[Direction, asyncio.Event] = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._server: asyncio.Server | None = None
        self._shares_port = False  # with a socket that holds the port while the proxy does not listen
        self.thaw()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._links)

    async def start(self) -> int:
        """Listen; the port."""
        self._server = await asyncio.start_server(
            self._on_client, HOST, self.port, limit=CHUNK_BYTES, reuse_port=self._shares_port
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def close(self) -> None:
        """Stop listening, reset the connections, wait until all of them have ended."""
        if self._server is None:
            return
        server, self._server = self._server, None
        await end_accepting(server)
        server.close()
        tasks = list(self._links.values())
        self._reset_links()
        if tasks:
            await asyncio.wait(tasks)
        await server.wait_closed()
        for _ in range(_ROUNDS_TO_ABORT):
            await asyncio.sleep(0)

    def cut(self) -> None:
        """Connections are reset, new ones too, at once."""
        self._is_cut = True
        self._reset_links()

    def heal(self) -> None:
        self._is_cut = False

    def freeze(self) -> None:
        """Nothing passes either way, not even an end; connections stay open, new ones are accepted and silent."""
        self.hold("up")
        self.hold("down")

    def thaw(self) -> None:
        self.release("up")
        self.release("down")

    def hold(self, direction: Direction) -> None:
        self._open[direction].clear()

    def release(self, direction: Direction) -> None:
        self._open[direction].set()

    def _reset_links(self) -> None:
        for link, task in self._links.items():
            link.reset()
            task.cancel()

    def _link_for(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Link:
        return Link(reader, writer)

    def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = self._link_for(reader, writer)
        if self._is_cut or self._server is None:
            link.reset()
        else:
            self._links[link] = asyncio.create_task(self._serve(link))
            self._links[link].add_done_callback(lambda _: self._links.pop(link))

    async def _serve(self, link: Link) -> None:
        try:
            await self._relay(link)
        except* OSError as reasons:
            log.debug("link.reset", target=self.target, reason=str(reasons.exceptions[0]))
        finally:
            link.reset()  # a peer that got no orderly end gets this one

    async def _relay(self, link: Link) -> None:
        await self._open["up"].wait()
        link.readers["down"], link.writers["up"] = await asyncio.open_connection(*self.target, limit=CHUNK_BYTES)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(link, "up"))
                pumps.create_task(self._pump(link, "down"))
        except* LinkEndedError:
            pass
        for direction, end in list(link.writers.items()):
            end.close()
            await end.wait_closed()
            del link.writers[direction]  # a transport that is closed cannot be aborted any more

    async def _pump(self, link: Link, direction: Direction) -> None:
        writer = link.writers[direction]
        while chunk := await self._read(link, direction):
            passed = link.passed(direction, chunk)
            writer.write(passed)
            self.passed_bytes[direction] += len(passed)
            if link.is_ending:
                raise LinkEndedError
            await writer.drain()
        writer.write_eof()

    async def _read(self, link: Link, direction: Direction) -> bytes:
        """Returns the next chunk, once it may pass; an end-of-file or a reset has to wait like bytes."""
        failure: OSError | None = None
        chunk = b""
        try:
            chunk = await link.readers[direction].read(CHUNK_BYTES)
            link.arrived(direction)
        except OSError as error:
            failure = error
        if self.delay_ms[direction]:
            await asyncio.sleep(self.delay_ms[direction] / 1000)
        await self._open[direction].wait()
        if failure is not None:
            raise failure
        return chunk
