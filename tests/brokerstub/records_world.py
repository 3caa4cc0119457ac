"""Three stub brokers that keep records, over real HTTP, told by a scripted controller; and clients of theirs that speak
by another codec. Time is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from brokerstub.clients.apis import table
from brokerstub.clients.writing import ProducerIdBlocks
from brokerstub.log_ends import LogEnds
from brokerstub.logs import Logs
from controller.base.config import LIMITS, BrokerConfig
from controller.kafka.protocol.codec import WireError
from controller.kafka.server.listener import Api, KafkaServer
from controller.wire import bodies
from controller.wire.bodies import PartitionRow, StatesRequest
from controller.wire.client import HttpClient
from controller.wire.signing import Signer
from tests.api.api_support import FakeHandle
from tests.brokerstub.cluster import OBEYED, Cluster, serving
from tests.brokerstub.support import eventually, row, topic
from tests.fakes.zookeeper import FakeZooKeeper
from tests.kafka import kafka_support as kio
from tests.kafka.kafka_world import HOST, Client
from tests.records.support import a_batch, read_by_kio

LISTENERS = "HTTP://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"
KEY = "id-orders", 0


class World(Cluster):
    """Partition 0 of `orders` on all three, led by 1."""

    def __init__(self, http: HttpClient, tmp_path: Path, **properties: Any) -> None:
        super().__init__(http, tmp_path, listeners=LISTENERS, **properties)
        self.http = http
        self.zk = FakeZooKeeper()
        self.handle = FakeHandle()
        self.ports: dict[int, int] = {}
        self.servers: list[KafkaServer] = []
        self.clients: list[Client] = []

    def logs(self, broker_id: int) -> Logs:
        logs = self.nodes[broker_id].broker.logs
        assert logs is not None
        return logs

    def log_ends(self, broker_id: int) -> LogEnds:
        found = self.nodes[broker_id].broker.log_ends
        assert found is not None
        return found

    def configure(self, **values: str) -> None:
        """The topic's own configuration, before anybody is told of it."""
        config = {key.replace("_", "."): value for key, value in values.items()}
        self.zk.seed({"/config/topics/orders": msgspec.json.encode({"version": 1, "config": config})})

    async def serve(self, broker_id: int) -> None:
        broker = self.nodes[broker_id].broker
        config = BrokerConfig(broker_id=broker_id, zookeeper_connect="", log_dirs="d", listeners=LISTENERS)
        blocks = ProducerIdBlocks(broker, self.http, Signer())
        apis = table(config, broker, self.logs(broker_id), self.handle, blocks, "PLAINTEXT")

        async def nothing() -> Mapping[int, Api]:
            return {}

        async def refused(frame: bytes) -> bytes:
            raise WireError("not served")

        server = KafkaServer(apis, nothing, refused, LIMITS)
        self.ports[broker_id] = await server.start(HOST, 0)
        self.servers.append(server)

    async def client(self, broker_id: int = 1) -> Client:
        self.clients.append(Client(*await asyncio.open_connection(HOST, self.ports[broker_id])))
        return self.clients[-1]

    async def lead(
        self, leader: int, epoch: int, *, isr: tuple[int, ...] = (1, 2, 3), to: tuple[int, ...] = ()
    ) -> None:
        """Tell every broker, or these, the new leader."""
        await self.tell(row(leader=leader, epoch=epoch, isr=isr, version=epoch), to=to)

    async def tell(self, *rows: PartitionRow, to: tuple[int, ...] = ()) -> None:
        nodes = self.nodes
        self.nodes = {one: nodes[one] for one in to or nodes}
        try:
            await self.tell_rows(*rows)
        finally:
            self.nodes = nodes

    async def publish(self, *rows: PartitionRow) -> None:
        """All brokers are told of the partition as of anything in the cluster."""
        request = StatesRequest(topics=[topic(*rows)])
        for node in self.nodes.values():
            assert await self.controller.tell(node, bodies.UPDATE_METADATA, request) == OBEYED

    def ends(self) -> dict[int, tuple[int, int]]:
        """Log end and high watermark of each broker's log."""
        found = {one: self.logs(one).ends("orders", 0) for one in self.nodes}
        return {one: (ends.log_end, ends.high_watermark) for one, ends in found.items() if ends is not None}

    def values(self, broker_id: int) -> list[bytes]:
        """Of all records in its log."""
        one = self.logs(broker_id).of("orders", 0)
        data, offset = b"", one.log.start_offset
        while more := one.log.read(offset, 1 << 20):
            data += more
            offset = read_by_kio(more)[-1].records[-1].offset + 1
        return [record.value or b"" for batch in read_by_kio(data) for record in batch.records]


@asynccontextmanager
async def a_world(tmp_path: Path, configs: Mapping[str, str] = {}, **properties: Any) -> AsyncIterator[World]:
    http = HttpClient()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(http.close)
        world = World(http, tmp_path, **properties)
        if configs:
            world.configure(**configs)
        world.controller.port = await stack.enter_async_context(serving(world.controller.app()))
        for number, node in world.nodes.items():
            node.port = await stack.enter_async_context(serving(node.app()))
            node.broker.begin(100 * number, await world.zk.connect())
            stack.callback(node.broker.close)
        runs = [asyncio.ensure_future(node.broker.run()) for node in world.nodes.values()]
        try:
            await world.tell_brokers()
            await world.tell_rows(row(), full=True)
            await eventually(lambda: world.are_caught_up(2, 3))
            await eventually(lambda: all(world.logs(one).of("orders", 0).settings for one in world.nodes))
            for number in world.nodes:
                await world.serve(number)
            yield world
        finally:
            for client in world.clients:
                client.writer.close()
            for server in world.servers:
                await server.close()
            for run in runs:
                run.cancel()
            await asyncio.wait(runs)


async def produce(
    client: Client,
    *values: bytes,
    acks: int = -1,
    version: int = 9,
    timeout_ms: int = 10_000,
    data: bytes | None = None,
) -> Any:
    """One batch into partition 0 of `orders`; the partition's answer."""
    m = kio.schema("produce", version, "request")
    records = a_batch(values or (b"value",)) if data is None else data
    answer = await client.ask(
        "produce",
        version,
        "ProduceRequest",
        transactional_id=None,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=(
            m.TopicProduceData(name="orders", partition_data=(m.PartitionProduceData(index=0, records=records),)),
        ),
    )
    return answer.responses[0].partition_responses[0]


async def fetch(client: Client, offset: int = 0, *, version: int = 12, wait_ms: int = 0, leader_epoch: int = -1) -> Any:
    """The partition's answer."""
    m = kio.schema("fetch", version, "request")
    more: dict[str, Any] = {"current_leader_epoch": leader_epoch} if version >= 9 else {}
    partition = m.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **more)
    fields: dict[str, Any] = {"forgotten_topics_data": ()} if version >= 7 else {}
    answer = await client.ask(
        "fetch",
        version,
        "FetchRequest",
        replica_id=-1,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        max_bytes=1 << 20,
        topics=(m.FetchTopic(topic="orders", partitions=(partition,)),),
        **fields,
    )
    return answer.responses[0].partitions[0]
