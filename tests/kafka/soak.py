"""`make kafka-soak MINUTES= SEED=`: nothing lost, while brokers and controllers are killed and the seat goes round.

An idempotent producer with acks=all and a consumer run through random faults; in each minute the seat is handed back
and taken over, and our controller is killed in the middle of an operation. Then the judgement: every acknowledged
record is there exactly once and in order, no partition was without a live leader for long, one controller per epoch.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from signal import Signals
from typing import Final

import structlog

from brokerstub.lab.child import Child, launched
from brokerstub.lab.kafka import java_command
from tests.integration.order import Order
from tests.kafka.cluster import TOOLS, Cluster, a_cluster, until, written
from tests.kafka.judge import TOPIC, Watcher, judge, unconsumed
from tests.kafka.secured import KINDS

#: Kafka's controller that loses the seat in the middle of a deletion keeps what it had not sent, and if it is elected
#: again, each of its decisions about replicas fails with this, until the broker is started anew
KAFKAS_BUG: Final = "Controller to broker state change requests batch is not empty while creating a new one"
STUCK_AFTER_S: Final = 20.0
#: grown by and by
OTHER: Final = "growing"
PARTITIONS: Final = 6
RATE: Final = 100
log = structlog.get_logger()


class Soak:
    """One run."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.done: dict[str, int] = defaultdict(int)
        #: each of them in turn loses its controller in the middle
        self.operations = [self.make_topic, self.grow, self.reassign, self.kill_broker, self.stop_broker, self.elect,
                           self.delete_topic]  # fmt: skip
        self.others: list[str] = []

    async def run(self, minutes: float) -> None:
        faults = [self.freeze_broker, *self.operations]
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            for step in (self.hand_back, self.take_over, self.kill_controller):
                await self.one_of([step])
                await self.one_of(faults)
        for broker in self.cluster.brokers.values():
            if broker.pid is None:
                await broker.start()
        await until(lambda: self.cluster.is_in_sync(TOPIC, 1, 2, 3), "all replicas are in sync at the end")

    async def one_of(self, steps: list[Callable[[], Awaitable[None]]]) -> None:
        step = self.random.choice(steps)
        log.info("step.begun", step=step.__name__)
        await step()
        self.done[step.__name__] += 1
        await self.whole()

    async def whole(self) -> None:
        """All replicas are in sync again; if a bug of Kafka's is in the way, ours mends it."""
        try:
            async with asyncio.timeout(STUCK_AFTER_S):
                await until(lambda: self.cluster.is_in_sync(TOPIC, 1, 2, 3), "all replicas are in sync again")
                return
        except TimeoutError:
            pass
        holder = self.cluster.brokers.get((self.cluster.read("/controller") or {}).get("brokerid", -1))
        if holder is not None and KAFKAS_BUG in holder.log_text():
            log.warning("kafka.stuck", broker_id=holder.broker_id, reason=KAFKAS_BUG)
            self.done["kafkas_bug"] += 1
            await self.cluster.controller.take_over()
        await until(lambda: self.cluster.is_in_sync(TOPIC, 1, 2, 3), "all replicas are in sync again")

    async def hand_back(self) -> None:
        status, _ = await self.cluster.controller.ask("POST", "/v1/handback", {})
        assert status in (200, 409), status
        await until(lambda: (self.cluster.read("/controller") or {}).get("brokerid", 100) < 100, "a broker took over")

    async def take_over(self) -> None:
        await self.cluster.controller.take_over()

    async def kill_controller(self) -> None:
        """In the middle of an operation, a little earlier or later each time; a Kafka broker is the safety net."""
        await self.cluster.controller.take_over()
        operation = self.operations[self.done["kill_controller"] % len(self.operations)]
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.settled(operation))
            await self.let_pass(self.random.uniform(0, 3))
            await self.cluster.controller.end(Signals.SIGKILL)
            await until(lambda: (self.cluster.read("/controller") or {}).get("brokerid", 100) < 100, "the safety net")
            await running
        await self.cluster.controller.start()
        await self.cluster.controller.take_over()

    async def let_pass(self, seconds: float) -> None:
        """A fault's own length, which nothing tells the end of."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:  # noqa: ASYNC110 - it is the time itself that is waited for
            await asyncio.sleep(left)

    async def settled(self, operation: Callable[[], Awaitable[None]]) -> None:
        """An operation that may fail, since its controller is killed under it; what it left must come right."""
        try:
            await operation()
        except AssertionError as error:
            log.info("operation.failed", reason=str(error)[-200:])

    async def kill_broker(self) -> None:
        broker = self.cluster.brokers[self.random.choice([1, 2, 3])]
        await broker.kill()
        await until(lambda: not self.cluster.is_registered(broker.broker_id), "its session has ended")
        await broker.start()

    async def stop_broker(self) -> None:
        broker = self.cluster.brokers[self.random.choice([1, 2, 3])]
        await broker.stop()
        await broker.start()

    async def freeze_broker(self) -> None:
        broker = self.cluster.brokers[self.random.choice([1, 2, 3])]
        broker.send(Signals.SIGSTOP)
        await self.let_pass(self.random.uniform(1, 8))
        broker.send(Signals.SIGCONT)
        await until(lambda: self.cluster.is_registered(broker.broker_id), "it is registered again")

    async def make_topic(self) -> None:
        name = f"other-{self.random.randrange(1 << 30)}"
        self.others.append(name)
        await self.cluster.create(name, "--partitions", "3", "--replication-factor", "3")

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

    async def reassign(self) -> None:
        rows = [
            {"topic": TOPIC, "partition": n, "replicas": self.random.sample([1, 2, 3], 3)} for n in range(PARTITIONS)
        ]
        path = self.cluster.directory / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}))
        name = "reassign.ReassignPartitionsCommand"
        await self.cluster.tool(name, "--execute", "--reassignment-json-file", str(path))


async def client_of(cluster: Cluster, name: str, *arguments: str) -> Child:
    """One of Kafka's own clients, with its output in a file of its name."""
    log4j = cluster.directory / "tools-log4j.properties"
    command = java_command(cluster.jars, log4j, "128m")
    return await launched(
        [*command, f"{TOOLS}.{name}", "--bootstrap-server", cluster.bootstrap, *arguments],
        cluster.directory / f"{name}.log",
    )


