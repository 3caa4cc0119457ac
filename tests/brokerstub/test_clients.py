"""A broker's answers to Kafka's clients, asked by another codec in each version that it serves."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import brokerstub.clients.cluster as clients
from brokerstub.clients.apis import table
from brokerstub.clients.writing import ProducerIdBlocks
from controller.base.config import BrokerConfig
from controller.core.codes import Code
from controller.kafka.protocol.codec import uuid_of
from controller.wire import bodies
from controller.wire.bodies import StatesRequest
from controller.wire.signing import Signer
from tests.brokerstub.cluster import OBEYED
from tests.brokerstub.records_world import World, a_world, fetch, produce
from tests.brokerstub.support import eventually, row, topic
from tests.kafka import kafka_support as kio
from tests.records.support import START, a_batch, read_by_kio

TOPIC_ID = "J9O745lFWI4tz2iztAHLJg"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as world:
        yield world


def values_in(answer: Any) -> list[bytes | None]:
    return [record.value for batch in read_by_kio(answer.records or b"") for record in batch.records]


@pytest.mark.parametrize("version", range(4))
async def test_api_versions_lists_the_served_requests(world: World, version: int) -> None:
    fields = {"client_software_name": "x", "client_software_version": "1"} if version == 3 else {}
    answer = await (await world.client()).ask("api_versions", version, "ApiVersionsRequest", **fields)
    assert {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys} == {
        0: (3, 9), 1: (4, 12), 2: (1, 7), 3: (1, 12), 10: (1, 3), 16: (0, 5), 18: (0, 3), 19: (2, 7), 20: (1, 6),
        22: (0, 4), 23: (2, 4), 32: (1, 4), 37: (0, 3), 43: (0, 2), 45: (0, 0), 46: (0, 0), 60: (0, 0), 66: (0, 1),
    }  # fmt: skip


async def test_changes_of_a_cluster_that_a_token_guards_go_by_http(world: World) -> None:
    broker, logs = world.nodes[1].broker, world.logs(1)
    config = BrokerConfig(zookeeper_connect="", log_dirs="d")
    blocks = ProducerIdBlocks(broker, world.http, Signer())

    def served(*, is_guarded: bool) -> set[int]:
        return set(table(config, broker, logs, world.handle, blocks, "PLAINTEXT", is_guarded=is_guarded))

    assert served(is_guarded=False) - served(is_guarded=True) == {19, 20, 37, 43, 45, 46}


@pytest.mark.parametrize("version", range(3, 10))
async def test_a_batch_is_written_in_each_version(world: World, version: int) -> None:
    client = await world.client()
    for base in (0, 2):
        answer = await produce(client, b"a", b"b", version=version)
        assert (answer.error_code, answer.base_offset) == (0, base)
    assert values_in(await fetch(client)) == [b"a", b"b"] * 2


@pytest.mark.parametrize("version", range(4, 13))
async def test_records_are_read_in_each_version(world: World, version: int) -> None:
    client = await world.client()
    await produce(client, b"a", b"b")
    answer = await fetch(client, 1, version=version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 2, 2)
    assert values_in(answer) == [b"a", b"b"]  # whole batches


async def test_a_consumer_at_the_end_waits_for_new_records(world: World) -> None:
    reader, writer = await world.client(), await world.client()
    waiting = asyncio.ensure_future(fetch(reader, wait_ms=30_000))
    one = world.logs(1).of("orders", 0)
    await eventually(lambda: one._watchers)
    await produce(writer, b"late")
    assert values_in(await waiting) == [b"late"]
    assert not one._watchers


async def test_no_fetch_waits_longer_than_asked(world: World) -> None:
    answer = await fetch(await world.client(), wait_ms=1)
    assert (answer.error_code, answer.records) == (0, b"")


async def test_an_offset_that_is_not_there_is_out_of_range(world: World) -> None:
    assert (await fetch(await world.client(), 1)).error_code == Code.OFFSET_OUT_OF_RANGE


async def test_only_the_leader_writes_and_reads(world: World) -> None:
    follower = await world.client(2)
    assert (await produce(follower)).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert (await fetch(follower)).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert world.ends() == {1: (0, 0), 2: (0, 0), 3: (0, 0)}


async def test_the_leader_epoch_that_a_consumer_believes_in_is_checked(world: World) -> None:
    await world.lead(1, 2)
    client = await world.client()
    codes = [(await fetch(client, leader_epoch=epoch)).error_code for epoch in (1, 2, 3)]
    assert codes == [Code.FENCED_LEADER_EPOCH, Code.NONE, Code.UNKNOWN_LEADER_EPOCH]


async def test_a_batch_that_is_none_is_refused_and_the_connection_goes_on(world: World) -> None:
    client = await world.client()
    spoiled = bytearray(a_batch())
    spoiled[-1] ^= 1
    assert (await produce(client, data=bytes(spoiled))).error_code == Code.CORRUPT_MESSAGE
    assert (await produce(client, data=b"nonsense")).error_code == Code.CORRUPT_MESSAGE
    assert (await produce(client, acks=2)).error_code == Code.INVALID_REQUIRED_ACKS
    assert (await produce(client)).base_offset == 0


async def test_a_batch_too_large_for_its_topic_is_refused(tmp_path: Path) -> None:
    async with a_world(tmp_path, {"max_message_bytes": "100"}) as world:
        assert (await produce(await world.client(), b"x" * 100)).error_code == Code.MESSAGE_TOO_LARGE


async def test_acks_0_gets_no_answer_and_is_written(world: World) -> None:
    client = await world.client()
    m = kio.schema("produce", 9, "request")
    data = m.TopicProduceData(name="orders", partition_data=(m.PartitionProduceData(index=0, records=a_batch()),))
    request = m.ProduceRequest(transactional_id=None, acks=0, timeout=kio.no_throttle(), topic_data=(data,))
    frame = kio.request_header(0, 9, 1, "x") + kio.written(request)
    client.writer.write(len(frame).to_bytes(4, "big") + frame)
    assert (await produce(client)).base_offset == 1  # the next answer is the next request's


async def test_an_idempotent_batch_that_comes_twice_is_written_once(world: World) -> None:
    client = await world.client()
    batch = a_batch((b"once",), producer=(7, 0, 0))
    assert [(await produce(client, data=batch)).base_offset for _ in range(2)] == [0, 0]
    gap = await produce(client, data=a_batch(producer=(7, 0, 5)))
    assert gap.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.values(1) == [b"once"]


async def test_transactions_are_refused(world: World) -> None:
    m = kio.schema("produce", 9, "request")
    data = m.TopicProduceData(name="orders", partition_data=(m.PartitionProduceData(index=0, records=a_batch()),))
    answer = await (await world.client()).ask(
        "produce", 9, "ProduceRequest", transactional_id="t", acks=-1, timeout=kio.no_throttle(), topic_data=(data,)
    )
    refused = answer.responses[0].partition_responses[0]
    assert refused.error_code == Code.INVALID_RECORD
    assert "transactions are not served" in refused.error_message


@pytest.mark.parametrize("version", range(1, 8))
async def test_offsets_are_found_by_time_in_each_version(world: World, version: int) -> None:
    client = await world.client()
    for second in range(3):
        await produce(client, data=a_batch((b"a", b"b"), timestamp=START + 1_000 * second))
    m = kio.schema("list_offsets", version, "request")

    async def found(timestamp: int) -> tuple[int, int]:
        partition = m.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        fields = {"replica_id": -1, "topics": (m.ListOffsetsTopic(name="orders", partitions=(partition,)),)}
        fields |= {"isolation_level": 0} if version >= 2 else {}
        answer = await client.ask("list_offsets", version, "ListOffsetsRequest", **fields)
        one = answer.topics[0].partitions[0]
        assert one.error_code == 0
        return one.offset, one.timestamp

    assert await found(-2) == (0, -1)
    assert await found(-1) == (6, -1)
    assert await found(START + 500) == (2, START + 1_000)
    assert await found(START + 2_001) == (-1, -1)
    assert await found(-3) == (4, START + 2_000)


@pytest.mark.parametrize("version", range(2, 5))
async def test_where_a_leader_epoch_ended_is_said_in_each_version(world: World, version: int) -> None:
    client = await world.client()
    await produce(client, b"a", b"b")
    await world.lead(1, 3)
    await eventually(lambda: world.are_caught_up(2, 3))
    await produce(client, b"c")
    m = kio.schema("offset_for_leader_epoch", version, "request")
    partition = m.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=1)
    fields = {"topics": (m.OffsetForLeaderTopic(topic="orders", partitions=(partition,)),)}
    fields |= {"replica_id": -1} if version >= 3 else {}
    answer = await client.ask("offset_for_leader_epoch", version, "OffsetForLeaderEpochRequest", **fields)
    one = answer.topics[0].partitions[0]
    assert (one.error_code, one.leader_epoch, one.end_offset) == (0, 0, 2)


@pytest.mark.parametrize("version", range(1, 13))
async def test_metadata_shows_brokers_by_their_listener_for_clients(world: World, version: int) -> None:
    await tell_topics(world)
    m = kio.schema("metadata", version, "request")
    ids = {"topic_id": uuid.UUID(int=0)} if version >= 10 else {}
    names = tuple(m.MetadataRequestTopic(name=name, **ids) for name in ("orders", "nothing"))
    more: dict[str, bool] = {"include_topic_authorized_operations": False} if version >= 8 else {}
    more |= {"include_cluster_authorized_operations": False} if 8 <= version <= 10 else {}
    answer = await (await world.client(2)).ask("metadata", version, "MetadataRequest", topics=names, **more)
    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [
        (number, "127.0.0.1", 9090 + number) for number in (1, 2, 3, 9)
    ]
    known, unknown = answer.topics
    assert (known.error_code, known.name, unknown.error_code) == (0, "orders", Code.UNKNOWN_TOPIC_OR_PARTITION)
    leaders = [(one.partition_index, one.leader_id, one.isr_nodes, one.error_code) for one in known.partitions]
    assert leaders == [(0, 1, (1, 2, 3), 0), (1, -1, (1,), Code.LEADER_NOT_AVAILABLE)]
    if version >= 7:
        assert [one.leader_epoch for one in known.partitions] == [0, 4]
    if version >= 10:
        assert known.topic_id == uuid.UUID(bytes=uuid_of(TOPIC_ID))
    every = await (await world.client(2)).ask("metadata", version, "MetadataRequest", topics=None, **more)
    assert [one.name for one in every.topics] == ["orders"]


async def test_metadata_is_found_by_topic_id(world: World) -> None:
    await tell_topics(world)
    m = kio.schema("metadata", 12, "request")
    ids = (uuid.UUID(bytes=uuid_of(TOPIC_ID)), uuid.UUID(int=5))
    topics = tuple(m.MetadataRequestTopic(topic_id=one, name=None) for one in ids)
    fields = {"topics": topics, "include_topic_authorized_operations": False}
    answer = await (await world.client()).ask("metadata", 12, "MetadataRequest", **fields)
    assert [(one.error_code, one.name) for one in answer.topics] == [(0, "orders"), (Code.UNKNOWN_TOPIC_ID, None)]


async def tell_topics(world: World) -> None:
    rows = row(), row(1, -1, 4, isr=(1,))
    request = StatesRequest(full=True, brokers=world.entries(), topics=[topic(*rows, topic_id=TOPIC_ID)])
    for node in world.nodes.values():
        assert await world.controller.tell(node, bodies.UPDATE_METADATA, request) == OBEYED


async def test_the_cluster_is_described(world: World) -> None:
    asked = "describe_cluster", 0, "DescribeClusterRequest"
    answer = await (await world.client()).ask(*asked, include_cluster_authorized_operations=False)
    assert (answer.cluster_id, len(answer.brokers), answer.controller_id) == ("cluster", 4, 1)
    world.handle.is_active = False
    answer = await (await world.client()).ask(*asked, include_cluster_authorized_operations=False)
    assert answer.controller_id == 9


async def test_a_client_that_comes_before_the_controllers_first_word_waits_for_it(world: World) -> None:
    metadata = world.nodes[2].broker.metadata
    metadata.metadata_version = 0
    asked = "describe_cluster", 0, "DescribeClusterRequest"
    client = await world.client(2)
    waiting = asyncio.ensure_future(client.ask(*asked, include_cluster_authorized_operations=False))
    await eventually(lambda: metadata.changes._next._waiters)  # type: ignore[attr-defined]
    assert not waiting.done()
    await tell_topics(world)
    assert len((await waiting).brokers) == 4


async def test_a_client_does_not_wait_for_ever_where_no_controller_says_anything(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "UNTOLD_TIMEOUT_S", 0.0)
    world.nodes[2].broker.metadata.metadata_version = 0
    client = await world.client(2)
    with pytest.raises(AssertionError, match="the connection was closed"):
        await client.ask("describe_cluster", 0, "DescribeClusterRequest", include_cluster_authorized_operations=False)


@pytest.mark.parametrize("version", range(1, 5))
async def test_configurations_are_described_with_where_they_come_from(tmp_path: Path, version: int) -> None:
    async with a_world(tmp_path, {"min_insync_replicas": "2"}) as world:
        await tell_topics(world)
        m = kio.schema("describe_configs", version, "request")
        asked = ((2, "orders", None), (2, "nothing", None), (4, "1", ("replica.lag.time.max.ms",)))
        resources = tuple(
            m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in asked
        )
        answer = await (await world.client()).ask(
            "describe_configs", version, "DescribeConfigsRequest", resources=resources
        )
        of_topic, unknown, of_broker = answer.results
        values = {one.name: (one.value, one.config_source) for one in of_topic.configs}
        assert (values["min.insync.replicas"], values["retention.ms"]) == (("2", 1), ("604800000", 5))
        assert unknown.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert [(one.name, one.value, one.read_only) for one in of_broker.configs] == [
            ("replica.lag.time.max.ms", "30000", True)
        ]


@pytest.mark.parametrize("version", range(5))
async def test_producer_ids_come_from_the_controller_and_none_twice(world: World, version: int) -> None:
    async def drawn(broker_id: int) -> int:
        fields = {"transactional_id": None, "transaction_timeout": kio.no_throttle()}
        client = await world.client(broker_id)
        answer = await client.ask("init_producer_id", version, "InitProducerIdRequest", **fields)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        return int(answer.producer_id)

    world.handle.is_active = False
    assert await tell_controller(world)
    assert [await drawn(number) for number in (1, 1, 2, 1)] == [10, 11, 20, 30]


async def tell_controller(world: World) -> bool:
    """Brokers know the controller: broker 9."""
    return all(node.broker.metadata.controller_id == 9 for node in world.nodes.values())


async def test_without_a_controller_a_producer_is_asked_to_come_again(world: World) -> None:
    world.controller.refuse_with = Code.NOT_CONTROLLER
    fields = {"transactional_id": None, "transaction_timeout": kio.no_throttle()}
    answer = await (await world.client()).ask("init_producer_id", 4, "InitProducerIdRequest", **fields)
    assert (answer.error_code, answer.producer_id) == (Code.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("version", range(1, 4))
async def test_a_client_that_looks_for_a_group_is_told_to_assign_partitions(world: World, version: int) -> None:
    answer = await (await world.client()).ask(
        "find_coordinator", version, "FindCoordinatorRequest", key="g", key_type=0
    )
    assert answer.error_code == Code.UNSUPPORTED_VERSION
    assert "assign partitions" in answer.error_message


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 10), (1, 3), (11, 0), (4, 5), (56, 3), (67, 0)])
async def test_a_request_that_is_not_served_ends_its_connection(world: World, key: int, version: int) -> None:
    assert await (await world.client()).raw(kio.request_header(key, version, 1, "x")) is None
    assert (await produce(await world.client())).error_code == 0


async def test_followers_of_kafkas_protocol_are_none(world: World) -> None:
    m = kio.schema("fetch", 12, "request")
    request = m.FetchRequest(replica_id=2, max_wait=kio.no_throttle(), min_bytes=1, topics=(), forgotten_topics_data=())
    assert await (await world.client()).raw(kio.request_header(1, 12, 1, "x") + kio.written(request)) is None
