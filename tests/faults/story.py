"""Plays that are not drawn: the events of a simulated cluster, in order, for the museum and the checker's own tests.

A `Stage` says things in words of the domain and waits for conditions in virtual time; it never judges.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from controller.core.events import CreateTopicAsked, DeleteTopicAsked, Event, ReassignAsked
from controller.core.operations import Delete
from tests.faults.checker.history import json_of
from tests.faults.simulate.client import SimClient
from tests.faults.simulate.cluster import SimCluster
from tests.faults.simulate.member import Member
from tests.faults.simulate.player import Player, pause
from tests.faults.simulate.rest import come_to_rest, unrest
from tests.faults.simulate.run import Outcome, run

DEADLINE_S = 60.0
POLL_S = 0.01


class Stage:
    """The scenario of a simulated cluster."""

    def __init__(self, cluster: SimCluster, seed: str) -> None:
        self.cluster = cluster
        self.player = Player(cluster, seed)

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """The first true answer."""
        end_s = self.cluster.loop.time() + DEADLINE_S
        while not (answer := condition()):
            assert self.cluster.loop.time() < end_s, f"never: {what}"
            await pause(self.cluster, POLL_S)
        return answer

    async def rest(self) -> None:
        assert await come_to_rest(self.cluster, DEADLINE_S) is not None, list(unrest(self.cluster))

    async def pause(self, seconds: float) -> None:
        await pause(self.cluster, seconds)

    async def ask(self, event: Event, *, what: str = "ask", subject: str = "") -> str:
        """The outcome as a client sees it."""
        await self.player.ask(what, subject, event)
        return str(self.cluster.calls[-1].outcome)

    async def create(self, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
        assert await self.ask(CreateTopicAsked(name, assignment=assignment), what="create-topic", subject=name) == "ok"
        await self.until(lambda: all(self.state(name, number) for number in assignment), f"{name} is led")

    async def delete(self, name: str) -> None:
        assert await self.ask(DeleteTopicAsked(name), what="delete-topic", subject=name) == "ok"

    async def reassign(self, name: str, targets: dict[int, tuple[int, ...] | None]) -> str:
        return await self.ask(ReassignAsked({(name, number): one for number, one in targets.items()}), what="reassign")

    def state(self, topic: str, partition: int = 0) -> dict[str, Any] | None:
        data = self.cluster.zookeeper.read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return None if data is None else json_of(data)

    def version(self, topic: str, partition: int = 0) -> int:
        return self.cluster.zookeeper.tree.nodes[f"/brokers/topics/{topic}/partitions/{partition}/state"].version

    def leads(self, broker_id: int, topic: str, partition: int = 0) -> Callable[[], bool]:
        return lambda: (self.state(topic, partition) or {}).get("leader") == broker_id

    def has(self, path: str) -> bool:
        return path in self.cluster.zookeeper.tree.nodes

    def kill(self, broker_id: int, *, loses_disk: bool = False) -> None:
        self.cluster.fault("kill", broker_id, can_move_seat=True)
        self.cluster.kill(broker_id, loses_disk=loses_disk)

    def start(self, broker_id: int) -> None:
        self.cluster.start(broker_id)

    def gone(self, broker_id: int) -> Callable[[], bool]:
        return lambda: not self.has(f"/brokers/ids/{broker_id}")

    @property
    def controller(self) -> Member:
        """Returns the member that holds the seat."""
        seat_id = self.cluster.seat_id
        assert seat_id is not None, "the seat is vacant"
        return self.cluster.members[seat_id]

    @property
    def others(self) -> list[int]:
        return [one for one in self.cluster.broker_ids if one != self.cluster.seat_id]

    def expire(self, broker_id: int) -> None:
        self.cluster.fault("expire", broker_id, can_move_seat=True)
        self.cluster.zookeeper.expire(self._client_of(broker_id).session_id)

    def slow(self, broker_id: int, least_s: float, most_s: float) -> None:
        """ZooKeeper takes so long for this broker's requests, until `no_longer_slow`."""
        self.cluster.fault("slow ZooKeeper", broker_id, lasts_s=DEADLINE_S)
        self._client_of(broker_id).latency_s = (least_s, most_s)

    def no_longer_slow(self, broker_id: int) -> None:
        client = self._client_of(broker_id)
        client.latency_s = type(client).latency_s

    def _client_of(self, broker_id: int) -> SimClient:
        client = self.cluster.members[broker_id].zk
        assert client is not None, f"broker {broker_id} has no session"
        return client

    def delete_seat(self) -> None:
        """As an operator does."""
        self.cluster.fault("delete /controller", can_move_seat=True)
        self.cluster.zookeeper.commit(0, [Delete("/controller", -1)])

    def write(self, path: str, data: bytes) -> None:
        """As a tool does."""
        self.player.write(path, data)


Scene = Callable[[Stage], Awaitable[None]]


def staged(
    scene: Scene, *, seed: str = "museum", brokers: int = 3, balances: bool = False, records: bool = False
) -> Outcome:
    """Play a scene, let the cluster come to rest, judge."""

    async def play(cluster: SimCluster, seed: str) -> None:
        await scene(Stage(cluster, seed))

    return run(seed, play, brokers=brokers, balances=balances, records=records)


def scene(play: Scene) -> Callable[[], None]:
    """A scene as a test: it holds if no rule was broken."""

    def test() -> None:
        outcome = staged(play)
        assert not outcome.findings, "; ".join(dict.fromkeys(one.rule for one in outcome.findings))

    test.__name__, test.__doc__ = play.__name__, play.__doc__
    return test
