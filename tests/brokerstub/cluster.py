"""Stub brokers over real loopback HTTP, told and answered by a tiny scripted controller. Time is the test's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from brokerstub.broker import Broker
from brokerstub.faults import NO_FAULTS, Faults
from brokerstub.server import BrokerServer
from controller.api.problems import problems
from controller.base.config import BrokerConfig
from controller.core.project.lines import Line
from controller.wire import bodies
from controller.wire.bodies import (
    AlteredRow,
    AlteredTopic,
    AlterPartitionAnswer,
    AlterPartitionRequest,
    Answer,
    BrokerEntry,
    PartitionRow,
    StatesRequest,
)
from controller.wire.client import HttpClient
from tests.brokerstub.support import topic
from tests.waiting import DEADLINE_S

LAG_MS = 10_000
WALL_MS = 1_700_000_000_000
JSON = {"Content-Type": "application/json"}
#: for so long an answer is waited for: no judgement of speed
ANSWER_MS = int(DEADLINE_S * 1_000)

#: status, error code, and the partitions refused with their codes
Told = tuple[int, int, list[tuple[int, int]]]
OBEYED: Told = (200, 0, [])


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[int]:
    """The port on which the application is served meanwhile."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class Node:
    """One stub broker and its log lines."""

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        http: HttpClient,
        clock_ms: Callable[[], int],
        *,
        disks: Sequence[str] = (".",),
        faults: Faults = NO_FAULTS,
        **properties: Any,
    ) -> None:
        for disk in disks:
            (directory / disk).mkdir(parents=True, exist_ok=True)
        config = BrokerConfig(
            broker_id=broker_id,
            zookeeper_connect="",
            log_dirs=",".join(str(directory / disk) for disk in disks),
            replica_lag_time_max_ms=LAG_MS,
            replica_fetch_wait_max_ms=5,
            **properties,
        )
        self.broker = Broker(
            config,
            "cluster",
            http,
            clock_ms=clock_ms,
            wall_clock_ms=lambda: WALL_MS,
            entropy=Random(broker_id),
            faults=faults,
        )
        self.lines: list[Line] = []
        self.port = 0
        self.unheard_ids: set[int] = set()
        """Followers whose fetches do not get through."""
        #: the brokers whose fetches are being answered
        self.fetching: list[str] = []

    def app(self) -> web.Application:
        @web.middleware
        async def faults(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path != bodies.FETCH:
                return await handler(request)
            follower = request.headers.get(bodies.SENDER, "").partition(" ")[0]
            if follower in map(str, self.unheard_ids):
                return web.Response(status=503)
            self.fetching.append(follower)
            try:
                return await handler(request)
            finally:
                self.fetching.remove(follower)

        app = web.Application(middlewares=[problems, faults])
        BrokerServer(self.broker, self.lines.extend, lambda: WALL_MS).add_routes(app)
        return app

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Controller:
    """Answers AlterPartition as it is told to, and keeps the bodies it got; it can also tell brokers things."""

    def __init__(self, http: HttpClient) -> None:
        self.http = http
        self.port = 0
        self.epoch = 1
        self.bodies: list[bytes] = []
        self.senders: list[str] = []
        #: of producer ids, two each, from 10 on
        self.blocks_given = 0
        self.refuse_with: int | None = None
        """An HTTP status, or a top-level error code if below 200."""
        self.answer: Callable[[bytes], AlterPartitionAnswer] = granted

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post(bodies.ALTER_PARTITION, self._on_alter_partition)
        app.router.add_post(bodies.PRODUCER_IDS, self._on_producer_ids)
        return app

    async def tell(
        self,
        node: Node,
        path: str,
        request: object,
        *,
        epoch: int | None = None,
        event: str = "1-5",
        sequence: int | None = None,
    ) -> Told:
        heads = {} if sequence is None else {bodies.SEQUENCE: str(sequence)}
        heads |= {
            bodies.CONTROLLER_ID: "9",
            bodies.CONTROLLER_EPOCH: str(self.epoch),
            bodies.BROKER_EPOCH: str(node.broker.broker_epoch if epoch is None else epoch),
            bodies.EVENT_ID: event,
        }
        status, body = await self.http.post(node.url + path, bodies.encode(request), JSON | heads, ANSWER_MS)
        if status != 200:
            return status, 0, []
        answer = bodies.decode(body, Answer)
        return status, answer.error_code, [(one.partition, one.error_code) for one in answer.partitions]

    async def _on_producer_ids(self, request: web.Request) -> web.Response:
        if self.refuse_with is not None:
            return web.Response(body=bodies.encode(bodies.ProducerIdsAnswer(self.refuse_with)))
        self.blocks_given += 1
        return web.Response(body=bodies.encode(bodies.ProducerIdsAnswer(0, 10 * self.blocks_given, 2)))

    async def _on_alter_partition(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        self.senders.append(request.headers[bodies.SENDER])
        if self.refuse_with is not None and self.refuse_with >= 200:
            return web.Response(status=self.refuse_with)
        if self.refuse_with is not None:
            return web.Response(body=bodies.encode(AlterPartitionAnswer(self.refuse_with)))
        return web.Response(body=bodies.encode(self.answer(self.bodies[-1])))


def granted(body: bytes) -> AlterPartitionAnswer:
    """Everything is done as asked by broker 1."""
    topics = []
    for asked in bodies.decode(body, AlterPartitionRequest).topics:
        rows = [
            AlteredRow(one.partition, 0, 1, one.leader_epoch, tuple(m.broker_id for m in one.isr), one.version + 1, 0)
            for one in asked.partitions
        ]
        topics.append(AlteredTopic(asked.topic_id, rows))
    return AlterPartitionAnswer(0, topics)


class Cluster:
    """Three brokers and the controller, as broker 9; `now_ms` moves only when the test says so."""

    def __init__(self, http: HttpClient, tmp_path: Path, **properties: Any) -> None:
        self.now_ms = 0
        self.controller = Controller(http)
        self.nodes = {
            one: Node(one, tmp_path / f"broker-{one}", http, lambda: self.now_ms, **properties) for one in (1, 2, 3)
        }

    def entries(self) -> list[BrokerEntry]:
        ports = {one: node.port for one, node in self.nodes.items()} | {9: self.controller.port}
        epochs = {one: node.broker.broker_epoch or 0 for one, node in self.nodes.items()} | {9: 900}
        return [
            BrokerEntry(
                one, epochs[one], "live", None, (f"HTTP://127.0.0.1:{port}", f"PLAINTEXT://127.0.0.1:{9090 + one}")
            )
            for one, port in ports.items()
        ]

    async def tell_brokers(self) -> None:
        request = StatesRequest(full=True, brokers=self.entries())
        for node in self.nodes.values():
            assert await self.controller.tell(node, bodies.UPDATE_METADATA, request) == OBEYED

    async def tell_rows(self, *rows: PartitionRow, full: bool = False) -> None:
        request = StatesRequest(full=full, topics=[topic(*rows)])
        for node in self.nodes.values():
            assert await self.controller.tell(node, bodies.LEADER_AND_ISR, request) == OBEYED

    def isr(self) -> tuple[int, ...]:
        return self.nodes[1].broker.replicas.told["id-orders", 0].isr

    def are_caught_up(self, *followers: int) -> bool:
        return all(self.nodes[1].broker.sessions.is_counting(("id-orders", 0), one) for one in followers)
