"""Producers and a consumer of a simulated cluster. Each is a process of its own and finds leaders in the metadata of
some broker. Each draws its actions from a seed of its own, so that the schedule of faults stays the same.

Producers write named batches. The idempotent producer resends a batch until it knows the outcome, and its requests may
arrive twice. The other producer sends each batch once, with the acks that it draws.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from brokerstub.metadata import MetadataCache
from controller.core.codes import Code
from controller.wire.client import ExchangeError
from tests.faults.checker.records import Sent, batches_in
from tests.faults.simulate.batch import (
    Place,
    Producer,
    answer_to_fetch,
    answer_to_produce,
    batch_of,
    to_fetch,
    to_produce,
)
from tests.faults.simulate.diverging_logs import Partings
from tests.faults.simulate.loop import Process
from tests.faults.simulate.network import SimHttp
from tests.faults.simulate.player import pause
from tests.faults.simulate.records import ALL, FETCH_PATH, PRODUCE_PATH, SimRecords

if TYPE_CHECKING:
    from tests.faults.simulate.member import Member

#: between two batches of a producer, and two questions of a consumer
PAUSES_S: Final = (0.0, 0.05, 0.2, 0.6)
REQUEST_MS: Final = 1_500
ANSWER_MS: Final = 3_000
READ_WAIT_MS: Final = 300
#: an idempotent producer gives a batch up after so many requests
TRIES_MAX: Final = 12
AGAIN_S: Final = (0.02, 0.6)
DOUBLES: Final = 0.15
ANSWERS_LOST: Final = 0.1
#: the shares of requests that go to the wrong broker, and of reads that start from the beginning again
ASTRAY: Final = 0.05
ANEW: Final = 0.08
#: After these errors the leader does not know the producer's earlier batches, or knows different ones. The producer
#: begins anew.
_BEGIN_ANEW: Final = (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH)
#: any other error code is a bug
_EXPECTED: Final = frozenset(
    {
        *_BEGIN_ANEW,
        Code.NONE,
        Code.OFFSET_OUT_OF_RANGE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.REQUEST_TIMED_OUT,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)


class Clients:
    """All of them. `start` once, `finish` before the run is judged."""

    def __init__(self, records: SimRecords, seed: str, *, parts_logs: bool) -> None:
        """`parts_logs`: leaders are cut off now and then, and written to."""
        once = Writing(records, f"{seed} once", "o")
        self._all: list[_Client | Partings] = [
            Writing(records, f"{seed} idempotent", "i"),
            once,
            Reading(records, f"{seed} consumer", "c"),
        ]
        if parts_logs:
            self._all.append(Partings(records, seed, once))
        self._cluster = records.cluster
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for one in self._all:
            running = self._cluster.loop.create_task if isinstance(one, Partings) else one.process.start
            self._tasks.append(running(one.run()))

    async def finish(self) -> None:
        """Finish the requests under way. No request begins any more."""
        for one in self._all:
            one.is_over = True
        await asyncio.gather(*self._tasks)


class _Client:
    def __init__(self, records: SimRecords, seed: str, name: str) -> None:
        self.is_over = False
        self.name = name
        self.records = records
        self.cluster = records.cluster
        self.random = Random(seed)
        self.process = Process(f"client-{name}", self.cluster.loop)
        self._http = SimHttp(self.cluster.network, self.process)
        self._leaders: dict[Place, int] = {}

    async def run(self) -> None:
        while not self.is_over:
            await pause(self.cluster, self.random.choice(PAUSES_S) * self.random.random())
            if (place := self._some_place()) is not None:
                await self.act(place)

    async def act(self, place: Place) -> None:
        raise NotImplementedError

    async def ask(self, place: Place, path: str, body: bytes, leader: Member | None = None) -> bytes | None:
        """Ask the leader that some broker names. Returns None when it is unknown whether the request arrived."""
        leader = leader or self._leader_of(place)
        if leader is None:
            self._leaders.pop(place, None)
            return None
        network, broker = self.cluster.network, leader.name
        network.link(self.process.name, broker).doubles = DOUBLES if self.name == "i" else 0.0
        network.link(broker, self.process.name).loses_answers = self.random.random() < ANSWERS_LOST
        try:
            _, answer = await self._http.post(f"http://{broker}{path}", body, {}, ANSWER_MS)
        except ExchangeError:
            self._leaders.pop(place, None)
            return None
        return answer

    def _some_broker(self) -> Member | None:
        able = [one for _, one in sorted(self.cluster.members.items()) if one.broker is not None]
        return self.random.choice(able) if able else None

    def _some_place(self) -> Place | None:
        told = self._told()
        names = [] if told is None else sorted(told.topic_names)
        topic = None if told is None or not names else told.topic(self.random.choice(names))
        return None if topic is None else Place(topic.topic, self.random.choice(topic.partitions).partition)

    def _leader_of(self, place: Place) -> Member | None:
        """Once found it is asked until something goes wrong, as clients do: it may lead no longer."""
        if self.random.random() < ASTRAY:
            return self._some_broker()
        if place not in self._leaders:
            told = self._told()
            topic = None if told is None else told.topic(place.topic)
            rows = () if topic is None else topic.partitions
            found = [one.leader for one in rows if one.partition == place.partition]
            if not found:
                return None
            self._leaders[place] = found[0]
        return self.cluster.members.get(self._leaders[place])

    def _told(self) -> MetadataCache | None:
        """Return the metadata of some broker."""
        asked = self._some_broker()
        return None if asked is None or asked.broker is None else asked.broker.metadata

    def expect(self, place: Place, code: int) -> None:
        if code != Code.NONE:
            self._leaders.pop(place, None)
        if code not in _EXPECTED:
            self.cluster.bugs.append(f"client {self.name} was answered {Code(code).name}")


class _Lane(msgspec.Struct):
    """Of an idempotent producer, one partition."""

    producer_id: int = -1
    sequence: int = 0


class Writing(_Client):
    """A producer."""

    def __init__(self, records: SimRecords, seed: str, name: str) -> None:
        super().__init__(records, seed, name)
        self.is_idempotent = name == "i"
        self._lanes: dict[Place, _Lane] = {}
        self._producer_ids = 0
        self._number = 0

    async def act(self, place: Place) -> None:
        acks = ALL if self.is_idempotent else self.random.choice((ALL, 0, 1))
        lane = self._lane(place)
        count, request = self._next(place, acks, lane)
        for _ in range(TRIES_MAX if self.is_idempotent else 1):
            answer = await self.ask(place, PRODUCE_PATH, request)
            code = None if not answer else answer_to_produce(answer).code
            if code is not None:
                self.expect(place, code)
            if code == Code.NONE:
                lane.sequence += count
                return
            if code in _BEGIN_ANEW:
                break
            if self.is_idempotent:
                await pause(self.cluster, self.random.uniform(*AGAIN_S))
        self._lanes.pop(place, None)

    async def write_to(self, leader: Member, place: Place, acks: int) -> None:
        """Send one batch once to the supposed leader."""
        _, request = self._next(place, acks, _Lane())
        await self.ask(place, PRODUCE_PATH, request, leader)

    def _next(self, place: Place, acks: int, lane: _Lane) -> tuple[int, bytes]:
        """The next batch: how many records it has, and the request."""
        count = self.random.randint(1, 3)
        who = f"{self.name}{lane.producer_id}" if self.is_idempotent else self.name
        self._number += 1
        name = f"{place.topic}-{place.partition} {who} {self._number}"
        self.records.evidence.sent.append(Sent(name, who, self._number, self.is_idempotent, acks))
        producer = Producer(lane.producer_id, lane.sequence) if self.is_idempotent else Producer()
        batch = batch_of(name, count, self.cluster.zookeeper.now_ms, producer)
        return count, to_produce(place, acks, REQUEST_MS, batch)

    def _lane(self, place: Place) -> _Lane:
        if place not in self._lanes:
            self._producer_ids += 1
            self._lanes[place] = _Lane(self._producer_ids)
        return self._lanes[place]


class Reading(_Client):
    """A consumer of all partitions, which now and then reads all anew."""

    def __init__(self, records: SimRecords, seed: str, name: str) -> None:
        super().__init__(records, seed, name)
        self._places: dict[Place, int] = {}

    async def act(self, place: Place) -> None:
        offset = 0 if self.random.random() < ANEW else self._places.get(place, 0)
        answer = await self.ask(place, FETCH_PATH, to_fetch(place, offset, READ_WAIT_MS))
        if not answer:
            return
        given = answer_to_fetch(answer)
        self.expect(place, given.code)
        # the topic was created anew, or an unclean election lost records that the consumer had read
        if given.code == Code.OFFSET_OUT_OF_RANGE:
            offset = 0
        for one in batches_in(given.data):
            offset = one.offset + one.count
        self._places[place] = offset
