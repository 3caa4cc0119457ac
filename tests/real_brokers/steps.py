"""The steps of a soak on a real cluster: faults, and requests of administrators by Kafka's own tools.

It says when processes really died; whether all went well, others judge.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from signal import Signals
from typing import Final

from controller.base.clock import wall_ms
from tests.real_brokers.cluster import Cluster
from tests.real_brokers.judge import TOPIC
from tests.real_brokers.past import Dead
from tests.waiting import until

#: grown by and by, and moved to and fro
OTHER: Final = "growing"
PARTITIONS: Final = 6
#: a broker that was heard last so long ago has lost its session of 4 s, with two of ZooKeeper's ticks of 0.5 s
SESSION_JUDGED_MS: Final = 5_000
#: how Kafka refuses a topic
TOO_FEW: Final = "InvalidReplicationFactorException"


class Steps:
    """Each leaves every broker up."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.others: list[str] = []
        self.dead: list[Dead] = []

    async def let_pass(self, seconds: float) -> None:
        """A fault's own length, which nothing tells the end of."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:  # noqa: ASYNC110 - it is the time itself that is waited for
            await asyncio.sleep(left)

    async def kill_broker(self) -> None:
        broker = self.cluster.brokers[self.random.choice([1, 2, 3])]
        self.dead.append(dead := Dead(broker.broker_id, wall_ms()))
        await broker.kill()
        await until(lambda: not self.cluster.is_registered(broker.broker_id), "its session has ended")
        dead.to_ms = wall_ms()
        await broker.start()

    async def stop_broker(self) -> None:
        broker = self.cluster.brokers[self.random.choice([1, 2, 3])]
        await broker.stop()
        await broker.start()

    async def freeze_broker(self) -> None:
        broker = self.cluster.brokers[self.random.choice([1, 2, 3])]
        self.dead.append(dead := Dead(broker.broker_id, wall_ms()))
        broker.send(Signals.SIGSTOP)
        await self.let_pass(self.random.uniform(1, 8))
        broker.send(Signals.SIGCONT)
        dead.to_ms = wall_ms()
        # until then ZooKeeper may still end the session that it had: it would be gone in the middle of the next step
        judged_ms = dead.from_ms + SESSION_JUDGED_MS
        await until(
            lambda: wall_ms() >= judged_ms and self.cluster.is_registered(broker.broker_id), "it is registered again"
        )

    async def make_topic(self) -> None:
        name = f"other-{self.random.randrange(1 << 30)}"
        self.others.append(name)
        await until(lambda: self._is_made(name), f"{name} is made")

    async def _is_made(self, name: str) -> bool:
        """A broker that stood still may find only later that its session has ended; then there are two for a while."""
        try:
            await self.cluster.create(name, "--partitions", "3", "--replication-factor", "3")
        except AssertionError as error:
            if TOO_FEW not in str(error):
                raise
            return False
        return True

    async def grow(self) -> None:
        count = len(self.cluster.states(OTHER)) + 1
        await self.cluster.tool("TopicCommand", "--alter", "--topic", OTHER, "--partitions", str(count))

    async def delete_topic(self) -> None:
        if not self.others:
            await self.make_topic()
        await self.cluster.tool("TopicCommand", "--delete", "--if-exists", "--topic", self.others.pop())

    async def elect(self) -> None:
        what = ("--election-type", "preferred", "--all-topic-partitions")
        await self.cluster.tool("LeaderElectionCommand", *what)

    async def prepare(self, operation: Callable[[], Awaitable[None]]) -> None:
        """While ours has the seat: so that the operation has something to do, and begins with its own work."""
        if operation == self.elect:
            states = self.cluster.states(TOPIC)
            last = {n: [*({1, 2, 3} - {state["leader"]}), state["leader"]] for n, state in states.items()}
            rows = [{"topic": TOPIC, "partition": n, "replicas": replicas} for n, replicas in last.items()]
            status, body = await self.cluster.controller.ask("POST", "/v1/reassignments", {"partitions": rows})
            assert status in (200, 202), body
            wanted = {str(n): replicas for n, replicas in last.items()}
            await until(
                lambda: self.cluster.read(f"/brokers/topics/{TOPIC}")["partitions"] == wanted, "leaders are last"
            )
        elif operation == self.delete_topic and not self.others:
            await self.make_topic()

    async def reassign(self) -> None:
        """All replicas of a topic change places; those of the other go to other brokers, with their records."""
        await self.asked_to_move(
            {(TOPIC, n): self.random.sample([1, 2, 3], 3) for n in range(PARTITIONS)}
            | {(OTHER, n): self.random.sample([1, 2, 3], 2) for n in self.cluster.states(OTHER)}
        )

    async def asked_to_move(self, targets: dict[tuple[str, int], list[int]]) -> None:
        rows = [{"topic": topic, "partition": n, "replicas": replicas} for (topic, n), replicas in targets.items()]
        path = self.cluster.directory / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}))
        name = "reassign.ReassignPartitionsCommand"
        await self.cluster.tool(name, "--execute", "--reassignment-json-file", str(path))
