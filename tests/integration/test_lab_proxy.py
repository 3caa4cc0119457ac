"""The lab's proxies pass bytes unchanged, inflict exactly the fault that was asked for, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import sys
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.retry import KazooRetry

from brokerstub.lab.ports import free_port
from brokerstub.lab.proxy import CHUNK_BYTES, Direction
from brokerstub.lab.zk_proxy import FOREIGN, FrameScanner, ZooKeeperProxy
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.waiting import DEADLINE_S, until

HANDSHAKE = struct.pack(">i", 45) + bytes(45)
HANDSHAKE_ANSWER = struct.pack(">i", 37) + bytes(37)
CREATE, GET, PING = 1, 4, 11
SILENT_S = 0.1  # how long nothing must come in where nothing may


Connect = Callable[..., Awaitable["Client"]]


class Server:
    """Answers as ZooKeeper would, and remembers the requests' xids."""

    def __init__(self) -> None:
        self.xids: list[int] = []
        self.greeted = 0
        self.reads = asyncio.Event()  # cleared: it does not read
        self.reads.set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            await reader.readexactly(len(HANDSHAKE))
            self.greeted += 1
            writer.write(HANDSHAKE_ANSWER)
            while True:
                await self.reads.wait()
                body = await reader.readexactly(*struct.unpack(">i", await reader.readexactly(4)))
                self.xids.append(int.from_bytes(body[:4], "big", signed=True))
                writer.write(answer(self.xids[-1], body[8:]))


def request(xid: int, opcode: int = GET, payload: bytes = b"") -> bytes:
    return struct.pack(">iii", 8 + len(payload), xid, opcode) + payload


def answer(xid: int, payload: bytes = b"") -> bytes:
    return struct.pack(">iiqi", 16 + len(payload), xid, 7, 0) + payload


class Client(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, xid: int, opcode: int = GET, payload: bytes = b"") -> None:
        self.writer.write(request(xid, opcode, payload))
        assert await self.reader.readexactly(16 + 4 + len(payload)) == answer(xid, payload)

    async def hears_nothing(self) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(self.reader.read(1), SILENT_S)


@contextmanager
def unraisable() -> Iterator[list[str]]:
    """Collects the exceptions that no caller could catch."""
    found: list[str] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda one: found.append(repr(one.exc_value))
    try:
        yield found
    finally:
        sys.unraisablehook = before


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[ZooKeeperProxy]:
    async with await asyncio.start_server(server, "127.0.0.1", 0) as listener:
        proxy = ZooKeeperProxy(listener.sockets[0].getsockname())
        unhandled: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        await proxy.start()
        yield proxy
        await proxy.close()
        gc.collect()  # until Python 3.12 a task's error shows when the task goes
        assert (proxy.connections, unhandled) == (0, [])


@pytest.fixture
async def connect(proxy: ZooKeeperProxy) -> AsyncIterator[Connect]:
    writers: list[asyncio.StreamWriter] = []

    async def connected(*, greets: bool = True) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", proxy.port))
        writers.append(client.writer)
        if greets:
            client.writer.write(HANDSHAKE)
            assert await client.reader.readexactly(len(HANDSHAKE_ANSWER)) == HANDSHAKE_ANSWER
        return client

    yield connected
    for writer in writers:
        writer.transport.abort()


async def test_bytes_pass_unchanged_and_are_counted(connect: Connect, proxy: ZooKeeperProxy) -> None:
    client = await connect()
    payload = bytes(range(256)) * 20_000
    await client.ask(1, payload=payload)
    assert proxy.passed_bytes["up"] == len(HANDSHAKE) + len(request(1, payload=payload))
    assert proxy.passed_bytes["down"] == len(HANDSHAKE_ANSWER) + len(answer(1, payload))


async def test_a_connection_that_is_accepted_as_it_closes_leaves_nothing_behind() -> None:
    """CPython gives it no transport, once its server is closed, and forgets its socket."""
    proxy = ZooKeeperProxy(("127.0.0.1", free_port()))
    await proxy.start()
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        for _ in range(2):  # of the event loop: it is accepted in the second
            await asyncio.sleep(0)
        await proxy.close()
        with warnings.catch_warnings(record=True) as warned, unraisable() as left:
            warnings.simplefilter("always")
            gc.collect()
        assert [*map(str, (one.message for one in warned)), *left] == []
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


async def test_a_client_that_ends_ends_the_connection_to_the_server(connect: Connect, proxy: ZooKeeperProxy) -> None:
    client = await connect()
    client.writer.close()
    await until(lambda: proxy.connections == 0, "nothing is connected")


async def test_a_server_that_is_not_there_resets_the_client(connect: Connect, proxy: ZooKeeperProxy) -> None:
    proxy.target = ("127.0.0.1", free_port())
    client = await connect(greets=False)
    with pytest.raises(ConnectionResetError):
        await client.reader.read()


async def test_a_cut_resets_old_and_new_connections_until_healed(connect: Connect, proxy: ZooKeeperProxy) -> None:
    old = await connect()
    proxy.cut()
    new = await connect(greets=False)
    for client in (old, new):
        with pytest.raises(ConnectionResetError):
            await client.reader.read()
    proxy.heal()
    await connect()


async def test_frozen_nothing_passes_until_thawed(connect: Connect, proxy: ZooKeeperProxy, server: Server) -> None:
    old = await connect()
    proxy.freeze()
    new = await connect(greets=False)
    new.writer.write(HANDSHAKE)
    old.writer.write(request(1))
    await old.hears_nothing()
    await new.hears_nothing()
    assert (server.greeted, server.xids) == (1, [])
    proxy.thaw()
    assert await old.reader.readexactly(20) == answer(1)
    assert await new.reader.readexactly(len(HANDSHAKE_ANSWER)) == HANDSHAKE_ANSWER


