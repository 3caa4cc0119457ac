"""The session's messages on the wire, seen by a scripted server."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller.zookeeper import client as zk
from controller.zookeeper.port import (
    Denied,
    Node,
    OutcomeUnknownError,
    SessionLostError,
    SessionState,
)
from controller.zookeeper.watches import SET_WATCHES_BYTES
from tests.contract.labs import back, eventually, stays
from tests.contract.scripted import AUTH, CLOSE, EXISTS, MULTI_READ, SET_WATCHES, STAT, Request, ScriptedServer
from tests.contract.scripted import scripted_server as running
from tests.fakes.zookeeper import FakeClock
from tests.waiting import DEADLINE_S


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with running() as server:
        yield server


async def connected(server: ScriptedServer, **options: Any) -> zk.ZooKeeperClient:
    given = {"session_timeout_ms": 4000, "connect_timeout_ms": 3000, **options}
    return await zk.connect([("127.0.0.1", server.port)], **given)


async def broken(client: zk.ZooKeeperClient, server: ScriptedServer) -> None:
    """End the connection and wait for the next one."""
    links = len(server.links)
    server.links[-1].end()
    await eventually(lambda: len(server.links) > links)
    await back(client)


def relative_zxid(request: Request) -> int:
    return int(struct.unpack_from("!q", request.body)[0])


async def test_the_handshake_goes_first_and_nothing_before_it(server: ScriptedServer) -> None:
    client = await connected(server)
    assert server.links[0].last_seen_zxid == 0
    assert (client.session_id, client.password, server.requests) == (77, b"p" * 16, [])
    await client.close()
    assert server.opcodes() == [CLOSE]


async def test_watches_are_armed_relative_to_the_last_answer_and_to_no_notification(server: ScriptedServer) -> None:
    client = await connected(server)
    server.zxid = 50
    await client.exists("/a", watch=True)
    server.links[-1].notify(3, "/other", zxid=90)
    server.links[-1].notify(3, "/other")
    await stays(lambda: client.state is SessionState.CONNECTED, 0.02)
    server.zxid = 100
    await broken(client, server)
    assert server.links[-1].last_seen_zxid == 50
    assert relative_zxid(server.requests[-1]) == 50
    await client.close()


async def test_a_break_while_watches_are_armed_again_forgets_no_change(server: ScriptedServer) -> None:
    client = await connected(server)
    server.zxid = 50
    await client.watch_many([f"/{number}" + "x" * 1000 for number in range(200)], [], 40)
    server.zxid, server.requests = 100, []
    broken_once: list[Request] = []

    def script(request: Request) -> bool:
        if request.opcode == SET_WATCHES and len(server.requests) == 2 and not broken_once:
            broken_once.append(request)
            request.link.end()
            return True
        return False

    server.script = script
    await broken(client, server)
    assert [relative_zxid(request) for request in server.requests] == [50, 50, 50, 50]
    await client.close()


async def test_credentials_go_first_on_each_connection_then_watches_in_pieces(server: ScriptedServer) -> None:
    client = await connected(server, auth="digest:user:pass:word")
    await client.watch_many([f"/{number}" + "x" * 1000 for number in range(300)], [], 1)
    server.requests.clear()
    await broken(client, server)
    assert server.opcodes() == [AUTH, SET_WATCHES, SET_WATCHES, SET_WATCHES]
    assert server.requests[0].body == struct.pack("!ii6si14s", 0, 6, b"digest", 14, b"user:pass:word")
    assert max(len(request.body) for request in server.requests) <= SET_WATCHES_BYTES + 20
    await client.close()


async def test_nothing_is_sent_and_no_listener_is_told_before_the_watches_are_armed(server: ScriptedServer) -> None:
    client = await connected(server)
    await client.exists("/a", watch=True)
    held: list[Request] = []

    def script(request: Request) -> bool:
        if request.opcode == SET_WATCHES:
            held.append(request)
        return request.opcode == SET_WATCHES

    server.script = script
    server.links[-1].end()
    await eventually(lambda: len(held) == 1)
    await stays(lambda: client.state is SessionState.SUSPENDED, 0.02)
    held[0].reply(1)
    await back(client)
    await client.close()


async def test_refused_credentials_end_the_session(server: ScriptedServer) -> None:
    def script(request: Request) -> bool:
        request.reply(1, code=-115)
        return True

    server.script = script
    with pytest.raises(SessionLostError, match="refused the digest credentials"):
        await connected(server, auth="digest:user:password")


async def test_a_reply_out_of_order_breaks_the_connection(server: ScriptedServer) -> None:
    client = await connected(server)

    def script(request: Request) -> bool:
        request.reply(1, xid=request.xid + 1, body=STAT)
        return True

    server.script = script
    with pytest.raises(OutcomeUnknownError, match="not the next one"):
        await client.exists("/a")
    server.script = lambda _request: False
    await back(client)
    assert len(server.links) == 2
    await client.close()


@pytest.mark.parametrize("code", [-112, -118])
async def test_a_session_that_moved_or_expired_breaks_the_connection(server: ScriptedServer, code: int) -> None:
    client = await connected(server)

    def script(request: Request) -> bool:
        request.reply(1, code)
        return request.opcode == EXISTS

    server.script = script
    with pytest.raises(OutcomeUnknownError):
        await client.exists("/a")
    server.script = lambda _request: False
    await back(client)
    server.session_id = 0
    server.links[-1].end()
    async with asyncio.timeout(DEADLINE_S):
        await client.lost()
    with pytest.raises(SessionLostError, match="expired"):
        await client.exists("/a")
    await client.close()


async def test_an_older_server_is_read_one_by_one(server: ScriptedServer) -> None:
    client = await connected(server)

    def script(request: Request) -> bool:
        if request.opcode == MULTI_READ:
            request.reply(1, code=-6)
            request.link.end()
        elif request.opcode == 4 and b"none" in request.body:
            request.reply(1, code=-101)
        elif request.opcode == 4 and b"hidden" in request.body:
            request.reply(1, code=-102)
        elif request.opcode == 4:
            request.reply(1, body=struct.pack("!i", 1) + request.body[5:6] + STAT)
        return request.opcode in (MULTI_READ, 4)

    server.script = script
    paths = [f"/{number % 10}" for number in range(250)]
    for _ in range(2):
        *found, hidden, none = await client.get_many([*paths, "/hidden", "/none"])
        assert [node.data for node in found if isinstance(node, Node)] == [path[1:].encode() for path in paths]
        assert (hidden, none) == (Denied(-102, 1), None)
    assert server.opcodes().count(MULTI_READ) == 1
    await client.close()


async def test_the_deadline_counts_from_when_the_answered_request_was_sent(server: ScriptedServer) -> None:
    clock = FakeClock(100)
    server.on_handshake = lambda: clock.advance(0.25)
    client = await connected(server, clock=clock)
    assert client.deadline == 104

    def script(request: Request) -> bool:
        clock.advance(0.25)
        return False

    server.script = script
    await client.exists("/a")
    assert (clock(), client.deadline) == (100.5, 104.25)
    await client.close()
