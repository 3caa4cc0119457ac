"""Trouble for Kafka's clients, as whole stories: the faults that authors of clients have to handle, each from a seed.

A story is told in the words of the lab (cut, stop, kill, faults of one broker) and of the controller's API. Details
that the order leaves open are drawn: the same seed draws the same on the same topics. Each story returns one sentence
about its events, and heals by itself.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random, SystemRandom
from typing import Any, Final

import msgspec
import structlog

from brokerstub.faults import ClientFaults
from brokerstub.lab.bodies import Trouble, TroubleOrder
from brokerstub.lab.brokers import LabBroker
from brokerstub.lab.settings import LabError, lab_secrets
from controller.wire.client import ExchangeError, HttpClient

REQUEST_MS: Final = 5_000
LOOK_S: Final = 0.1
#: a session has to expire, a broker has to claim the seat, and a broker to start
HAPPENS_WITHIN_S: Final = 45.0
SLOW_MS: Final = (50, 300, 1_500)
LOST_ANSWERS: Final = (1, 2, 5)
#: how long each lasts by default
LENGTHS_MS: Final = {
    "move-leader": 0,
    "stale-leader": 3_000,
    "slow-broker": 5_000,
    "silent-broker": 5_000,
    "lost-answers": 10_000,
    "unclean-election": 2_000,
}
JOURNAL: Final = "state-change.log"
#: the possible answers to our request for a partition
DONE: Final = ("NONE", "ELECTION_NOT_NEEDED")

log = structlog.get_logger()


class TargetPartition(msgspec.Struct, frozen=True):
    """One partition, as brokers are told of it."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


Story = Callable[[TargetPartition, Random, int], Awaitable[str]]


