"""Faults of networks and servers under a session: real ZooKeepers, proxies that know their messages."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.security import make_digest_acl  # type: ignore[import-untyped]

from brokerstub.lab.zookeeper import Ensemble, ZooKeeperServer
from controller.core.operations import Create, Set
from controller.zookeeper import client as zk
from controller.zookeeper.port import (
    EventKind,
    NoAuthError,
    OutcomeUnknownError,
    SessionState,
    WatchEvent,
    ZooKeeper,
)
from tests.contract.labs import InOrder, RealLab, back, eventually, stays
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.java
LONG_MS = 60_000  # silence would not be noticed within a test


def told_by(client: ZooKeeper) -> list[tuple[EventKind, str]]:
    told: list[tuple[EventKind, str]] = []

    def on_watch(event: WatchEvent) -> None:
        told.append((event.kind, event.path))

    client.on_watch(on_watch)
    return told


async def test_an_answer_that_ends_in_the_middle_is_noticed_by_its_end(real: RealLab) -> None:
    client = await real.connect(session_timeout_ms=LONG_MS)
    await client.create("/a", b"x" * 10_000)
    real.proxy_of(client).close_mid_message()
    with pytest.raises(OutcomeUnknownError, match="in the middle of a message"):
        await client.get("/a")
    await back(client)
    assert real.proxy_of(client).accepted == 2
    node = await client.get("/a")
    assert node is not None
    assert len(node.data) == 10_000


async def test_after_a_reset_the_first_attempt_that_can_succeed_does(real: RealLab) -> None:
    client = await real.connect(session_timeout_ms=LONG_MS)
    await client.get("/", watch=True)
    real.cut(client)
    await eventually(lambda: client.state is SessionState.SUSPENDED)
    attempts = real.proxy_of(client).accepted
    real.heal(client)
    await back(client)
    assert real.proxy_of(client).accepted == attempts + 1


async def test_one_server_of_two_that_swallows_the_handshake_hangs_no_client(real: RealLab) -> None:
    frozen, good = await real.proxy(), await real.proxy()
    servers = [("127.0.0.1", frozen.port), ("127.0.0.1", good.port)]
    swallowed = frozen.swallow_handshake()
    client = await zk.connect(
        servers, session_timeout_ms=6000, connect_timeout_ms=LONG_MS, chroot=real.chroot, rng=InOrder()
    )
    assert swallowed.is_set()
    session_id = client.session_id
    frozen.freeze()
    good.cut()
    await eventually(lambda: client.state is SessionState.SUSPENDED)
    good.heal()
    await back(client)
    assert client.session_id == session_id
    await client.close()


async def test_a_handshake_that_was_swallowed_costs_no_session(real: RealLab) -> None:
    client = await real.connect()
    await client.create("/e", b"", ephemeral=True)
    session_id = client.session_id
    swallowed = real.proxy_of(client).swallow_handshake()
    real.cut(client)
    real.heal(client)
    await asyncio.wait_for(swallowed.wait(), DEADLINE_S)
    await back(client)
    assert client.session_id == session_id
    assert await client.get("/e") is not None


async def test_a_connection_that_went_silent_is_replaced_before_the_session_expires(real: RealLab) -> None:
    silent, good = await real.proxy(), await real.proxy()
    servers = [("127.0.0.1", silent.port), ("127.0.0.1", good.port)]
    client = await zk.connect(
        servers, session_timeout_ms=6000, connect_timeout_ms=LONG_MS, chroot=real.chroot, rng=InOrder()
    )
    session_id, deadline = client.session_id, client.deadline
    silent.freeze()
    with pytest.raises(OutcomeUnknownError):
        await client.create("/a", b"")
    assert client.deadline == deadline
    await back(client)
    assert client.session_id == session_id
    assert client.deadline > deadline
    await client.close()


async def test_a_deadline_has_passed_before_the_server_expires_the_session(real: RealLab) -> None:
    witness, client = await real.connect(), await real.connect(session_timeout_ms=1000)
    await client.create("/e", b"", ephemeral=True)
    gone = told_by(witness)
    await witness.sync()
    assert (await witness.exists("/e", watch=True)).stat is not None
    real.cut(client)
    deadline = client.deadline
    await eventually(lambda: gone == [(EventKind.DELETED, "/e")])
    assert time.monotonic() > deadline == client.deadline
    assert client.state is SessionState.SUSPENDED  # it is not for the client to say that it is lost
    real.heal(client)
    await asyncio.wait_for(client.lost(), DEADLINE_S)


async def test_a_server_killed_and_restarted_keeps_session_watches_and_ephemeral_nodes(
    server: ZooKeeperServer,
) -> None:
    await server.start()
    try:
        client = await zk.connect(
            [("127.0.0.1", server.client_port)], session_timeout_ms=6000, connect_timeout_ms=LONG_MS
        )
        await client.transact([Create("/a", b""), Create("/b", b"", ephemeral=True)])
        await client.get_many(["/a", "/b"])
        for path in ("/a", "/b", "/none"):
            await client.get(path, watch=True)
        told, session_id = told_by(client), client.session_id
        server.kill()
        await eventually(lambda: client.state is SessionState.SUSPENDED)
        await server.wait()
        await server.start()
        await back(client)
        assert client.session_id == session_id
        assert told == []
        await client.transact([Set("/a", b"1", 0), Create("/none", b"")])
        assert told == [(EventKind.CHANGED, "/a"), (EventKind.CREATED, "/none")]
        assert await client.get("/b") is not None
        await client.close()
    finally:
        await server.stop()


@pytest_asyncio.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path, fsync=False)
    await ensemble.start()
    try:
        yield ensemble
    finally:
        await ensemble.stop()


async def test_the_clients_of_a_killed_server_move_to_the_others_of_its_ensemble(ensemble: Ensemble) -> None:
    servers, _ = zk.parse_connect(ensemble.connect_string)
    clients = [
        await zk.connect(servers, session_timeout_ms=6000, connect_timeout_ms=LONG_MS, rng=random.Random(seed))
        for seed in range(6)
    ]
    for number, client in enumerate(clients):
        await client.create(f"/{number}", b"", ephemeral=True)
        await client.get(f"/{number}", watch=True)
    told = [told_by(client) for client in clients]
    sessions = [client.session_id for client in clients]
    leader = await ensemble.leader()
    follower = next(server for server in ensemble.servers if server is not leader)
    for victim in (follower, leader):
        victim.kill()
        await victim.wait()
        if victim is leader:  # two of three make a new leader
            await ensemble.leader()
        for client in clients:
            await back(client)
            await client.sync()
        assert [client.session_id for client in clients] == sessions
        assert told == [[]] * 6
        await victim.start()
    for client in clients:
        await back(client)
        await client.sync()
        assert None not in await client.get_many([f"/{number}" for number in range(6)])
    for client in clients:
        await client.close()


async def test_credentials_hold_on_every_connection_and_for_watches(real: RealLab) -> None:
    def protect() -> None:
        kazoo = KazooClient(f"127.0.0.1:{real.server[1]}{real.chroot}")
        kazoo.start()
        kazoo.create("/secret", b"s", acl=[make_digest_acl("user", "pass:word", all=True)])
        kazoo.stop()
        kazoo.close()

    await asyncio.to_thread(protect)
    stranger, friend = await real.connect(), await real.connect(auth="digest:user:pass:word")
    for call in (stranger.get("/secret"), stranger.set("/secret", b"", 0)):
        with pytest.raises(NoAuthError):
            await call
    answer = await stranger.transact([Create("/a", b""), Set("/secret", b"", 0)])
    assert answer.refused == (1, NoAuthError.code)
    told = told_by(friend)
    for _ in range(2):
        node = await friend.get("/secret", watch=True)
        assert node is not None
        real.cut(friend)
        await eventually(lambda: friend.state is SessionState.SUSPENDED)
        real.heal(friend)
        await back(friend)
    assert told == []
    await friend.set("/secret", b"t", 0)
    assert told == [(EventKind.CHANGED, "/secret")]


async def test_a_session_is_not_given_up_while_no_server_answers(server: ZooKeeperServer) -> None:
    await server.start()
    try:
        address = ("127.0.0.1", server.client_port)
        client = await zk.connect([address], session_timeout_ms=2000, connect_timeout_ms=LONG_MS)
        session_id = client.session_id
        server.kill()
        await server.wait()
        # longer than the time-out: a restarted server gives every session its time again
        await stays(lambda: client.state is SessionState.SUSPENDED, 2.2)
        await server.start()
        await back(client)
        await client.sync()
        assert client.session_id == session_id
        await client.close()
    finally:
        await server.stop()