async def test_held_down_only_the_server_hears(connect: Connect, proxy: ZooKeeperProxy, server: Server) -> None:
    client = await connect()
    proxy.hold("down")
    client.writer.write(request(1))
    await until(lambda: server.xids == [1], "the server hears it")
    await client.hears_nothing()
    proxy.release("down")
    assert await client.reader.readexactly(20) == answer(1)


async def test_a_frozen_connection_can_be_cut_and_closed(connect: Connect, proxy: ZooKeeperProxy) -> None:
    client = await connect()
    proxy.freeze()
    client.writer.write(request(1))
    await client.hears_nothing()
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        await client.reader.read()
    await until(lambda: proxy.connections == 0, "nothing is connected")


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_delay_is_kept_to_each_way(connect: Connect, proxy: ZooKeeperProxy, direction: Direction) -> None:
    client = await connect()
    proxy.delay_ms[direction] = 50
    started = time.monotonic()
    await client.ask(1)
    assert time.monotonic() - started >= 0.05


async def test_a_peer_that_does_not_read_stops_the_sender(
    connect: Connect, proxy: ZooKeeperProxy, server: Server
) -> None:
    client = await connect()
    server.reads.clear()
    await client.ask(1)  # the server was waiting for this one already
    client.writer.write(request(2, payload=bytes(50_000_000)))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.writer.drain(), SILENT_S)
    assert proxy.passed_bytes["up"] < 25_000_000
    server.reads.set()
    await until(lambda: server.xids == [1, 2], "the server hears both")


async def test_a_lost_answer_was_given(connect: Connect, proxy: ZooKeeperProxy, server: Server) -> None:
    client = await connect()
    happened = proxy.lose_answer(CREATE)
    await client.ask(1)
    client.writer.write(request(2) + request(3, CREATE) + request(4))
    assert await client.reader.read() == answer(2)
    assert server.xids[:3] == [1, 2, 3]
    assert happened.is_set()
    await (await connect()).ask(5, CREATE)


async def test_a_ping_is_not_the_request_whose_answer_gets_lost(connect: Connect, proxy: ZooKeeperProxy) -> None:
    client = await connect()
    happened = proxy.lose_answer()
    await client.ask(-2, PING)
    assert not happened.is_set()
    client.writer.write(request(1))
    assert await client.reader.read() == b""


async def test_a_dropped_request_never_arrives(connect: Connect, proxy: ZooKeeperProxy, server: Server) -> None:
    client = await connect()
    happened = proxy.drop_request(CREATE)
    await client.ask(1)
    client.writer.write(request(2, CREATE) + request(3))
    assert await client.reader.read() == b""
    assert happened.is_set()
    assert server.xids == [1]


async def test_a_swallowed_handshake_leaves_silence(connect: Connect, proxy: ZooKeeperProxy, server: Server) -> None:
    happened = proxy.swallow_handshake()
    client = await connect(greets=False)
    client.writer.write(HANDSHAKE)
    await happened.wait()
    await client.hears_nothing()
    assert server.greeted == 1
    await connect()


async def test_closed_mid_message_half_an_answer_arrives(connect: Connect, proxy: ZooKeeperProxy) -> None:
    client = await connect()
    proxy.close_mid_message()
    client.writer.write(request(1, payload=(payload := bytes(3 * CHUNK_BYTES))))
    assert await client.reader.read() == answer(1, payload)[: (20 + len(payload)) // 2]


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 60), max_size=20))
def test_messages_are_found_however_the_bytes_come_in(payloads: list[bytes], cuts: list[int]) -> None:
    messages = [HANDSHAKE, *(request(xid, xid + 100, payload) for xid, payload in enumerate(payloads))]
    rest, scanner = b"".join(messages), FrameScanner()
    frames, found = [], []
    for cut in [*cuts, len(rest)]:
        for frame, piece in scanner.pieces(rest[:cut]):
            if frame is not None:
                frames.append(frame)
                found.append(b"")
            found[-1] += piece
        rest = rest[cut:]
    assert found == messages
    assert [frame.is_handshake for frame in frames] == [True] + [False] * len(payloads)
    assert [(frame.xid, frame.opcode) for frame in frames[1:]] == [(xid, xid + 100) for xid in range(len(payloads))]


@pytest.mark.parametrize("text", [b"ruok", b"imok", b"Zookeeper version: 3"])
def test_four_letter_words_and_their_answers_are_no_messages(text: bytes) -> None:
    assert list(FrameScanner().pieces(text)) == [(FOREIGN, text)]


@pytest.mark.java
async def test_with_a_real_server_the_write_of_a_lost_answer_is_done(tmp_path: Path) -> None:
    zookeeper = ZooKeeperServer(tmp_path, free_port())
    await zookeeper.start()
    proxy = ZooKeeperProxy(("127.0.0.1", zookeeper.client_port))
    await proxy.start()
    proxy.lose_answer(CREATE)

    def create() -> bool:
        client = KazooClient(hosts=proxy.address, timeout=4, connection_retry=KazooRetry(max_tries=-1, max_delay=0.1))
        try:
            client.start(timeout=DEADLINE_S)
            with pytest.raises(ConnectionLoss):
                client.create("/lost")
            return client.retry(client.exists, "/lost") is not None
        finally:
            client.stop()
            client.close()

    try:
        assert await asyncio.to_thread(create)
    finally:
        await proxy.close()
        await zookeeper.stop()
