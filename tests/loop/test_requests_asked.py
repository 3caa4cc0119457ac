"""Requests through the handle of the process: each is done and durable, refused, or unknown. None is silent."""

from __future__ import annotations

import asyncio

import pytest

from controller.base.config import Limits
from controller.core.codes import Code
from controller.core.events import (
    AlterPartitionAsked,
    ConfigAsked,
    CreateTopicAsked,
    DeleteTopicAsked,
    DrainAsked,
    ElectAsked,
    Event,
    GrowTopicAsked,
    ReassignAsked,
    UndrainAsked,
)
from controller.loop.inbox import (
    BusyError,
    IsrReply,
    NotControllerError,
    OutcomesReply,
    Reply,
    ShutdownReply,
)
from controller.wire import bodies
from tests.loop.admin_site import (
    a_site,
    belief,
    leading,
    proposal_for,
)
from tests.support.harness import (
    a_controller,
    a_server,
    settled,
    state_of,
    until,
)
from tests.support.znodes import generic

UNKNOWN = Code.UNKNOWN_TOPIC_OR_PARTITION


def outcomes(reply: Reply) -> dict[tuple[str, int], Code]:
    assert isinstance(reply, OutcomesReply)
    return {(one.topic, one.partition): one.code for one in reply.outcomes}


# ---------------------------------------------------------------------- done


async def test_a_topic_created_twice_the_same_way_is_done_twice() -> None:
    async with leading(await a_site()) as node:
        for _ in range(2):
            assert (await node.ask(CreateTopicAsked("orders", assignment={0: (1, 2)}))).code is Code.NONE


async def test_a_topic_that_was_grown_is_led_when_the_answer_comes() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        assert (await node.ask(GrowTopicAsked("orders", 3))).code is Code.NONE
        assert all(state_of(site.server, "orders", number) for number in range(3))


async def test_a_deletion_is_durable_when_the_answer_comes() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        assert (await node.ask(DeleteTopicAsked("orders"))).code is Code.NONE
        assert site.server.read("/admin/delete_topics/orders") == b""


async def test_a_granted_isr_is_answered_with_the_standing_state() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        reply = await node.ask(AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal_for(node, 1)]))
        assert isinstance(reply, IsrReply)
        [row] = reply.topics[0].partitions
        assert (row.error_code, row.isr, row.version) == (Code.NONE, (1,), 1)
        assert (state_of(site.server, "orders", 0) or {})["isr"] == [1]


async def test_a_shutdown_is_answered_with_the_remaining_leaderships() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2], [3, 1])
        site.die(2)
        await until(lambda: (state_of(site.server, "orders", 0) or {}).get("isr") == [1])
        shutdown = DrainAsked(1, belief(node).brokers[1].epoch, is_shutdown=True)
        reply = await node.ask(shutdown)
        assert isinstance(reply, ShutdownReply)
        assert reply.remaining == [bodies.RemainingPartition("orders", 0)]
        assert (state_of(site.server, "orders", 1) or {})["isr"] == [3]
        again = await node.ask(shutdown)
        assert isinstance(again, ShutdownReply)
        assert again.remaining == reply.remaining


async def test_a_drain_and_its_end_are_written_down_when_the_answer_comes() -> None:
    site = await a_site()
    async with leading(site) as node:
        assert (await node.ask(DrainAsked(1))).code is Code.NONE
        assert site.server.read("/klamm/draining/1") is not None
        assert (await node.ask(UndrainAsked(1))).code is Code.NONE
        assert site.server.read("/klamm/draining/1") is None


async def test_each_partition_of_an_election_has_its_outcome() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2], [2, 1])
        await node.ask(DrainAsked(1))
        await node.ask(UndrainAsked(1))
        reply = await node.ask(ElectAsked(False, [("orders", 0), ("orders", 1), ("nothing", 0)]))
        assert outcomes(reply) == {
            ("orders", 0): Code.NONE,
            ("orders", 1): Code.ELECTION_NOT_NEEDED,
            ("nothing", 0): UNKNOWN,
        }
        assert site.leader("orders") == 1


async def test_an_election_of_all_names_only_those_it_was_about() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2], [2, 1], [1])
        await node.ask(DrainAsked(1))
        assert outcomes(await node.ask(ElectAsked(False))) == {("orders", 0): Code.PREFERRED_LEADER_NOT_AVAILABLE}
        await node.ask(UndrainAsked(1))
        assert outcomes(await node.ask(ElectAsked(False))) == {("orders", 0): Code.NONE}
        assert outcomes(await node.ask(ElectAsked(False))) == {}


