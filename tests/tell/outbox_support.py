"""A term's outboxes with a dialect in memory that records, fails and holds back."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from controller.base.config import LIMITS
from controller.core.model import Broker, Leadership, Partition
from controller.core.project.requests import KnownBroker, Rows, Telling
from controller.tell.acknowledgements import BrokerAnswered
from controller.tell.dialects import Envelope, Request
from controller.tell.outbox import Outboxes
from controller.wire.bodies import (
    DESCRIBE_TOPICS,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    Answer,
    DescribeTopicsAnswer,
)
from tests.waiting import DEADLINE_S

A, B = ("a", "a-id"), ("b", "b-id")
SHORT = {LEADER_AND_ISR: "LISR", UPDATE_METADATA: "UM", STOP_REPLICA: "SR", DESCRIBE_TOPICS: "ASK"}
#: kind (with a star if full), partitions as topic-number@leader_epoch (x: removed; +: new; !: deleted), B if brokers
#: are told
Told = tuple[str, ...]


def a_broker(broker_id: int, epoch: int = 1) -> Broker:
    return Broker(broker_id, epoch, "h", 1, ())


def a_state(leader_epoch: int, replicas: tuple[int, ...] = (1, 2)) -> Partition:
    return Partition(replicas, state=Leadership(replicas[0], leader_epoch, replicas, 7), version=leader_epoch)


class MemoryDialect:
    """Keeps `Dialect`. Every request is recorded when it arrives, answered or not."""

    def __init__(self) -> None:
        self.encoded: dict[bytes, Request] = {}
        self.arrived: list[tuple[Broker, Request, Envelope]] = []
        self.in_flight: dict[int, int] = defaultdict(int)
        #: the fate of a request; None: a good answer at once
        self.behave: Callable[[Broker, Request], Answer | Exception | asyncio.Future[Answer] | None] = lambda *_: None

    def encode(self, request: Request) -> bytes:
        body = b"%d" % len(self.encoded)
        self.encoded[body] = request
        return body

    async def send(self, broker: Broker, request: Request, body: bytes, envelope: Envelope) -> Answer:
        assert request is self.encoded[body]
        self.in_flight[broker.broker_id] += 1
        assert self.in_flight[broker.broker_id] == 1, "one request in flight per broker"
        try:
            self.arrived.append((broker, request, envelope))
            outcome = self.behave(broker, request)
            await asyncio.sleep(0)
            if isinstance(outcome, Exception):
                raise outcome
            if isinstance(outcome, asyncio.Future):
                return await outcome
            return outcome or (DescribeTopicsAnswer() if request.names else Answer())
        finally:
            self.in_flight[broker.broker_id] -= 1

    def told(self, broker_id: int, epoch: int = 1) -> list[Told]:
        return [words_for(r) for b, r, _ in self.arrived if (b.broker_id, b.epoch) == (broker_id, epoch)]


def words_for(request: Request) -> Told:
    words = [SHORT[request.path] + "*" * request.full + "B" * request.tells_brokers, *request.names]
    for (topic, topic_id), partitions in request.rows.items():
        for number, partition in partitions.items():
            state = "x" if partition is None else f"@{partition.state.leader_epoch}" if partition.state else "-"
            words.append(f"{topic}-{number}{state}" + "+" * ((topic_id, number) in request.new))
    for (topic, _), stops in request.stops.items():
        words += [f"{topic}-{number}@{stop.leader_epoch}" + "!" * stop.delete for number, stop in stops.items()]
    return tuple(words)


class Fixture:
    """A term's outboxes with brokers that joined."""

    def __init__(self, tasks: asyncio.TaskGroup, limits: dict[str, int]) -> None:
        self.dialect = MemoryDialect()
        self.answers: list[BrokerAnswered] = []
        self.fenced = 0
        self.obeyed: list[int] = []
        self.now = 0.0
        self.live: dict[int, Broker] = {}
        self.events = 0
        self.outboxes = Outboxes(
            tasks,
            self.dialect,
            1,
            7,
            on_answer=self.answers.append,
            on_fenced=self._on_fenced,
            on_epoch=self.obeyed.append,
            entropy=random.Random(1),
            limits=msgspec.structs.replace(LIMITS, **{"rpc_retry_min_ms": 1, "rpc_retry_max_ms": 2, **limits}),
            clock=lambda: self.now,
        )

    def _on_fenced(self) -> None:
        self.fenced += 1

    def tell(self, *, joined: Sequence[Broker] = (), gone: Sequence[tuple[int, int]] = (), **fields: object) -> None:
        for broker_id, _ in gone:
            self.live.pop(broker_id, None)
        self.live |= {broker.broker_id: broker for broker in joined}
        self.events += 1
        telling = Telling(
            brokers=[KnownBroker(broker, "live") for broker in self.live.values()],
            live_ids=frozenset(self.live),
            brokers_changed=bool(joined or gone),
            joined=joined,
            gone=gone,
            **fields,  # type: ignore[arg-type]
        )
        self.outboxes.accept(telling, f"7-{self.events}")

    async def join(self, *brokers: Broker, everything: Rows | None = None) -> None:
        """Let them join and forget earlier requests to them."""
        self.tell(joined=brokers, everything=everything or {})
        await self.settled()
        self.dialect.arrived.clear()

    async def settled(self) -> None:
        await asyncio.wait_for(self.outboxes.settled(), DEADLINE_S)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():  # noqa: ASYNC110 — the condition is the code's own, it has no event
                await asyncio.sleep(0)


@asynccontextmanager
async def outboxes(**limits: int) -> AsyncIterator[Fixture]:
    async with asyncio.TaskGroup() as tasks:
        fixture = Fixture(tasks, limits)
        yield fixture
        fixture.tell(gone=[(broker.broker_id, broker.epoch) for broker in fixture.live.values()])
