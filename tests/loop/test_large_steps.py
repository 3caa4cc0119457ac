"""A step of several transactions: believed and recorded piece by piece as it lands, in its order; told once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

import pytest

from controller.base.config import Limits
from controller.core.causes import Cause
from controller.core.changes.cluster import (
    Change,
    Committed,
    StateDecided,
    StateFound,
)
from controller.core.model import Leadership
from controller.loop.store import FencedError
from tests.fakes.client import FakeClient
from tests.loop.test_fencing import (
    a_belief,
    a_change,
    a_store,
    with_topic,
)
from tests.support.harness import (
    a_broker,
    a_controller,
    a_server,
    state_of,
    topic_json,
    until,
)

PARTITIONS = 30
#: the common znode, then each partition's and its state: transactions of 5 and 6 partitions
LIMITS = Limits(writes_per_transaction=12)
FOUND = StateFound(
    "orders", PARTITIONS - 1, Leadership(2, 7, (2,), 1), 7, 9, "written by somebody else", Cause.STATE_WRITTEN
)


def numbers_in(pieces: Sequence[Sequence[Committed]]) -> list[list[int]]:
    return [[one.change.partition for one in piece if isinstance(one.change, StateDecided)] for piece in pieces]


class Slow:
    """Answers to transactions are held from some number on, until they are let go."""

    def __init__(self, held_from: int) -> None:
        self.asked = 0
        self.let_go = asyncio.Event()
        self._held_from = held_from

    async def on_request(self, client: FakeClient, call: str) -> None:
        if call == "transact":
            self.asked += 1
            if self.asked > self._held_from:
                await self.let_go.wait()


async def test_landed_writes_are_believed_in_order_while_the_rest_is_on_its_way() -> None:
    server = await a_server()
    zk = await with_topic(server)
    store, _ = await a_store(server, zk, LIMITS)
    slow, pieces = Slow(2), list[Sequence[Committed]]()
    server.on_request = slow.on_request
    changes: list[Change] = [FOUND, *map(a_change, range(PARTITIONS))]
    committing = asyncio.create_task(store.commit(a_belief(PARTITIONS), changes, pieces.append))
    await until(lambda: len(pieces) == 2)
    assert not committing.done()
    assert numbers_in(pieces) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9, 10]]
    assert pieces[0][0] == Committed(FOUND), "a change without a write keeps its place"
    slow.let_go.set()
    result = await committing
    assert result.committed == [one for piece in pieces for one in piece]
    assert [one.change for one in result.committed] == changes


async def test_believing_a_landed_write_changes_no_other_write_of_its_step() -> None:
    server = await a_server()
    zk = await with_topic(server)
    store, _ = await a_store(server, zk, LIMITS)
    cluster = a_belief(PARTITIONS)
    changes: list[Change] = [FOUND, *map(a_change, range(PARTITIONS))]
    result = await store.commit(cluster, changes, cluster.apply)
    assert not result.unsettled, "the last partition was to be made, not to be set at the version just found"
    assert state_of(server, "orders", PARTITIONS - 1) is not None


async def test_a_conflict_leaves_out_only_itself_and_keeps_the_order() -> None:
    server = await a_server()
    zk = await with_topic(server)
    store, _ = await a_store(server, zk, LIMITS)
    for path in ("", "/7", "/7/state"):
        await zk.create(f"/brokers/topics/orders/partitions{path}", b"")
    pieces = list[Sequence[Committed]]()
    result = await store.commit(a_belief(PARTITIONS), [a_change(number) for number in range(PARTITIONS)], pieces.append)
    assert result.unsettled == [a_change(7)]
    assert list(chain(*numbers_in(pieces))) == [number for number in range(PARTITIONS) if number != 7]


async def test_a_fence_in_the_middle_leaves_only_landed_writes_believed() -> None:
    server = await a_server()
    zk = await with_topic(server)
    store, _ = await a_store(server, zk, LIMITS)
    other, cluster = await server.connect(), a_belief(PARTITIONS)
    partitions = cluster.topics["orders"].partitions
    slow = Slow(2)
    server.on_request = slow.on_request
    changes = [a_change(number) for number in range(PARTITIONS)]
    committing = asyncio.create_task(store.commit(cluster, changes, cluster.apply))
    await until(lambda: partitions[10].state is not None)
    server.on_request = None
    await other.delete("/controller", -1)
    slow.let_go.set()
    with pytest.raises(ExceptionGroup) as fenced:
        await committing
    assert fenced.group_contains(FencedError)
    believed = [number for number, one in partitions.items() if one.state is not None]
    landed = [number for number in range(PARTITIONS) if state_of(server, "orders", number) is not None]
    assert believed == landed == list(range(11))


async def test_no_broker_is_told_half_a_step() -> None:
    server = await a_server()
    for broker_id in (1, 2):
        await a_broker(server, broker_id)
    tool = await server.connect()
    async with a_controller(server, 1, limits=LIMITS) as node:
        await until(lambda: node.handle.is_active)
        node.heard.tellings.clear()
        slow = Slow(2)
        server.on_request = slow.on_request
        await tool.create("/brokers/topics/orders", topic_json(*[[1, 2]] * PARTITIONS))
        assert node.handle.cluster is not None
        topics = node.handle.cluster.topics
        await until(lambda: "orders" in topics and topics["orders"].partitions[10].state is not None)
        recorded = [line.partition for line in node.heard.lines if line.kind == "partition"]
        assert recorded == list(range(11)), "recorded as it is believed"
        assert topics["orders"].partitions[11].state is None, "ZooKeeper has not taken it yet"
        assert not node.heard.tellings
        slow.let_go.set()
        await until(lambda: node.heard.tellings)
        assert [len(rows) for _, told in node.heard.tellings for rows in told.metadata.values()] == [PARTITIONS]