async def test_a_reassignment_is_written_down_when_the_answer_comes() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        reply = await node.ask(ReassignAsked({("orders", 0): (1, 3), ("nothing", 0): (1,)}))
        assert outcomes(reply) == {("orders", 0): Code.NONE, ("nothing", 0): UNKNOWN}
        topic = generic(site.server.read("/brokers/topics/orders") or b"")
        assert (topic["adding_replicas"], topic["removing_replicas"]) == ({"0": [3]}, {"0": [2]})


async def test_a_configuration_is_written_and_announced_as_kafkas_tools_do() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        for entity in (("topics", "orders"), ("brokers", "1"), ("brokers", "<default>")):
            assert (await node.ask(ConfigAsked(*entity, {"retention.ms": "1"}))).code is Code.NONE
            assert generic(site.server.read("/".join(("/config", *entity))) or b"") == {
                "version": 1,
                "config": {"retention.ms": "1"},
            }
        announced = [site.server.read(f"/config/changes/{name}") or b"" for name in site.names("/config/changes")]
        assert [generic(one)["entity_path"] for one in announced] == ["topics/orders", "brokers/1", "brokers/<default>"]
        assert (await node.ask(ConfigAsked("brokers", "1", {"retention.ms": "1"}))).detail == "stands already"


@pytest.mark.parametrize("entity", [("topics", "orders"), ("brokers", "1"), ("brokers", "<default>")])
async def test_a_configuration_that_a_tool_changed_without_announcing_it_is_read_before_it_is_written(
    entity: tuple[str, str],
) -> None:
    """Kafka's brokers read it before, too: what the tool wrote stays, and what it removed is not taken to stand."""
    site, path = await a_site(), "/".join(("/config", *entity))
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        assert (await node.ask(ConfigAsked(*entity, {"retention.ms": "1"}))).code is Code.NONE
        await settled()  # our own notification is read
        await site.write(path, {"version": 1, "config": {"retention.ms": "1", "segment.ms": "2"}})
        assert (await node.ask(ConfigAsked(*entity, {"retention.ms": "3"}))).code is Code.NONE
        assert generic(site.server.read(path) or b"")["config"] == {"retention.ms": "3", "segment.ms": "2"}
        await settled()
        await site.tool.delete(path, -1)
        assert (await node.ask(ConfigAsked(*entity, {"retention.ms": "3"}))).detail != "stands already"
        assert generic(site.server.read(path) or b"")["config"] == {"retention.ms": "3"}


# ---------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (CreateTopicAsked("a/b", partitions=1, replication_factor=1), Code.INVALID_TOPIC_EXCEPTION),
        (CreateTopicAsked("orders", partitions=7, replication_factor=1), Code.TOPIC_ALREADY_EXISTS),
        (CreateTopicAsked("users", partitions=1, replication_factor=4), Code.INVALID_REPLICATION_FACTOR),
        (GrowTopicAsked("nothing", 3), UNKNOWN),
        (GrowTopicAsked("orders", 1), Code.INVALID_PARTITIONS),
        (DeleteTopicAsked("nothing"), UNKNOWN),
        (DrainAsked(9), Code.BROKER_NOT_AVAILABLE),
        (DrainAsked(1, 0, is_shutdown=True), Code.STALE_BROKER_EPOCH),
        (ConfigAsked("topics", "nothing", {}), UNKNOWN),
        (AlterPartitionAsked(1, 0, []), Code.STALE_BROKER_EPOCH),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Event) else None,
)
async def test_a_refusal_has_a_code_and_a_reason_and_writes_nothing(event: Event, code: Code) -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2], [2, 1])
        await settled()
        commits = len(site.server.history)
        reply = await node.ask(event)
        assert (reply.code, reply.is_unknown) == (code, False)
        assert reply.detail
        assert len(site.server.history) == commits


async def test_a_refused_shutdown_has_the_code_on_the_wire_too() -> None:
    async with leading(await a_site()) as node:
        reply = await node.ask(DrainAsked(1, 0, is_shutdown=True))
        assert reply.code is Code.STALE_BROKER_EPOCH


async def test_a_process_that_is_not_the_controller_says_so() -> None:
    server = await a_server()
    async with a_controller(server, 1) as one, a_controller(server, 2) as two:
        await until(lambda: one.handle.is_active or two.handle.is_active)
        standby = two if one.handle.is_active else one
        with pytest.raises(NotControllerError):
            await standby.ask(ElectAsked(False))


async def test_more_requests_than_the_queue_holds_are_turned_away_at_once() -> None:
    site = await a_site()
    async with leading(site, limits=Limits(requests_queued=2)) as node:
        asking = [asyncio.create_task(node.ask(DrainAsked(broker_id))) for broker_id in (1, 2, 3)]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(one) for one in answers] == [Reply, Reply, BusyError]
