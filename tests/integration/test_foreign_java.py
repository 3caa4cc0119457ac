"""Kafka's own Java clients and tools, of two releases, make a topic on brokers with records, and write and read it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokerstub.lab.kafka import VERSION, fetched, jars, tool
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster, a_cluster
from tests.real_brokers.cluster import JARS

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.maven]

TOOLS = "org.apache.kafka.tools"
NEWEST = "4.3.0"
RECORDS, PARTITIONS = 500, 2


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_cluster([zookeeper], tmp_path, keeps_records=True) as cluster:
        await cluster.start()
        yield cluster


async def jars_of(version: str) -> Path:
    if version == VERSION:
        return await jars(JARS)
    return await fetched(JARS, f"tools-{version}", [("org.apache.kafka", "kafka-tools", version)])


@pytest.mark.parametrize("version", [VERSION, NEWEST])
async def test_kafkas_tools_make_write_describe_and_read_a_topic(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    servers, installed = cluster.settings.bootstrap_servers, await jars_of(version)
    assert servers is not None

    async def said(name: str, *words: str) -> str:
        code, text = await tool(installed, tmp_path, f"{TOOLS}.{name}", *words)
        assert code == 0, text
        return text

    shape = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
    on = ("--bootstrap-server", servers)
    await said("TopicCommand", *on, "--create", "--topic", "orders", *shape)
    described = await said("TopicCommand", *on, "--describe", "--topic", "orders")
    assert len(re.findall(r"Isr: \d,\d,\d", described)) == PARTITIONS

    properties = (f"bootstrap.servers={servers}", "acks=all", "enable.idempotence=true")
    wanted = ("--topic", "orders", "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1")
    written = await said("ProducerPerformance", *wanted, "--producer-props", *properties)
    assert f"{RECORDS} records sent" in written

    ends = await said("GetOffsetShell", *on, "--topic", "orders")
    counts = [int(end) for end in re.findall(r"^orders:\d+:(\d+)$", ends, re.MULTILINE)]
    assert (len(counts), sum(counts)) == (PARTITIONS, RECORDS)
    for number, count in enumerate(counts):
        position = ("--partition", str(number), "--offset", "earliest", "--max-messages", str(max(count, 1)))
        if count:
            read = await said("consumer.ConsoleConsumer", *on, "--topic", "orders", *position)
            assert f"Processed a total of {count} messages" in read
