"""A term on the fake ZooKeeper: claiming, loading, deciding, committing, and every way it can end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.base.config import Limits
from controller.core.codes import Code
from controller.core.events import CreateTopicAsked
from controller.loop.inbox import BusyError, NotControllerError
from controller.term import daemon
from tests.support.harness import (
    a_broker,
    a_controller,
    a_server,
    settled,
    state_of,
    topic_json,
    until,
)
from tests.support.znodes import generic


async def test_the_first_claim_has_epoch_1_and_kafkas_json() -> None:
    server = await a_server()
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        assert server.read("/controller_epoch") == b"1"
        seat = server.read("/controller")
        assert seat is not None
        assert b'"brokerid":1' in seat
        assert b'"kraftControllerEpoch":-1' in seat
        assert node.handle.controller_epoch == 1


async def test_a_term_lasts_as_long_as_its_own_clock_says() -> None:
    server = await a_server()
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        assert node.handle.term is not None
        server.clock.advance(1.5)
        await settled()
        assert node.handle.term.age_ms == 1_500


async def test_one_of_three_wins_and_the_others_stand_by() -> None:
    server = await a_server()
    async with a_controller(server, 1) as one, a_controller(server, 2) as two, a_controller(server, 3) as three:
        await until(lambda: any(node.handle.is_active for node in (one, two, three)))
        await settled()
        assert sum(node.handle.is_active for node in (one, two, three)) == 1
        assert server.read("/controller_epoch") == b"1"


async def test_a_claim_that_comes_too_late_logs_the_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await a_server()
    other = await server.connect()
    claim = daemon.claim

    async def claim_late(*given: Any) -> Any:
        if server.read("/controller") is None:
            faster = b'{"version":2,"brokerid":9,"timestamp":"1","kraftControllerEpoch":-1}'
            await other.create("/controller", faster, ephemeral=True)
        return await claim(*given)

    monkeypatch.setattr(daemon, "claim", claim_late)
    with capture_logs() as logs:
        async with a_controller(server, 1):
            await until(lambda: any(one["event"] == "seat.lost" for one in logs))
    assert [one["winner"] for one in logs if one["event"] == "seat.lost"] == [9]


async def test_a_seat_that_was_given_up_again_meanwhile_is_raced_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await a_server()
    claim, calls = daemon.claim, 0

    async def overtaken_once(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        return None if calls == 1 else await claim(*given)

    monkeypatch.setattr(daemon, "claim", overtaken_once)
    with capture_logs() as logs:
        async with a_controller(server, 1) as node:
            await until(lambda: node.handle.is_active)
    said = [(one["event"], one["log_level"]) for one in logs if one["event"].startswith("seat.")]
    assert said[:2] == [("seat.given_up", "warning"), ("seat.won", "info")]


async def test_a_topic_written_by_a_tool_comes_online() -> None:
    server = await a_server()
    for broker_id in (1, 2, 3):
        await a_broker(server, broker_id)
    tool = await server.connect()
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        await tool.create("/brokers/topics/orders", topic_json([1, 2, 3], [2, 3, 1]))
        await until(lambda: state_of(server, "orders", 1))
        assert state_of(server, "orders", 0) == {
            "controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1, 2, 3],
        }  # fmt: skip


async def test_a_broker_that_dies_within_the_first_second_of_a_term_together_with_it_is_known_to_the_next() -> None:
    """The clock stands: a tool's reassignment names the broker, and waits for it."""
    server = await a_server()
    tool = await server.connect()
    await a_broker(server, 1)
    second = await a_broker(server, 2)
    async with a_controller(server, 3) as node:
        await until(lambda: node.handle.is_active)
        await tool.create("/brokers/topics/orders", topic_json([1]))
        await until(lambda: state_of(server, "orders", 0))
    for session in (node.zk, second):
        server.expire(session)
    asked = b'{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2]}]}'
    await tool.create("/admin/reassign_partitions", asked)
    async with a_controller(server, 4) as node:
        await until(lambda: node.handle.is_active)
        await until(lambda: (state_of(server, "orders", 0) or {}).get("leader_epoch") == 1)
        assert generic(server.read("/brokers/topics/orders") or b"")["partitions"] == {"0": [2, 1]}
        assert server.read("/admin/reassign_partitions") is not None


