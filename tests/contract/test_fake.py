"""Abilities of the fake alone: move time, start from a recorded tree, refuse on demand, tell its history."""

from __future__ import annotations

import asyncio
import time

import pytest

from controller.core.operations import (
    Check,
    Create,
    Delete,
    Set,
)
from controller.zookeeper.port import (
    THROTTLED,
    BadVersionError,
    Denied,
    EventKind,
    OutcomeUnknownError,
    RefusedError,
    SessionLostError,
    SessionState,
    Stat,
    WatchEvent,
)
from tests.fakes.zookeeper import FakeClient, FakeZooKeeper


async def test_a_session_expires_when_the_clock_says_so_unless_its_client_pings() -> None:
    server = FakeZooKeeper()
    cut, well = await server.connect(), await server.connect()
    await cut.create("/e", b"", ephemeral=True)
    server.disconnect(cut)
    server.clock.advance(3.9)
    assert server.read("/e") == b""
    server.clock.advance(0.1)
    assert server.read("/e") is None
    assert well.deadline == server.clock() + 4
    server.reconnect(cut)
    assert cut.state is SessionState.LOST
    assert well.state is SessionState.CONNECTED


async def test_a_frozen_client_learns_by_its_next_request_that_its_session_is_gone() -> None:
    server = FakeZooKeeper()
    client = await server.connect()
    client.is_frozen = True
    server.clock.advance(60)
    assert client.state is SessionState.CONNECTED
    assert client.deadline < server.clock()
    with pytest.raises(OutcomeUnknownError):
        await client.create("/late", b"")
    with pytest.raises(SessionLostError):
        await client.create("/late", b"")
    assert server.read("/late") is None


async def test_the_history_has_every_write_in_order_with_its_session() -> None:
    server = FakeZooKeeper()
    one, two = await server.connect(chroot="/c"), await server.connect()
    await two.create("/c", b"")
    await one.transact([Create("/s-", b"1", sequential=True), Set("/", b"2", 0)])
    await two.transact([Delete("/none", 0)])
    await one.create("/e", b"", ephemeral=True)
    await one.close()
    assert [(commit.session_id, commit.ops) for commit in server.history] == [
        (two.session_id, (Create("/c", b""),)),
        (one.session_id, (Create("/c/s-0000000000", b"1"), Set("/c", b"2", 0))),
        (one.session_id, (Create("/c/e", b"", ephemeral=True),)),
        (one.session_id, (Delete("/c/e", -1),)),
    ]
    zxids = [commit.zxid for commit in server.history]
    assert zxids == sorted(set(zxids))


async def test_a_tree_can_be_seeded_with_its_past() -> None:
    server = FakeZooKeeper()
    stat = Stat(5, 9, 1000, 2000, 3, 0, 0, 77, 1, 0, 5)
    server.seed({"/a/b": b"x", "/a/n-0000000041": b""}, {"/a/b": stat}, zxid=20)
    client = await server.connect()
    node = await client.get("/a/b")
    assert node is not None
    assert (node.data, node.stat, node.zxid) == (b"x", stat, 21)
    assert (await client.create("/a/n-", b"", sequential=True))[0] == "/a/n-0000000042"
    server.expire(77)
    assert await client.get("/a/b") is None


async def test_a_write_is_refused_on_demand_once() -> None:
    server = FakeZooKeeper()
    client = await server.connect()
    await client.create("/a", b"")
    server.refuse_next("/a", BadVersionError.code)
    assert (await client.transact([Create("/b", b""), Set("/a", b"", 0)])).refused == (1, BadVersionError.code)
    assert (await client.transact([Create("/b", b""), Set("/a", b"", 0)])).refused is None


async def test_a_test_can_act_between_the_requests_of_a_client() -> None:
    server = FakeZooKeeper()
    one, two = await server.connect(), await server.connect()
    await two.create("/a", b"")

    async def meddle(client: FakeClient, name: str) -> None:
        if client is one and name == "transact":
            server.on_request = None
            await two.set("/a", b"", 0)

    server.on_request = meddle
    assert (await one.transact([Set("/a", b"", 0)])).refused == (0, BadVersionError.code)


async def test_a_hundred_thousand_znodes_are_no_burden() -> None:
    server = FakeZooKeeper()
    began_at = time.process_time()
    paths = [f"/t/{topic}/{partition}" for topic in range(1000) for partition in range(100)]
    server.seed(dict.fromkeys(paths, b"x"))
    client = await server.connect()
    told: list[WatchEvent] = []
    client.on_watch(told.append)
    assert None not in await client.get_many(paths)
    await client.watch_many(paths, [], server.zxid)
    for start in range(0, 5000, 500):
        await client.transact([Set(path, b"y", 0) for path in paths[start : start + 500]])
    assert len(told) == 5000
    assert told[0] == WatchEvent(EventKind.CHANGED, paths[0])
    await asyncio.sleep(0)
    assert time.process_time() - began_at < 5


async def test_a_refusal_that_stands_is_for_every_request_until_it_is_lifted() -> None:
    server = FakeZooKeeper()
    client = await server.connect()
    await client.transact([Create("/a", b""), Create("/a/b", b""), Create("/c", b"")])
    server.refuse("/a", -125, "set", "create", is_deep=True)
    for _ in range(2):
        assert (await client.transact([Set("/c", b"", -1), Set("/a/b", b"", 0)])).refused == (1, -125)
        with pytest.raises(RefusedError) as refused:
            await client.create("/a/d", b"")
        assert refused.value.refusal == -125
    assert (await client.transact([Check("/a/b", 0)])).refused is None
    assert await client.get("/a") is not None
    server.refuse("/a", -8)
    assert (await client.get_many(["/a", "/a/b"]))[0] == Denied(-8, server.zxid)
    for read in (client.get, client.exists, client.children):
        with pytest.raises(RefusedError):
            await read("/a")
    assert server.commit(0, [Set("/a", b"", 0)]).refused is None  # the test itself is refused nothing
    server.lift("/a")
    await client.set("/a", b"", 1)


async def test_throttling_is_said_of_whole_requests_and_of_no_operation() -> None:
    server = FakeZooKeeper()
    client = await server.connect()
    await client.transact([Create("/a", b""), Create("/b", b"")])
    server.refuse("/a", THROTTLED)
    for call in (client.transact([Set("/b", b"", 0), Set("/a", b"", 0)]), client.get_many(["/b", "/a"])):
        with pytest.raises(RefusedError) as refused:
            await call
        assert refused.value.refusal == THROTTLED
    assert server.tree.nodes["/b"].version == 0
