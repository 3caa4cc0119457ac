"""Scenes of the museum about sessions, on the fake ZooKeeper and against a server that answers as a scene wants."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from brokerstub.identity import DataDirectory
from brokerstub.zookeeper import Sessions
from controller.base.config import BrokerConfig
from controller.zookeeper import client as zk
from controller.zookeeper.port import OutcomeUnknownError, SessionLostError, SessionState
from tests.contract.labs import eventually
from tests.contract.scripted import ScriptedServer, scripted_server
from tests.support.harness import (
    a_broker,
    a_controller,
    a_server,
    state_of,
    topic_json,
    until,
)
from tests.waiting import DEADLINE_S

TIMEOUT_MS = 900


def refuse() -> None:
    raise EOFError


async def test_m22_after_many_expiries_the_seats_holder_controls() -> None:
    """Five sessions expire, and each of them has found that it has the seat, of a term that never was."""
    server = await a_server()
    await a_broker(server, 2)
    for number in range(5):
        session = await server.connect()
        await session.create("/controller", b'{"version":1,"brokerid":1,"timestamp":"0"}', ephemeral=True)
        async with a_controller(server, 1, zk=session) as node:
            await until(lambda node=node: node.handle.is_active)  # type: ignore[misc]
            assert node.handle.controller_epoch == number + 1
            tool = await server.connect()
            await tool.create(f"/brokers/topics/t{number}", topic_json([2]))
            await until(lambda number=number: state_of(server, f"t{number}", 0))  # type: ignore[misc]
            server.expire(session)
            await until(lambda node=node: not node.handle.is_active)  # type: ignore[misc]


async def test_m24_a_new_session_is_tried_for_until_it_is_had(tmp_path: Path) -> None:
    """The server takes no handshake for a while, after a session was lost; then it does."""
    with closing(DataDirectory(tmp_path)) as directory:
        async with scripted_server() as server:
            server.timeout_ms = TIMEOUT_MS
            await play_m24(server, Sessions(config_for(server, tmp_path), directory))


async def play_m24(server: ScriptedServer, sessions: Sessions) -> None:
    lost = await sessions.first()
    server.on_handshake = refuse
    server.links[-1].end()
    with capture_logs() as logs:
        next_one = asyncio.create_task(sessions.next())
        await eventually(lambda: next_one.done() or said(logs) >= 2)
        server.on_handshake = lambda: None
        server.session_id += 1
        async with asyncio.timeout(DEADLINE_S):
            found = await next_one
    assert found is not lost
    assert found.state is SessionState.CONNECTED
    await sessions.close()


async def test_m32_an_expiry_fails_all_that_is_under_way_at_once() -> None:
    """As many requests as there may be are under way, others wait behind them, and the session expires."""
    async with scripted_server() as server:
        client = await zk.connect(
            [("127.0.0.1", server.port)], session_timeout_ms=4_000, connect_timeout_ms=4_000, max_in_flight_requests=10
        )
        server.script = lambda _: True  # it answers nothing more
        calls = [asyncio.create_task(client.get("/")) for _ in range(30)]
        await eventually(lambda: len(server.requests) >= 10)
        server.session_id = server.timeout_ms = 0
        server.links[-1].end()
        async with asyncio.timeout(DEADLINE_S):
            results = await asyncio.gather(*calls, return_exceptions=True)
            await client.lost()
        assert [type(one) for one in results].count(OutcomeUnknownError) == 10
        assert all(isinstance(one, Exception) for one in results)
        with pytest.raises(SessionLostError):
            await client.get("/")
        await client.close()


def config_for(server: ScriptedServer, directory: Path) -> BrokerConfig:
    return BrokerConfig(
        zookeeper_connect=f"127.0.0.1:{server.port}",
        log_dirs=str(directory),
        zookeeper_session_timeout_ms=TIMEOUT_MS,
        zookeeper_connection_timeout_ms=100,
    )


def said(logs: list[dict[str, object]]) -> int:
    """How often it had to be put off."""
    return [one["event"] for one in logs].count("session.delayed")
