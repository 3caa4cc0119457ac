"""The controller's server in Kafka's protocol, asked by another codec, deciding on a fake ZooKeeper.

Requests of brokers and administrators become the same events as by HTTP; a malformed request ends its own connection
and nothing else.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from controller.core.codes import Code
from controller.kafka.protocol.codec import uuid_of
from tests.kafka import kafka_support as kio
from tests.kafka.kafka_world import SECOND, a_world, create
from tests.loop.admin_site import belief
from tests.support.harness import until


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_served_requests_are_listed_in_each_version_that_clients_ask_in(version: int) -> None:
    async with a_world() as world:
        fields = {"client_software_name": "x", "client_software_version": "1"} if version == 3 else {}
        answer = await (await world.client()).ask("api_versions", version, "ApiVersionsRequest", **fields)
        listed = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        assert listed == {
            3: (0, 12), 7: (3, 3), 16: (0, 5), 18: (0, 3), 19: (2, 7), 20: (1, 6), 37: (0, 3), 43: (0, 2), 45: (0, 0),
            46: (0, 0), 56: (0, 3), 66: (0, 1), 67: (0, 0),
        }  # fmt: skip


async def test_an_unknown_version_of_the_list_is_answered_in_the_oldest() -> None:
    async with a_world() as world:
        answer = await (await world.client()).raw(kio.request_header(18, 9, 5, "new", 1))
        assert answer is not None
        message = kio.read(kio.schema("api_versions", 0, "response").ApiVersionsResponse, answer[4:])
        assert message.error_code == 35
        assert 18 in {one.api_key for one in message.api_keys}


async def test_partitions_are_reassigned_listed_and_brought_back() -> None:
    async with a_world() as world:
        client = await world.client()
        await create(client, "orders", {0: (2, 1)})
        m = kio.schema("alter_partition_reassignments", 0, "request")
        name = "AlterPartitionReassignmentsRequest"

        async def reassign(number: int, replicas: tuple[int, ...] | None) -> Any:
            row = m.ReassignablePartition(partition_index=number, replicas=replicas)
            topics = (m.ReassignableTopic(name="orders", partitions=(row,)),)
            answer = await client.ask("alter_partition_reassignments", 0, name, topics=topics, timeout=SECOND)
            assert answer.error_code == 0
            return [(one.partition_index, one.error_code) for t in answer.responses for one in t.partitions]

        async def running() -> Any:
            fields = {"topics": None, "timeout": SECOND}
            answer = await client.ask("list_partition_reassignments", 0, "ListPartitionReassignmentsRequest", **fields)
            return [
                (one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
                for topic in answer.topics
                for one in topic.partitions
            ]

        assert await reassign(0, (3, 1)) == [(0, 0)]
        assert await running() == [(0, (3, 1, 2), (3,), (2,))]
        assert await reassign(0, None) == [(0, 0)]
        assert await running() == []
        assert await reassign(0, None) == [(0, Code.NO_REASSIGNMENT_IN_PROGRESS)]
        assert await reassign(9, (1,)) == [(9, Code.UNKNOWN_TOPIC_OR_PARTITION)]
        assert await reassign(0, (1, 77)) == [(0, Code.INVALID_REPLICA_ASSIGNMENT)]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_leaders_are_elected_and_partitions_without_need_say_so(version: int) -> None:
    async with a_world() as world:
        client = await world.client()
        await create(client, "orders", {0: (2, 1)})
        m = kio.schema("elect_leaders", version, "request")
        kind = {"election_type": 0} if version >= 1 else {}
        for topics, found in (
            ((m.TopicPartitions(topic="orders", partitions=(0, 7)),), [(0, 84), (7, 3)]),
            (None, []),
        ):
            fields = {"topic_partitions": topics, "timeout": SECOND, **kind}
            answer = await client.ask("elect_leaders", version, "ElectLeadersRequest", **fields)
            results = [
                (one.partition_id, one.error_code)
                for t in answer.replica_election_results
                for one in t.partition_result
            ]
            assert results == found


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_an_isr_is_changed_as_its_leader_asks_in_every_version(version: int) -> None:
    async with a_world() as world:
        client = await world.client()
        await create(client, "orders", {0: (2, 1, 3)})
        cluster = belief(world.node)
        topic_id = uuid.UUID(bytes=uuid_of(cluster.topics["orders"].topic_id or ""))
        m = kio.schema("alter_partition", version, "request")
        isr: dict[str, object] = {"new_isr": (2, 3)}
        if version >= 3:  # the leader knows its own registration, and not that of the other
            states = ((2, cluster.brokers[2].epoch), (3, -1))
            isr = {"new_isr_with_epochs": tuple(m.BrokerState(broker_id=b, broker_epoch=e) for b, e in states)}
        recovery = {"leader_recovery_state": 0} if version >= 1 else {}
        row = m.PartitionData(partition_index=0, leader_epoch=0, partition_epoch=0, **isr, **recovery)
        named = {"topic_id": topic_id} if version >= 2 else {"topic_name": "orders"}
        for epoch, code in ((cluster.brokers[2].epoch, 0), (cluster.brokers[2].epoch - 1, 77)):
            fields = {"broker_id": 2, "broker_epoch": epoch, "topics": (m.TopicData(partitions=(row,), **named),)}
            answer = await client.ask("alter_partition", version, "AlterPartitionRequest", **fields)
            assert answer.error_code == code
            if code == 0:
                [done] = answer.topics[0].partitions
                assert (done.error_code, done.leader_id, done.isr, done.partition_epoch) == (0, 2, (2, 3), 1)
        assert (cluster.topics["orders"].partitions[0].state or row).isr == (2, 3)


async def test_a_broker_shuts_down_with_leave_and_gets_producer_ids_before() -> None:
    async with a_world() as world:
        client = await world.client()
        await create(client, "orders", {0: (2, 1)})
        epoch = belief(world.node).brokers[2].epoch
        who = {"broker_id": 2, "broker_epoch": epoch}
        block = await client.ask("allocate_producer_ids", 0, "AllocateProducerIdsRequest", **who)
        assert (block.error_code, block.producer_id_start, block.producer_id_len) == (0, 0, 1000)
        done = await client.ask("controlled_shutdown", 3, "ControlledShutdownRequest", **who)
        assert (done.error_code, done.remaining_partitions) == (0, ())
        assert world.site.leader("orders", 0) == 1
        stale = {"broker_id": 2, "broker_epoch": epoch - 1}
        assert (await client.ask("controlled_shutdown", 3, "ControlledShutdownRequest", **stale)).error_code == 77


async def test_a_request_for_any_broker_is_passed_on_as_it_is() -> None:
    async with a_world() as world:
        frame = kio.request_header(3, 12, 77, "c")
        assert await (await world.client()).raw(frame) == struct.pack(">i", 77) + b"passed on"


GARBAGE = {
    "an API that is not served": kio.request_header(0, 9, 1, "c"),
    "a version that is not served": kio.request_header(19, 8, 1, "c"),
    "cut off": kio.request_header(19, 7, 1, "c"),
    "a length that lies": kio.request_header(19, 7, 1, "c") + b"\xff\xff\xff\xff\x0f",
    "no client id": struct.pack(">hhih", 19, 7, 1, 30_000),
    "too short": b"\0\0",
    "more text than there is": kio.request_header(19, 7, 1, "c") + b"\x02\x7fabc",
    "no text": kio.request_header(19, 7, 1, "c") + b"\x02\x03\xff\xff",
}


@pytest.mark.parametrize("frame", GARBAGE.values(), ids=GARBAGE)
async def test_a_malformed_request_ends_its_connection_and_no_other(frame: bytes) -> None:
    async with a_world() as world:
        other, client = await world.client(), await world.client()
        assert await client.raw(frame) is None
        assert (await create(other, "orders", {0: (2, 1)})).error_code == 0


async def test_a_frame_over_the_limit_is_not_read() -> None:
    async with a_world(rpc_body_max_bytes=100) as world:
        assert await (await world.client()).raw(bytes(101)) is None


async def test_a_standby_refuses_as_kafka_does() -> None:
    async with a_world() as world:
        client = await world.client()
        world.site.server.expire(world.node.zk)
        await until(lambda: not world.node.handle.is_active)
        assert (await create(client, "orders", {0: (2, 1)})).error_code == Code.NOT_CONTROLLER
        m = kio.schema("delete_topics", 6, "request")
        states = (m.DeleteTopicState(name=None, topic_id=uuid.uuid4()),)
        answer = await client.ask("delete_topics", 6, "DeleteTopicsRequest", topics=states, timeout=SECOND)
        assert answer.responses[0].error_code == Code.NOT_CONTROLLER


@pytest.mark.parametrize("version", range(5))
async def test_the_controller_lists_no_groups_of_its_own(version: int) -> None:
    """Clients ask every broker and add the answers up: a broker's, passed on, would be counted twice."""
    async with a_world() as world:
        client = await world.client()
        fields = {"states_filter": ("Stable",)} if version >= 4 else {}
        answer = await client.ask("list_groups", version, "ListGroupsRequest", **fields)
        assert (answer.error_code, answer.groups) == (kio.error(0), ())


async def test_the_controller_lists_no_transactions_of_its_own() -> None:
    async with a_world() as world:
        client = await world.client()
        filters = {"state_filters": ("Ongoing",), "producer_id_filters": ()}
        answer = await client.ask("list_transactions", 0, "ListTransactionsRequest", **filters)
        assert (answer.error_code, answer.transaction_states) == (kio.error(0), ())