async def test_a_topic_asked_for_is_durable_and_led_when_the_answer_comes() -> None:
    server = await a_server()
    for broker_id in (1, 2, 3):
        await a_broker(server, broker_id)
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        request = CreateTopicAsked("orders", partitions=3, replication_factor=3, configs={"retention.ms": "1"})
        assert (await node.ask(request)).code is Code.NONE
        assert server.read("/config/topics/orders") == b'{"config":{"retention.ms":"1"},"version":1}'
        assert all(state_of(server, "orders", number) for number in range(3))
        again = await node.ask(request)
        assert (again.code, again.detail) == (Code.NONE, "exists")


async def test_a_broker_that_dies_loses_its_leaderships_in_one_epoch_step() -> None:
    server = await a_server()
    sessions = {broker_id: await a_broker(server, broker_id) for broker_id in (1, 2, 3)}
    tool = await server.connect()
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        await tool.create("/brokers/topics/orders", topic_json([2, 3, 1]))
        await until(lambda: state_of(server, "orders", 0))
        server.expire(sessions[2])
        await until(lambda: (state_of(server, "orders", 0) or {}).get("leader") == 3)
        assert state_of(server, "orders", 0) == {
            "controller_epoch": 1, "leader": 3, "version": 1, "leader_epoch": 1, "isr": [3, 1],
        }  # fmt: skip


async def test_a_successor_elects_for_leaders_that_died_before_it_came() -> None:
    server = await a_server()
    sessions = {broker_id: await a_broker(server, broker_id) for broker_id in (1, 2, 3)}
    tool = await server.connect()
    async with a_controller(server, 1) as first:
        await until(lambda: first.handle.is_active)
        await tool.create("/brokers/topics/orders", topic_json([1, 2, 3]))
        await until(lambda: state_of(server, "orders", 0))
        async with a_controller(server, 2, zk=sessions[2]) as second:
            await settled()
            server.expire(first.zk)
            server.expire(sessions[1])
            await until(lambda: second.handle.is_active)
            assert server.read("/controller_epoch") == b"2"
            assert state_of(server, "orders", 0) == {
                "controller_epoch": 2, "leader": 2, "version": 1, "leader_epoch": 1, "isr": [2, 3],
            }  # fmt: skip
            assert any(line.reason == "found" and line.controller_epoch == 1 for line in second.heard.lines)


async def test_a_seat_deleted_by_hand_ends_the_term_and_is_claimed_anew() -> None:
    server = await a_server()
    tool = await server.connect()
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        await tool.delete("/controller", -1)
        await until(lambda: len(node.heard.guards) == 2)
        assert node.handle.controller_epoch == 2
        assert node.heard.guards[0].reason is not None


@pytest.fixture
def collects_only_when_told() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.set_threshold(0)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("collects_only_when_told")
async def test_a_terms_belief_is_gone_with_it() -> None:
    server = await a_server()
    tool = await server.connect()
    async with a_controller(server, 1, limits=Limits(frozen_partitions_min=0)) as node:
        await until(lambda: node.handle.is_active)
        assert gc.get_freeze_count() > 0
        cluster: Any = node.handle.cluster
        cluster.cycle = cluster  # as the tasks of a large term are, and how they ended
        belief = weakref.ref(cluster)
        del cluster
        await tool.delete("/controller", -1)
        await until(lambda: node.handle.controller_epoch == 2)
        assert belief() is None


async def test_a_cut_off_controller_stops_by_its_own_clock() -> None:
    server = await a_server()
    for broker_id in (1, 2):
        await a_broker(server, broker_id)
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        server.disconnect(node.zk)
        with pytest.raises(BusyError):
            await node.ask(CreateTopicAsked("late", partitions=1, replication_factor=1))
        server.clock.advance(4.1)
        await until(lambda: node.handle.phase == "standby")
        with pytest.raises(NotControllerError):
            await node.ask(CreateTopicAsked("late", partitions=1, replication_factor=1))


async def test_an_answer_lost_in_a_commit_is_found_to_have_landed() -> None:
    server = await a_server()
    for broker_id in (1, 2, 3):
        await a_broker(server, broker_id)
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        await settled()
        node.zk.lose_next_answer()
        request = CreateTopicAsked("orders", partitions=1, replication_factor=3)
        asking = asyncio.create_task(node.ask(request))
        await settled()
        server.reconnect(node.zk)
        assert (await asking).code is Code.NONE
        assert state_of(server, "orders", 0) is not None
        creations = [
            commit for commit in server.history if any(op.path == "/brokers/topics/orders" for op in commit.ops)
        ]
        assert len(creations) == 1
