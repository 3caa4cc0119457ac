"""When the session pings, gives a server up and tries the next one, in virtual time against a scripted server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.zookeeper import client as zk
from controller.zookeeper.port import OutcomeUnknownError, UnreachableError
from tests.contract.labs import InOrder, back, eventually
from tests.contract.scripted import PING, scripted_server
from tests.contract.virtual import in_virtual_time

TIMEOUT_S = 6.0
PERIOD_S = TIMEOUT_S / 24  # how often a session looks at its connection


def now() -> float:
    return asyncio.get_running_loop().time()


async def connected(*ports: int, **options: Any) -> zk.ZooKeeperClient:
    given = {"session_timeout_ms": int(TIMEOUT_S * 1_000), "connect_timeout_ms": 10_000, "clock": now, **options}
    return await zk.connect([("127.0.0.1", port) for port in ports], rng=InOrder(1), **given)


@asynccontextmanager
async def a_listener(*, refuses: bool) -> AsyncIterator[tuple[int, list[float]]]:
    """A server that gives no session: it resets its visitors, or never answers them. Its port, and when they came."""
    came: list[float] = []
    writers: list[asyncio.StreamWriter] = []

    async def meet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(now())
        writers.append(writer)
        if refuses:
            writer.transport.abort()

    listener = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1], came
    finally:
        listener.close()
        for writer in writers:
            writer.transport.abort()
        await listener.wait_closed()


@in_virtual_time
async def test_an_idle_client_pings_at_a_sixth_of_the_time_out_and_its_deadline_moves() -> None:
    async with scripted_server() as server:
        server.timeout_ms = int(TIMEOUT_S * 1_000)
        client = await connected(server.port)
        before = client.deadline
        await asyncio.sleep(10 * TIMEOUT_S)
        pings = [request for request in server.requests if request.opcode == PING]
        assert 48 <= len(pings) <= 60  # each after a sixth, and at most one look later
        assert client.deadline >= before + 10 * TIMEOUT_S - TIMEOUT_S / 6 - PERIOD_S
        await client.close()


@in_virtual_time
async def test_a_server_that_falls_silent_is_left_after_two_thirds_of_the_time_out() -> None:
    async with scripted_server() as server:
        server.timeout_ms = int(TIMEOUT_S * 1_000)
        client = await connected(server.port)
        server.script = lambda _request: True
        begun, deadline = now(), client.deadline
        with pytest.raises(OutcomeUnknownError, match="no answer for"):
            await client.exists("/a")
        assert TIMEOUT_S * 2 / 3 <= now() - begun <= TIMEOUT_S * 2 / 3 + 2 * PERIOD_S
        assert client.deadline == deadline
        server.script = lambda _request: False
        await back(client)
        assert now() < deadline, "the next connection comes before the session could have expired"
        await client.close()


@in_virtual_time
async def test_a_connection_that_breaks_is_replaced_at_once() -> None:
    async with scripted_server() as server:
        client = await connected(server.port)
        await asyncio.sleep(TIMEOUT_S)
        begun = now()
        server.links[-1].end()
        await eventually(lambda: len(server.links) == 2)
        await back(client)
        assert now() - begun <= 0.05
        await client.close()


@in_virtual_time
async def test_a_server_that_swallows_the_handshake_is_left_for_the_next_one() -> None:
    """A third of the time-out is for all of them; so a session survives a round through servers that say nothing."""
    async with a_listener(refuses=False) as (silent, came), scripted_server() as server:
        begun = now()
        client = await connected(silent, server.port)
        assert len(came) == 1
        assert now() - begun == pytest.approx(TIMEOUT_S / 3 / 2, abs=0.01)
        await client.close()


@in_virtual_time
async def test_servers_that_refuse_are_tried_at_a_bounded_rate() -> None:
    async with a_listener(refuses=True) as (port, came):
        with pytest.raises(UnreachableError):
            await connected(port)
        pauses = [later - earlier for earlier, later in itertools.pairwise(came)]
        assert min(pauses) >= 0.02
        assert max(pauses) <= 0.26
        assert pauses[10:] == [pytest.approx(0.1875, abs=0.0626)] * len(pauses[10:])