async def soak(minutes: float, seed: int, directory: Path, kind: str | None) -> list[str]:
    secured = None if kind is None else KINDS[kind](directory)
    async with a_cluster(directory, secured=secured) as cluster:
        await cluster.controller.take_over()
        await cluster.create(TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3", "--config",
                             "min.insync.replicas=2")  # fmt: skip
        await cluster.create(OTHER, "--partitions", "1", "--replication-factor", "3")
        to_brokers = {} if secured is None else secured.client
        patient = {"enable.idempotence": "true", "retries": "2147483647", "delivery.timeout.ms": "300000"}
        settings = written(directory / "producer.properties", {**to_brokers, **patient})
        reading = written(directory / "consumer.properties", to_brokers)
        consumer_group = (
            "--consumer.config",
            str(reading),
            "--group-id",
            "soak",
            "--reset-policy",
            "earliest",
            "--verbose",
        )
        producer = await client_of(
            cluster, "VerifiableProducer", "--topic", TOPIC, "--throughput", str(RATE), "--producer.config",
            str(settings), "--acks", "-1",
        )  # fmt: skip
        consumer = await client_of(cluster, "VerifiableConsumer", "--topic", TOPIC, *consumer_group)
        watcher, run = Watcher(cluster), Soak(cluster, seed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(watcher.run())
                await run.run(minutes)
                watcher.is_over = True
            producer.signal(Signals.SIGTERM)
            await producer.wait()
            await until(lambda: not unconsumed(cluster), "the consumer has had every acknowledged record")
        finally:
            for client in (producer, consumer):
                client.signal(Signals.SIGTERM)
                await client.wait()
        log.info("soak.over", **run.done)
        server = cluster.server
        return await judge(cluster, watcher, Order([server], "/kafka"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make kafka-soak", description="Real Kafka brokers under random faults.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--secured", choices=KINDS, help="listeners that ask who speaks")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    directory = Path(tempfile.mkdtemp(prefix="klamm-soak-"))
    log.info("soak.begun", minutes=arguments.minutes, seed=seed, directory=str(directory))
    wrong = asyncio.run(soak(arguments.minutes, seed, directory, arguments.secured))
    for one in wrong:
        log.error("soak.failed", reason=one, seed=seed)
    if not wrong:
        shutil.rmtree(directory)
        log.info("soak.passed", seed=seed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
