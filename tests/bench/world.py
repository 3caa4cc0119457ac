"""The world of the bench: a real ZooKeeper with many partitions in it, and broker endpoints that acknowledge."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.core import formats
from controller.core.model import Assignment, Leadership, Replicas
from controller.core.operations import (
    Create,
    Delete,
    Op,
    Set,
)
from controller.core.project.znodes import (
    CONFIG_TOPICS,
    ISR_NOTIFICATIONS,
    REASSIGN,
    broker_path,
    partitions_path,
    state_path,
    topic_path,
)
from controller.zookeeper.client import ZooKeeperClient, connect
from controller.zookeeper.layout import ensure_paths
from controller.zookeeper.port import granted
from tests.bench.acks import Acks, within

BROKERS = 10
REPLICATION_FACTOR = 3
SESSION_TIMEOUT_MS = 18_000
CREATED = "new"
OPS_PER_TRANSACTION = 500
TRANSACTIONS_IN_FLIGHT = 8
POLL_S = 0.01
WRITES_TIMEOUT_S = 600

#: topic and partition
Key = tuple[str, int]


class World:
    """A cluster that any controller finds the same, and can be brought back to how it was."""

    def __init__(
        self,
        server: ZooKeeperServer,
        zk: ZooKeeperClient,
        ports: Sequence[int],
        acks: Acks,
        orders: asyncio.StreamWriter,
    ) -> None:
        self.server = server
        self._orders = orders
        self.zk = zk
        self.ports = ports  # in our dialect, then in Kafka's
        self.acks = acks
        self.topics: dict[str, int] = {}  # name -> partitions
        self._sessions: dict[int, ZooKeeperClient] = {}

    async def client(self) -> ZooKeeperClient:
        servers = [("127.0.0.1", self.server.client_port)]
        return await connect(servers, session_timeout_ms=SESSION_TIMEOUT_MS, connect_timeout_ms=10_000)

    async def register(self, broker_id: int) -> None:
        """One registration for both: a listener in our dialect, one in Kafka's protocol."""
        ours, kafkas = self.ports[broker_id], self.ports[BROKERS + broker_id]
        znode = {
            "version": 5, "host": "127.0.0.1", "port": kafkas, "jmx_port": -1, "features": {}, "timestamp": "0",
            "endpoints": [f"HTTP://127.0.0.1:{ours}", f"PLAINTEXT://127.0.0.1:{kafkas}"],
            "listener_security_protocol_map": {"HTTP": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT"},
        }  # fmt: skip
        self._sessions[broker_id] = await self.client()
        await self._sessions[broker_id].create(broker_path(broker_id), json.dumps(znode).encode(), ephemeral=True)

    async def unregister(self, broker_id: int) -> None:
        await self._sessions.pop(broker_id).close()

    async def broker_epoch(self, broker_id: int) -> int:
        stat = (await self.zk.exists(broker_path(broker_id))).stat
        assert stat is not None, f"broker {broker_id} is not registered"
        return stat.czxid

    async def deafen(self, broker_id: int) -> None:
        """It reads every request, and answers none until it hears."""
        await self._order(f"deaf {broker_id}")

    async def hear(self, broker_id: int) -> None:
        await self._order(f"hear {broker_id}")

    async def _order(self, line: str) -> None:
        self._orders.write(f"{line}\n".encode())
        await self._orders.drain()

    async def close(self) -> None:
        for client in (*self._sessions.values(), self.zk):
            await client.close()

    # ------------------------------------------------------------------ the partitions

    async def populate(self, topics: int, partitions_per_topic: int, tell: Callable[[int], None]) -> None:
        """Topics with their states, as a predecessor of epoch 1 would have left them."""
        await self.zk.create("/controller_epoch", b"1")
        ops: list[Op] = []
        for number in range(topics):
            name = f"topic-{number}"
            self.topics[name] = partitions_per_topic
            data = formats.encode_topic(topic_id_of(name), self.assignment(name))
            ops += [Create(topic_path(name), data), Create(partitions_path(name), b"")]
            for partition in range(partitions_per_topic):
                path = state_path(name, partition)
                ops += [Create(path.rpartition("/")[0], b""), Create(path, self.state_of(name, partition))]
            if len(ops) >= OPS_PER_TRANSACTION * TRANSACTIONS_IN_FLIGHT or number == topics - 1:
                await self.write(ops)
                ops = []
            tell(partitions_per_topic)

    def assignment(self, topic: str) -> dict[int, Assignment]:
        return {partition: Assignment(replicas_of(topic, partition)) for partition in range(self.topics[topic])}

    def state_of(self, topic: str, partition: int) -> bytes:
        replicas = replicas_of(topic, partition)
        return formats.encode_state(Leadership(replicas[0], 0, replicas, 1))

    @property
    def partitions(self) -> int:
        return sum(self.topics.values())

    def hosted_by_none_of(self, broker_ids: Sequence[int]) -> list[Key]:
        return [
            (topic, number)
            for topic, count in self.topics.items()
            for number in range(count)
            if not set(broker_ids) & set(replicas_of(topic, number))
        ]

    async def states(self, partitions: Sequence[Key]) -> list[tuple[Leadership | None, int]]:
        """With the versions of their znodes."""
        paths = [state_path(*each) for each in partitions]
        nodes = [granted(*each) for each in zip(paths, await self.zk.get_many(paths), strict=True)]
        return [(None, -1) if one is None else (formats.decode_state(one.data), one.stat.version) for one in nodes]

    async def reassign(self, targets: Mapping[Key, Replicas]) -> None:
        await self.zk.create(REASSIGN, formats.encode_targets(targets))

    async def catch_up(self, targets: Mapping[Key, Replicas]) -> None:
        """Leaders find the replicas that are to be added in sync, as soon as ZooKeeper has the leader epoch that they
        are told with. They write the ISR themselves and announce it, as brokers did before AlterPartition."""
        behind = list(targets)
        while behind:
            found = dict(zip(behind, await self.states(behind), strict=True))
            told = {key: one for key, (one, _) in found.items() if one is not None and one.leader_epoch > 0}
            ready = list(told)[:OPS_PER_TRANSACTION]
            if not ready:
                await asyncio.sleep(POLL_S)
                continue
            ops = []
            for key in ready:
                isr = tuple(dict.fromkeys((*told[key].isr, *targets[key])))
                state = formats.encode_state(replace(told[key], isr=isr))
                ops.append(Set(state_path(*key), state, found[key][1]))
            if (await self.zk.transact(ops)).refused is None:  # otherwise the controller was faster: look again
                caught_up = set(ready)
                behind = [key for key in behind if key not in caught_up]
                said = formats.PartitionsZnode(tuple(formats.PartitionOf(*key) for key in ready))
                await self.zk.create(f"{ISR_NOTIFICATIONS}/isr_change_", formats.encode(said), sequential=True)

    async def is_reassigned(self, targets: Mapping[Key, Replicas]) -> bool:
        """The request is gone, and the last topic is as it was asked."""
        topic, number = list(targets)[-1]
        node = await self.zk.get(topic_path(topic))
        assert node is not None
        is_as_asked = formats.decode_topic(node.data)[1][number] == Assignment(targets[topic, number])
        return is_as_asked and (await self.zk.exists(REASSIGN)).stat is None

    def assignments(self, topics: Iterable[str]) -> list[Op]:
        """Their znodes, as they were."""
        return [
            Set(topic_path(name), formats.encode_topic(topic_id_of(name), self.assignment(name)), -1) for name in topics
        ]

    def hosted_by(self, broker_id: int) -> list[Key]:
        return [
            (topic, number)
            for topic, count in self.topics.items()
            for number in range(count)
            if broker_id in replicas_of(topic, number)
        ]

    async def create_topic(self, partitions: int) -> None:
        """As Kafka's tools do: the configuration, then the topic."""
        assignment = {number: Assignment(replicas_of(CREATED, number)) for number in range(partitions)}
        data = formats.encode_topic(topic_id_of(CREATED), assignment)
        await self.write(
            [Create(f"{CONFIG_TOPICS}/{CREATED}", b'{"version":1,"config":{}}'), Create(topic_path(CREATED), data)]
        )

    async def restore(self, touched: Sequence[Key]) -> None:
        """These states, as a predecessor has left them."""
        await self.write([Set(state_path(*each), self.state_of(*each), -1) for each in touched])

    async def remove_created(self, created_partitions: int, *, with_topic: bool) -> None:
        paths = [
            path
            for number in range(created_partitions)
            for path in (state_path(CREATED, number), state_path(CREATED, number).rpartition("/")[0])
        ]
        paths += [
            partitions_path(CREATED),
            *([topic_path(CREATED), f"{CONFIG_TOPICS}/{CREATED}"] if with_topic else []),
        ]
        await self.write([Delete(path, -1) for path in paths])

    async def write(self, ops: Sequence[Op]) -> None:
        room = asyncio.Semaphore(TRANSACTIONS_IN_FLIGHT)

        async def send(piece: Sequence[Op]) -> None:
            async with room:
                answer = await self.zk.transact(piece)
                assert answer.refused is None, answer.refused

        what = f"ZooKeeper to write {len(ops):,} znodes"
        async with within(WRITES_TIMEOUT_S, lambda: what), asyncio.TaskGroup() as group:
            for start in range(0, len(ops), OPS_PER_TRANSACTION):
                group.create_task(send(ops[start : start + OPS_PER_TRANSACTION]))


def topic_id_of(name: str) -> str:
    return f"{name:A<22}"[:22]


def replicas_of(topic: str, partition: int) -> tuple[int, ...]:
    """As Kafka places them: the first in turn, the others shifted with each turn, so that all brokers are partners."""
    offset = int(topic.rpartition("-")[2]) if "-" in topic else 0
    first, shift = (offset + partition) % BROKERS, offset + partition // BROKERS
    others = [(first + 1 + (shift + k) % (BROKERS - 1)) % BROKERS for k in range(REPLICATION_FACTOR - 1)]
    return first, *others


@asynccontextmanager
async def a_world(folder: Path, *, heap_mb: int = 2048) -> AsyncIterator[World]:
    server = ZooKeeperServer(folder / "zookeeper", free_port(), tick_time_ms=2000, heap_mb=heap_mb)
    await server.start()
    endpoints = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.endpoints", str(BROKERS),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert endpoints.stdout is not None
    assert endpoints.stdin is not None
    ports = [int(port) for port in (await endpoints.stdout.readline()).split()]
    assert len(ports) == 2 * BROKERS
    acks = Acks(endpoints.stdout)
    following = asyncio.create_task(acks.follow())
    try:
        servers = [("127.0.0.1", server.client_port)]
        zk = await connect(servers, session_timeout_ms=SESSION_TIMEOUT_MS, connect_timeout_ms=10_000)
        await ensure_paths(zk)
        world = World(server, zk, ports, acks, endpoints.stdin)
        for broker_id in range(BROKERS):
            await world.register(broker_id)
        yield world
        await world.close()
    finally:
        endpoints.terminate()
        await endpoints.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await server.stop()