class Troubles:
    """One at a time. `close` at the end."""

    def __init__(self, brokers: Mapping[int, LabBroker]) -> None:
        self._brokers = brokers
        self._http = HttpClient()
        self._healing: set[asyncio.TimerHandle] = set()
        self._one_at_a_time = asyncio.Lock()
        self._stories: dict[str, Story] = {
            "move-leader": self._move_leader,
            "stale-leader": self._stale_leader,
            "slow-broker": self._slow_broker,
            "silent-broker": self._silent_broker,
            "lost-answers": self._lost_answers,
            "unclean-election": self._unclean_election,
        }

    async def close(self) -> None:
        for one in self._healing:
            one.cancel()
        await self._http.close()

    async def make(self, order: TroubleOrder) -> Trouble:
        """Have it happen. Raises LabError where it cannot."""
        seed = order.seed or str(SystemRandom().randrange(1, 10**6))
        draw = Random(seed)
        kind = draw.choice(sorted(self._stories))
        kind = order.kind or kind
        async with self._one_at_a_time:
            chosen = await self._choose(order, draw)
            for_ms = LENGTHS_MS[kind] if order.for_ms is None else order.for_ms
            told = await self._stories[kind](chosen, draw, for_ms)
        log.info("trouble.made", kind=kind, topic=chosen.topic, partition=chosen.partition, seed=seed, told=told)
        return Trouble(kind, chosen.topic, chosen.partition, chosen.leader, for_ms, seed, told)

    # ------------------------------------------------------------------ the stories

    async def _move_leader(self, chosen: TargetPartition, draw: Random, for_ms: int) -> str:
        others = sorted(set(chosen.isr) - {chosen.leader})
        if not others:
            raise LabError(f"{chosen.name} cannot be led by anybody else: only {chosen.leader} is in sync")
        new = draw.choice(others)
        replicas = [new, *(one for one in chosen.replicas if one != new)]
        place = {"topic": chosen.topic, "partition": chosen.partition}
        await self._write("/v1/reassignments", {"version": 1, "partitions": [{**place, "replicas": replicas}]})
        await self._until(chosen, lambda row: row.replicas == replicas)
        await self._write("/v1/elections", {"type": "preferred", "partitions": [place]})
        await self._until(chosen, lambda row: row.leader == new)
        return f"the leader of {chosen.name} moved from broker {chosen.leader} to {new}"

    async def _stale_leader(self, chosen: TargetPartition, draw: Random, for_ms: int) -> str:
        broker = self._running(chosen.leader)
        if len(chosen.isr) == 1:
            raise LabError(f"{chosen.name} cannot be led by anybody else: only {chosen.leader} is in sync")
        broker.cut()
        for other in self._brokers:
            if other != chosen.leader:
                broker.cut(other)
        try:
            row = await self._until(chosen, lambda row: row.leader not in (chosen.leader, -1), other_than=chosen.leader)
        except LabError:
            broker.heal()
            raise
        self._later(for_ms, broker.heal)
        return (
            f"broker {chosen.leader} is cut off from ZooKeeper and from all brokers, and goes on answering clients; "
            f"broker {row.leader} leads {chosen.name} since, at leader epoch {row.leader_epoch}"
        )

    async def _slow_broker(self, chosen: TargetPartition, draw: Random, for_ms: int) -> str:
        slow_ms = draw.choice(SLOW_MS)
        await self._trouble_clients(chosen, for_ms, ClientFaults(slow_ms=slow_ms))
        return f"broker {chosen.leader}, which leads {chosen.name}, lets every request of a client wait {slow_ms} ms"

    async def _silent_broker(self, chosen: TargetPartition, draw: Random, for_ms: int) -> str:
        await self._trouble_clients(chosen, for_ms, ClientFaults(is_silent=True))
        return f"broker {chosen.leader}, which leads {chosen.name}, takes requests of clients and answers none"

    async def _lost_answers(self, chosen: TargetPartition, draw: Random, for_ms: int) -> str:
        count = draw.choice(LOST_ANSWERS)
        await self._trouble_clients(chosen, for_ms, ClientFaults(lost_answers=count))
        these = "Produce request" if count == 1 else f"{count} Produce requests"
        return (
            f"broker {chosen.leader}, which leads {chosen.name}, writes the records of the next {these}, and breaks "
            "the connection in place of each answer"
        )

    async def _unclean_election(self, chosen: TargetPartition, draw: Random, for_ms: int) -> str:
        """All others stop. The leader goes on alone for a while, in which clients write, and dies. A broker with fewer
        records comes back and is elected all the same. Then the broker that had more returns."""
        leader = self._running(chosen.leader)
        others = [self._running(one) for one in chosen.replicas if one != chosen.leader]
        if not others:
            raise LabError(f"{chosen.name} has one replica: nobody else can be elected")
        known = len(_truncations_of(leader, chosen))
        await asyncio.gather(*(one.stop() for one in others))
        await self._until(chosen, lambda row: row.isr == [chosen.leader])
        await asyncio.sleep(for_ms / 1_000)
        await leader.kill()
        for one in others:
            await one.start()
        await self._until(chosen, lambda row: row.leader == -1, other_than=chosen.leader)
        place = {"topic": chosen.topic, "partition": chosen.partition}
        await self._write("/v1/elections", {"type": "unclean", "partitions": [place]})
        row = await self._until(chosen, lambda row: row.leader not in (-1, chosen.leader))
        await leader.start()
        await self._until(chosen, lambda row: chosen.leader in row.isr)
        lines = _truncations_of(leader, chosen)[known:]
        lost, gone = sum(line["records_lost"] for line in lines), "; ".join(line["reason"] for line in lines)
        return (
            f"broker {row.leader} was elected for {chosen.name} out of sync, at leader epoch {row.leader_epoch}; "
            + (f"broker {chosen.leader} truncated {gone}" if lines else f"broker {chosen.leader} had nothing more")
            + (f" ({lost} committed records are lost)" if lost else "")
        )

    # ------------------------------------------------------------------ the steps of the stories

    def _running(self, broker_id: int) -> LabBroker:
        broker = self._brokers[broker_id]
        if broker.state != "running":
            raise LabError(f"broker {broker_id} is {broker.state}: have it run first", "BROKER_NOT_AVAILABLE")
        return broker

    async def _trouble_clients(self, chosen: TargetPartition, for_ms: int, faults: ClientFaults) -> None:
        """As soon as the broker has taken it up."""
        broker = self._running(chosen.leader)
        number = broker.trouble_clients(faults)
        end = time.monotonic() + HAPPENS_WITHIN_S
        while not broker.has_taken_faults:
            if time.monotonic() > end:
                broker.calm_clients(number)
                raise LabError(f"broker {chosen.leader} did not take the trouble up within {HAPPENS_WITHIN_S:g} s")
            await asyncio.sleep(LOOK_S)
        self._later(for_ms, lambda: broker.calm_clients(number))

    def _later(self, for_ms: int, act: Callable[[], object]) -> None:
        def run() -> None:
            self._healing.discard(handle)
            act()

        handle = asyncio.get_running_loop().call_later(for_ms / 1_000, run)
        self._healing.add(handle)

    async def _choose(self, order: TroubleOrder, draw: Random) -> TargetPartition:
        rows = [row for row in await self._rows(order.topic) if row.leader in self._brokers]
        if order.partition is not None:
            rows = [row for row in rows if row.partition == order.partition]
        if not rows:
            wanted = "a topic" if order.topic is None else order.topic
            raise LabError(f"no partition of {wanted} is led now: create one, or wait", "UNKNOWN_TOPIC_OR_PARTITION")
        row = draw.choice(sorted(rows, key=lambda row: (row.topic, row.partition)))
        return TargetPartition(row.topic, row.partition, row.leader, row.replicas, row.isr)

    async def _until(
        self, chosen: TargetPartition, is_so: Callable[[_Row], bool], *, other_than: int | None = None
    ) -> _Row:
        """As soon as some broker, not this one, was told so."""
        end = time.monotonic() + HAPPENS_WITHIN_S
        while True:
            try:
                rows = await self._rows(chosen.topic, other_than=other_than)
            except LabError:
                rows = []
            found = next((row for row in rows if row.partition == chosen.partition), None)
            if found is not None and is_so(found):
                return found
            if time.monotonic() > end:
                raise LabError(f"{chosen.name} did not come so far within {HAPPENS_WITHIN_S:g} s: it is {found}")
            await asyncio.sleep(LOOK_S)

    async def _rows(self, topic: str | None, *, other_than: int | None = None) -> Sequence[_Row]:
        query = "/v1/partitions?limit=1000" + ("" if topic is None else f"&topic={topic}")
        page = await self._ask("GET", query, None, other_than=other_than)
        return msgspec.convert(page["items"], list[_Row])

    async def _write(self, path: str, body: object) -> None:
        """Repeat the write while there is no controller, and while it is refused."""
        end = time.monotonic() + HAPPENS_WITHIN_S
        while True:
            try:
                answer = await self._ask("POST", path, body)
                refused = [one for one in answer["partitions"] if one["code"] not in DONE]
                if not refused:
                    return
                raise LabError(f"POST {path}: {refused}")
            except LabError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(LOOK_S)

    async def _ask(self, method: str, path: str, body: object, *, other_than: int | None = None) -> Any:
        running = [one for one in self._brokers.values() if one.state == "running" and one.broker_id != other_than]
        secrets, said = lab_secrets(), "no broker runs"
        headers = {
            "Content-Type": "application/json",
            "Klamm-Forward": "1",
            **secrets.authorization(is_write=method != "GET"),
        }
        data = b"" if body is None else json.dumps(body).encode()
        for broker in running:
            try:
                answer = await self._http.send(method, f"{broker.url}{path}", data, headers, REQUEST_MS)
            except (ExchangeError, TimeoutError) as error:
                said = str(error) or "no answer"
                continue
            if answer.status < 300:
                return json.loads(answer.body)
            said = answer.body.decode(errors="replace")
        raise LabError(f"{method} {path}: {said}")


class _Row(msgspec.Struct):
    """A partition in the API; the rest of it is not needed here."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]


def _truncations_of(broker: LabBroker, chosen: TargetPartition) -> list[dict[str, Any]]:
    """Returns the broker's lines about records that it removed."""
    try:
        text = (broker.folder / JOURNAL).read_text()
    except FileNotFoundError:
        return []
    lines = [json.loads(line) for line in text.splitlines() if '"truncation"' in line]
    return [one for one in lines if (one["topic"], one["partition"]) == (chosen.topic, chosen.partition)]
