"""Finding a server, and the moment when a request leaves."""

from __future__ import annotations

import asyncio
import time

import pytest

from controller.zookeeper import client as zk
from controller.zookeeper.connection import Connection, Writing
from controller.zookeeper.port import (
    NotSentError,
    OutcomeUnknownError,
    SessionLostError,
    SessionState,
    StateHandler,
    UnreachableError,
    connected,
)
from tests.contract.labs import eventually, stays


class EmptyBufferGuard:
    """Asked when no byte of an earlier request waits in this process any more: an allowed request leaves now."""

    def __init__(self, writer: Writing) -> None:
        self._writer = writer
        self.checks = 0

    def check(self) -> None:
        assert self._writer.transport.get_write_buffer_size() == 0
        self.checks += 1


async def test_a_guard_is_asked_when_the_socket_takes_the_bytes_and_not_before() -> None:
    arrived: list[asyncio.StreamWriter] = []

    async def never_read(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(writer)

    listener = await asyncio.start_server(never_read, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    connection = Connection(
        *(reader, writer),
        clock=time.monotonic,
        max_in_flight_requests=100,
        on_answer=lambda _sent_at, _zxid: None,
        on_notification=lambda _frame: None,
    )
    guard = EmptyBufferGuard(writer)
    calls = [asyncio.create_task(connection.send(b"x" * 1_000_000, guard=guard)) for _ in range(30)]
    await eventually(lambda: guard.checks > 0)
    await stays(lambda: guard.checks < 20, 0.1)
    connection.abort("enough")
    assert await connection.read() == "enough"
    results = await asyncio.gather(*calls, return_exceptions=True)
    left = [result for result in results if isinstance(result, asyncio.Future)]
    assert len(left) == guard.checks
    assert all(isinstance(future.exception(), OutcomeUnknownError) for future in left)
    assert all(isinstance(result, NotSentError) for result in results[len(left) :])
    arrived[0].transport.abort()
    listener.close()
    await listener.wait_closed()


class Broken:
    """A client whose connection has just broken: requests are refused already, and it will notice in a moment."""

    state = SessionState.CONNECTED

    def on_state(self, handler: StateHandler) -> None: ...

    def remove_handler(self, handler: StateHandler) -> None: ...


async def again_and_again(client: Broken) -> None:
    for _ in range(1_000):
        await connected(client)


async def test_a_caller_that_asks_again_and_again_lets_the_client_notice_the_broken_connection() -> None:
    client = Broken()
    asyncio.get_running_loop().call_soon(setattr, client, "state", SessionState.LOST)
    with pytest.raises(SessionLostError):
        await again_and_again(client)


async def test_a_caller_is_told_which_servers_gave_no_session() -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 .*Connect call failed"):
        await zk.connect([("127.0.0.1", 1)], session_timeout_ms=4000, connect_timeout_ms=200)


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("h1:2181,h2:2182/kafka/a", [("h1", 2181), ("h2", 2182)], "/kafka/a"),
        ("localhost", [("localhost", 2181)], ""),
        ("[::1]:2190,[fe80::1]/", [("::1", 2190), ("fe80::1", 2181)], ""),
        ("a:1, b:2", [("a", 1), ("b", 2)], ""),
    ],
)
def test_a_connect_string_names_servers_and_a_chroot(text: str, servers: list[tuple[str, int]], chroot: str) -> None:
    assert zk.parse_connect(text) == (servers, chroot)


@pytest.mark.parametrize("text", ["", "h:0", "h:65536", "h:x", "::1", "[::1", "h,", "/kafka", "h:1/a/", "h:1/a//b"])
def test_a_connect_string_that_is_wrong_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        zk.parse_connect(text)
