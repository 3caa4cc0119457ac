"""What is measured on: a real ZooKeeper with many partitions in it, endpoints that acknowledge, a controller."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from brokerstub.lab.zookeeper import ZooKeeperServer, free_port
from brokerstub.registration import ensure_paths
from controller.claim import Claim
from controller.config import LIMITS
from controller.core import formats
from controller.core.lines import Line
from controller.core.model import Assignment, Leadership
from controller.core.writes import Create
from controller.core.znodes import broker_path, partitions_path, state_path, topic_path
from controller.daemon import Daemon
from controller.dialects.http import HttpDialect
from controller.guard import TermGuard
from controller.http import HttpClient
from controller.metrics import Meters
from controller.outbox import Outboxes
from controller.term import OnAnswer, Tools
from controller.zk import ZooKeeperClient, connect
from controller.zk_model import SessionLostError

BROKERS = 10
REPLICATION_FACTOR = 3
SESSION_TIMEOUT_MS = 18_000


class NoJournal:
    """The state-change log is written in a thread of its own; what it costs the loop is in `accept`, which is here."""

    def accept(self, lines: Sequence[Line]) -> None:
        return None


class World:
    """Everything a row needs. Times are monotonic seconds."""

    def __init__(self, server: ZooKeeperServer, zk: ZooKeeperClient, port: int) -> None:
        self.server = server
        self.zk = zk
        self.port = port
        self.sessions: dict[int, ZooKeeperClient] = {}
        self.outboxes: Outboxes | None = None

    async def client(self) -> ZooKeeperClient:
        servers = [("127.0.0.1", self.server.client_port)]
        return await connect(servers, session_timeout_ms=SESSION_TIMEOUT_MS, connect_timeout_ms=10_000)

    async def register(self, broker_id: int) -> None:
        port = self.port + broker_id
        znode = {
            "version": 5, "host": "127.0.0.1", "port": port, "endpoints": [f"HTTP://127.0.0.1:{port}"], "jmx_port": -1,
            "listener_security_protocol_map": {"HTTP": "PLAINTEXT"}, "features": {}, "timestamp": "0",
        }  # fmt: skip
        self.sessions[broker_id] = await self.client()
        await self.sessions[broker_id].create(broker_path(broker_id), json.dumps(znode).encode(), ephemeral=True)

    async def unregister(self, broker_id: int) -> None:
        await self.sessions.pop(broker_id).close()

    async def populate(self, topics: int, partitions_per_topic: int, tell: Callable[[int], None]) -> None:
        """Topics with their states, as a predecessor of epoch 1 would have left them."""
        await self.zk.create("/controller_epoch", b"1")
        for number in range(topics):
            await self._populate_topic(f"topic-{number}", partitions_per_topic, number)
            tell(partitions_per_topic)

    async def _populate_topic(self, name: str, partitions: int, offset: int) -> None:
        assignment = {p: Assignment(replicas_for(offset + p)) for p in range(partitions)}
        topic_id = f"{name:A<22}"[:22]
        ops = [Create(topic_path(name), formats.encode_topic(topic_id, assignment)), Create(partitions_path(name), b"")]
        for number, one in assignment.items():
            path = state_path(name, number)
            state = formats.encode_state(Leadership(one.replicas[0], 0, one.replicas, 1))
            ops += [Create(path.rpartition("/")[0], b""), Create(path, state)]
        for start in range(0, len(ops), 500):
            answer = await self.zk.transact(ops[start : start + 500])
            assert answer.refused is None, answer.refused

    @asynccontextmanager
    async def controller(self, meters: Meters | None = None) -> AsyncIterator[Daemon]:
        """A real controller; its process is this one."""

        def open_outboxes(
            claim: Claim,
            guard: TermGuard,
            group: asyncio.TaskGroup,
            on_fenced: Callable[[str], None],
            on_answer: OnAnswer,
        ) -> Outboxes:
            client = HttpClient(guard.check)
            clients.append(client)
            self.outboxes = Outboxes(
                group, HttpDialect(client), claim.broker_id, claim.controller_epoch, on_answer=on_answer,
                on_fenced=lambda: on_fenced("fenced"), entropy=Random(1),
            )  # fmt: skip
            return self.outboxes

        clients: list[HttpClient] = []
        zk = await self.client()
        tools = Tools(
            cluster_id="bench", open_outboxes=open_outboxes, journal=NoJournal(), limits=LIMITS,
            now_ms=lambda: time.time_ns() // 1_000_000, entropy=Random(1), meters=meters or Meters(),
        )  # fmt: skip
        daemon = Daemon(zk, 0, tools)
        running = asyncio.create_task(run_until_lost(daemon))
        try:
            yield daemon
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for client in clients:
                await client.close()
            await zk.close()


async def run_until_lost(daemon: Daemon) -> None:
    try:
        await daemon.run()
    except SessionLostError:
        return


def replicas_for(number: int) -> tuple[int, ...]:
    return tuple((number + k) % BROKERS for k in range(REPLICATION_FACTOR))


@asynccontextmanager
async def a_world(folder: Path) -> AsyncIterator[World]:
    server = ZooKeeperServer(folder / "zookeeper", free_port(), tick_time_ms=2000, heap_mb=2048)
    await server.start()
    port = free_port()
    endpoints = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.endpoints", str(port), str(BROKERS), stdout=asyncio.subprocess.PIPE
    )
    assert endpoints.stdout is not None
    assert await endpoints.stdout.readline() == b"ready\n"
    drain = asyncio.create_task(_drained(endpoints.stdout))
    try:
        zk = await connect(
            [("127.0.0.1", server.client_port)], session_timeout_ms=SESSION_TIMEOUT_MS, connect_timeout_ms=10_000
        )
        await ensure_paths(zk)
        world = World(server, zk, port)
        for broker_id in range(BROKERS):
            await world.register(broker_id)
        yield world
        for client in (*world.sessions.values(), zk):
            await client.close()
    finally:
        endpoints.terminate()
        await endpoints.wait()
        drain.cancel()
        await asyncio.gather(drain, return_exceptions=True)
        await server.stop()


async def _drained(stream: asyncio.StreamReader) -> None:
    while await stream.readline():
        pass
