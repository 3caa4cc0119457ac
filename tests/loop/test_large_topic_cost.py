"""The cost of one large topic, or very many small ones, for a whole controller, in steps: each row told or written
costs as much as where there are few."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from controller.base.config import Limits
from controller.core import formats
from controller.core.events import CreateTopicAsked, DeleteTopicAsked
from controller.core.model import Assignment, Broker, Leadership
from controller.core.project.znodes import partitions_path, state_path, topic_path
from controller.seat.claim import Claim
from controller.seat.guard import TermGuard
from controller.tell.dialects import Envelope, Request
from controller.tell.dialects.http import HttpDialect
from controller.tell.outbox import Outboxes
from controller.term.parts import OnAnswer
from controller.wire.bodies import Answer
from controller.wire.client import HttpClient
from tests.bench.world import topic_id_of
from tests.fakes.zookeeper import FakeZooKeeper
from tests.steps import counted
from tests.support.harness import a_broker, a_controller, a_server

SIZES = (1_000, pytest.param(10_000, marks=pytest.mark.long), pytest.param(40_000, marks=pytest.mark.long))
BASE = 500
BROKERS = range(1, 7)
#: few, so that very many answers come
PARTITIONS_PER_RPC = 50
#: of the steps for a row in a small topic, at most so many times in a large one
GROWTH_MAX = 1.25
#: nothing is told and written for so many turns: it is over
CALM_TURNS = 300


class Obeying(HttpDialect):
    """Brokers that obey every request, one turn later."""

    def __init__(self) -> None:
        self.http = HttpClient()
        super().__init__(self.http)
        self.told = 0

    async def send(self, broker: Broker, request: Request, body: bytes, envelope: Envelope) -> Answer:
        self.told += sum(map(len, request.rows.values())) + sum(map(len, request.stops.values()))
        await asyncio.sleep(0)
        return Answer()


class World:
    """A cluster with one topic, and the tellings and writes in it."""

    def __init__(self, server: FakeZooKeeper, size: int) -> None:
        self.server = server
        self.size = size
        self.dialect = Obeying()
        self.boxes: list[Outboxes] = []
        #: by deed: steps for each row told or written
        self.costs: dict[str, float] = {}

    def open_outboxes(
        self,
        claim: Claim,
        guard: TermGuard,
        group: asyncio.TaskGroup,
        on_fenced: Callable[[str], None],
        on_answer: OnAnswer,
    ) -> Outboxes:
        outboxes = Outboxes(
            group,
            self.dialect,
            claim.broker_id,
            claim.controller_epoch,
            on_answer=on_answer,
            on_fenced=lambda: on_fenced("fenced"),
            entropy=Random(1),
            limits=Limits(partitions_per_rpc=PARTITIONS_PER_RPC),
        )
        self.boxes.append(outboxes)
        return outboxes

    @property
    def rows(self) -> int:
        return self.dialect.told + sum(len(one.ops) for one in self.server.history)

    async def quiet(self) -> None:
        """Until all is told that there is to tell."""
        calm, last = 0, -1
        while calm < CALM_TURNS:
            now = self.rows
            is_calm = now == last and self.boxes and self.boxes[-1].is_settled
            calm = calm + 1 if is_calm else 0
            last = now
            await asyncio.sleep(0)

    async def costs_of(self, name: str, deed: Callable[[], Awaitable[object]]) -> None:
        before = self.rows
        with counted() as steps:
            await deed()
            await self.quiet()
        rows = self.rows - before
        assert rows >= self.size, f"{name}: {rows} rows"
        self.costs[name] = steps.count / rows


def spread(number: int) -> tuple[int, ...]:
    return tuple(1 + (number + step) % len(BROKERS) for step in range(3))


async def a_world(size: int) -> World:
    server = await a_server()
    placed = {number: spread(number) for number in range(size)}
    assignment = {number: Assignment(replicas) for number, replicas in placed.items()}
    nodes = {topic_path("big"): formats.encode_topic(topic_id_of("big"), assignment), partitions_path("big"): b""}
    for number, replicas in placed.items():
        nodes[state_path("big", number).rpartition("/")[0]] = b""
        nodes[state_path("big", number)] = formats.encode_state(Leadership(replicas[0], 0, replicas, 1))
    server.seed(nodes)
    return World(server, size)


async def a_world_of_topics(size: int) -> World:
    """Of one partition each."""
    server = await a_server()
    nodes: dict[str, bytes] = {}
    for number in range(size):
        name, replicas = f"t{number}", spread(number)
        nodes[topic_path(name)] = formats.encode_topic(topic_id_of(name), {0: Assignment(replicas)})
        nodes[partitions_path(name)] = nodes[state_path(name, 0).rpartition("/")[0]] = b""
        nodes[state_path(name, 0)] = formats.encode_state(Leadership(replicas[0], 0, replicas, 1))
    server.seed(nodes)
    return World(server, size)


async def costs_of_topics(size: int) -> dict[str, float]:
    """Failover, a broker's death and return, with so many topics."""
    world = await a_world_of_topics(size)
    server = world.server
    brokers = {broker_id: await a_broker(server, broker_id) for broker_id in BROKERS}
    async with a_controller(server, 100, open_outboxes=world.open_outboxes) as node:
        await world.costs_of("failover", world.quiet)
        await world.costs_of("death", brokers[6].close)
        await world.costs_of("return", lambda: a_broker(server, 6))
        assert len(node.handle.cluster.topics) == size
    await world.dialect.http.close()
    return world.costs


async def costs_at(size: int) -> dict[str, float]:
    """Failover, a broker's death and return, and a topic of that size made and deleted."""
    world = await a_world(size)
    server = world.server
    brokers = {broker_id: await a_broker(server, broker_id) for broker_id in BROKERS}
    async with a_controller(server, 100, open_outboxes=world.open_outboxes) as node:
        await world.costs_of("failover", world.quiet)
        cluster = node.handle.cluster
        await world.costs_of("death", brokers[6].close)
        await world.costs_of("return", lambda: a_broker(server, 6))
        await world.costs_of("creation", lambda: node.ask(CreateTopicAsked("new", size, 3, None, {})))
        assert len(cluster.topics["new"].partitions) == size
        await world.costs_of("deletion", lambda: node.ask(DeleteTopicAsked("new")))
        assert "new" not in cluster.topics
        assert cluster.duties.deletions == {}
    await world.dialect.http.close()
    return world.costs


@pytest.mark.parametrize("size", SIZES)
async def test_a_row_costs_a_controller_the_same_however_large_its_topic_is(size: int) -> None:
    small, large = await costs_at(BASE), await costs_at(size)
    grown = {name: (small[name], cost) for name, cost in large.items() if cost > GROWTH_MAX * small[name]}
    assert not grown, f"steps for each row at {BASE} and {size}: {small}, {large}"


@pytest.mark.parametrize("size", SIZES)
async def test_a_row_costs_a_controller_the_same_however_many_topics_there_are(size: int) -> None:
    small, large = await costs_of_topics(BASE), await costs_of_topics(size)
    grown = {name: (small[name], cost) for name, cost in large.items() if cost > GROWTH_MAX * small[name]}
    assert not grown, f"steps for each row at {BASE} and {size} topics: {small}, {large}"
