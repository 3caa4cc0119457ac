"""Clients of another project (librdkafka) produce and consume while brokers die: acknowledged records are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster, a_cluster
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.java, pytest.mark.slow]

PARTITIONS = 3


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three brokers that keep records, all of them started."""
    async with a_cluster([zookeeper], tmp_path, keeps_records=True) as cluster:
        await cluster.start()
        yield cluster


class Writer:
    """An idempotent producer of the numbers from 0 on, and the fate of each."""

    def __init__(self, servers: str) -> None:
        settings = {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": int(DEADLINE_S * 1_000),
        }
        self._producer = Producer(settings)
        self.sent = 0
        #: the partition and offset of each number that was acknowledged
        self.acked: dict[int, tuple[int, int]] = {}
        self.refused: list[str] = []

    def write(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self._producer.produce("orders", b"%d" % number, on_delivery=self._on_delivery)
            self._producer.poll(0)
        self.sent += count

    def flush(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0

    def poll(self) -> int:
        """How many were acknowledged by now."""
        self._producer.poll(0)
        return len(self.acked)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        self.acked[int(value or b"")] = partition, offset


def read_all(servers: str) -> dict[int, list[tuple[int, int]]]:
    """Offset and number of all records of each partition, from the beginning to the end."""
    settings = {"bootstrap.servers": servers, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    found: dict[int, list[tuple[int, int]]] = {number: [] for number in range(PARTITIONS)}
    try:
        consumer.assign([TopicPartition("orders", number, OFFSET_BEGINNING) for number in found])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, found
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is None:
                assert partition is not None
                assert offset is not None
                found[partition].append((offset, int(message.value() or b"")))
            elif error.code() == KafkaError._PARTITION_EOF:
                assert partition is not None
                ended.add(partition)
            else:  # it looks for a group, which an assigned consumer does not need
                assert "assign partitions" in error.str(), error
    finally:
        consumer.close()
    return found


def judge(writer: Writer, found: dict[int, list[tuple[int, int]]]) -> None:
    """Every acknowledged record once, where it was acknowledged, in order; no other."""
    assert writer.refused == []
    assert len(writer.acked) == writer.sent
    for partition, records in found.items():
        assert [offset for offset, _ in records] == list(range(len(records)))
        numbers = [number for _, number in records]
        assert numbers == sorted(set(numbers))
        assert all(writer.acked[number] == (partition, offset) for offset, number in records)
    assert sum(map(len, found.values())) == writer.sent


async def make_topic(cluster: Cluster) -> str:
    servers = cluster.settings.bootstrap_servers
    assert servers is not None
    assert await cluster.controller.create_topic("orders", partitions=PARTITIONS) == 201
    await cluster.whole()
    return servers


async def test_a_leader_and_the_controller_die_under_an_idempotent_producer(cluster: Cluster) -> None:
    servers = await make_topic(cluster)
    writer = Writer(servers)
    await asyncio.to_thread(writer.write, 500)
    await until(lambda: writer.poll() > 100, "the first are acknowledged")
    dead = cluster.controller  # it leads, too
    await dead.kill()
    await asyncio.to_thread(writer.write, 500)
    await asyncio.to_thread(writer.flush)
    await cluster.start(dead.broker_id)
    await asyncio.to_thread(writer.write, 500)
    await asyncio.to_thread(writer.flush)
    judge(writer, await asyncio.to_thread(read_all, servers))
    lines = [line for broker in cluster.running for line in broker.lines() if line["kind"] == "truncation"]
    assert all(not line.get("records_lost") for line in lines), lines


async def test_a_controlled_shutdown_of_each_broker_in_turn_loses_nothing(cluster: Cluster) -> None:
    servers = await make_topic(cluster)
    writer = Writer(servers)
    for broker in list(cluster.brokers.values()):
        await asyncio.to_thread(writer.write, 200)
        await broker.stop()
        await asyncio.to_thread(writer.write, 200)
        await cluster.start(broker.broker_id)
    await asyncio.to_thread(writer.flush)
    judge(writer, await asyncio.to_thread(read_all, servers))


async def test_topics_are_made_grown_described_and_deleted_by_a_foreign_client(cluster: Cluster) -> None:
    servers = cluster.settings.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})

    def done(futures: dict[str, Any]) -> None:
        for future in futures.values():
            future.result(DEADLINE_S)

    def tour() -> dict[int, Any]:
        done(admin.create_topics([NewTopic("made", 2, 3, config={"min.insync.replicas": "2"})]))
        done(admin.create_partitions([NewPartitions("made", 3)]))
        return admin.list_topics("made", timeout=DEADLINE_S).topics["made"].partitions

    partitions = await asyncio.to_thread(tour)
    assert sorted(partitions) == [0, 1, 2]
    assert all(sorted(one.replicas) == sorted(one.isrs) == [1, 2, 3] for one in partitions.values())
    await asyncio.to_thread(done, admin.delete_topics(["made"]))
    assert "made" not in (await asyncio.to_thread(admin.list_topics, timeout=DEADLINE_S)).topics


async def test_a_consumer_that_subscribes_is_told_to_assign_partitions(cluster: Cluster) -> None:
    servers = await make_topic(cluster)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
    try:
        consumer.subscribe(["orders"])
        message = await asyncio.to_thread(consumer.poll, DEADLINE_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert "assign partitions" in error.str()
    finally:
        await asyncio.to_thread(consumer.close)
