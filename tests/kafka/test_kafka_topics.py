"""Topics made, grown and deleted in Kafka's protocol, by another codec, with Kafka's answers and refusals."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from controller.core.codes import Code
from controller.core.events import ConfigAsked
from controller.kafka.protocol.codec import uuid_of
from tests.kafka import kafka_support as kio
from tests.kafka.kafka_world import (
    SECOND,
    Client,
    a_world,
    create,
)
from tests.loop.admin_site import belief
from tests.support.harness import until


@pytest.mark.parametrize("version", [2, 4, 5, 7])
async def test_a_topic_is_created_as_by_http_and_a_second_time_refused_as_kafka_does(version: int) -> None:
    async with a_world() as world:
        client = await world.client()
        done = await create(client, "orders", {0: (2, 1), 1: (3, 2)}, version)
        assert (done.name, done.error_code) == ("orders", 0)
        if version >= 7:
            assert done.topic_id == uuid.UUID(bytes=uuid_of(belief(world.node).topics["orders"].topic_id or ""))
        assert world.site.leader("orders", 1) == 3, "answered when it is led"
        assert belief(world.node).duties.topic_configs["orders"] == {"retention.ms": "60000"}
        again = await create(client, "orders", {0: (2, 1)}, version)
        assert (again.error_code, again.error_message) == (36, "Topic 'orders' already exists.")
        assert (await create(client, "no/name", {0: (2, 1)}, version)).error_code == Code.INVALID_TOPIC_EXCEPTION


async def test_topics_grow_are_deleted_by_name_and_by_id() -> None:
    async with a_world() as world:
        client = await world.client()
        done = await create(client, "orders", {0: (2, 1)})
        await create(client, "users", {0: (2, 1)})
        m = kio.schema("create_partitions", 3, "request")
        for count, code in ((3, 0), (3, 37), (2, 37)):
            topic = m.CreatePartitionsTopic(name="orders", count=count, assignments=None)
            fields = {"topics": (topic,), "timeout": SECOND, "validate_only": False}
            answer = await client.ask("create_partitions", 3, "CreatePartitionsRequest", **fields)
            assert answer.results[0].error_code == code
        assert len(belief(world.node).topics["orders"].partitions) == 3
        m = kio.schema("delete_topics", 6, "request")
        states = (
            m.DeleteTopicState(name=None, topic_id=done.topic_id),
            m.DeleteTopicState(name="users", topic_id=None),
            m.DeleteTopicState(name="nothing", topic_id=None),
            m.DeleteTopicState(name=None, topic_id=uuid.uuid4()),
        )
        answer = await client.ask("delete_topics", 6, "DeleteTopicsRequest", topics=states, timeout=SECOND)
        assert [(one.name, one.error_code) for one in answer.responses] == [
            ("orders", 0), ("users", 0), ("nothing", 3), (None, 100),
        ]  # fmt: skip
        await until(lambda: set(belief(world.node).duties.deletions) == {"orders", "users"})


async def test_a_deletion_that_a_reassignment_holds_up_is_answered_when_its_time_is_over() -> None:
    async with a_world() as world:
        client = await world.client()
        await create(client, "orders", {0: (2, 1)})
        row = kio.schema("alter_partition_reassignments", 0, "request")
        moved = row.ReassignablePartition(partition_index=0, replicas=(3, 1))
        topics = (row.ReassignableTopic(name="orders", partitions=(moved,)),)
        name = "AlterPartitionReassignmentsRequest"
        await client.ask("alter_partition_reassignments", 0, name, topics=topics, timeout=SECOND)
        assert await deleted(client, "orders", timedelta(milliseconds=30)) == Code.REQUEST_TIMED_OUT
        assert "orders" in belief(world.node).duties.deletions, "it goes on by itself"


async def deleted(client: Client, name: str, timeout: timedelta) -> int:
    answer = await client.ask("delete_topics", 5, "DeleteTopicsRequest", topic_names=(name,), timeout=timeout)
    return int(answer.responses[0].error_code)


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ({"no.such.key": "1"}, "Unknown topic config name: no.such.key"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        (
            {"min.insync.replicas": "0"},
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
    ],
)
async def test_a_configuration_that_no_broker_could_read_is_refused(configs: dict[str, str | None], said: str) -> None:
    async with a_world() as world:
        client = await world.client()
        for is_trial in (True, False):
            refused = await create(client, "orders", {0: (2, 1)}, is_trial=is_trial, configs=configs)
            assert (refused.error_code, refused.error_message) == (Code.INVALID_CONFIG, said)
        assert "orders" not in belief(world.node).topics


async def test_a_configuration_is_changed_only_to_values_that_brokers_can_read() -> None:
    async with a_world() as world:
        await create(await world.client(), "orders", {0: (2, 1)}, configs={"retention.ms": "1"})

        async def changed(**values: str | None) -> Code:
            named = {name.replace("_", "."): value for name, value in values.items()}
            return (await world.node.ask(ConfigAsked("topics", "orders", named))).code

        assert await changed(retention_ms="abc") is Code.INVALID_CONFIG
        assert await changed(retention_ms=None, segment_bytes="14") is Code.NONE
        assert belief(world.node).duties.topic_configs["orders"] == {"segment.bytes": "14"}


@pytest.mark.parametrize(
    ("counts", "code", "made"),
    [
        ((-1, -1), 0, (4, 2)),
        ((3, -1), 0, (3, 2)),
        ((-1, 1), 0, (4, 1)),
        ((-2, 1), Code.INVALID_PARTITIONS, None),
        ((0, 1), Code.INVALID_PARTITIONS, None),
        ((1, -2), Code.INVALID_REPLICATION_FACTOR, None),
        ((1, 0), Code.INVALID_REPLICATION_FACTOR, None),
    ],
)
async def test_counts_that_are_left_open_are_the_controllers(
    counts: tuple[int, int], code: int, made: tuple[int, int] | None
) -> None:
    """Which has 4 partitions and 2 replicas in its properties."""
    async with a_world() as world:
        answer = await create(await world.client(), "orders", {}, counts=counts)
        assert answer.error_code == code
        topic = belief(world.node).topics.get("orders")
        assert made == (None if topic is None else (len(topic.partitions), len(topic.partitions[0].replicas)))


async def test_counts_beside_an_assignment_are_refused() -> None:
    async with a_world() as world:
        answer = await create(await world.client(), "orders", {0: (2, 1)}, counts=(1, -1))
        assert answer.error_code == Code.INVALID_REQUEST
