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
from typing import Any, Final

import structlog

from brokerstub.lab.child import Child, launched
from brokerstub.lab.kafka import java_command
from tests.integration.order import Order
from tests.kafka.cluster import TOOLS, Cluster, a_cluster, events_in, until

TOPIC: Final = "soak"
PARTITIONS: Final = 6
RATE: Final = 100
#: detection: the longest session (ours, 6 s) and what ZooKeeper adds to it; and a second
LEADERLESS_MAX_S: Final = 6.0 + 1.0 + 1.0
WATCH_S: Final = 0.1

log = structlog.get_logger()


class Watcher:
    """How long partitions were without a live leader, as ZooKeeper says it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._since: dict[int, float] = {}
        self.longest_s = 0.0
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            now = time.monotonic()
            live, states = await asyncio.to_thread(self._read)
            for number, state in states.items():
                if state["leader"] in live:
                    self.longest_s = max(self.longest_s, now - self._since.pop(number, now))
                else:
                    self._since.setdefault(number, now)
            await asyncio.sleep(WATCH_S)

    def _read(self) -> tuple[set[int], dict[int, dict[str, int]]]:
        live = {one for one in (1, 2, 3) if self._cluster.is_registered(one)}
        return live, dict(self._cluster.states(TOPIC))


class Soak:
    """One run."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.done: dict[str, int] = defaultdict(int)

    async def run(self, minutes: float) -> None:
        faults = [self.kill_broker, self.freeze_broker, self.stop_broker, self.make_topic, self.reassign]
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
        operation = self.random.choice([self.make_topic, self.reassign, self.kill_broker])
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
        await self.cluster.create(name, "--partitions", "3", "--replication-factor", "3")

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


async def records_in(cluster: Cluster, number: int, count: int) -> list[tuple[int, int]]:
    """Offset and value of every record of one partition, read from offset 0 on."""
    printed = await cluster.tool(
        *("consumer.ConsoleConsumer", "--topic", TOPIC, "--partition", str(number), "--offset", "0"),
        *("--property", "print.offset=true", "--timeout-ms", "8000"),
    )
    lines = [line.split("\t") for line in printed.splitlines() if line.startswith("Offset:")]
    found = [(int(offset.partition(":")[2]), int(value)) for offset, value in lines]
    assert len(found) >= count, f"{TOPIC}-{number} has {len(found)} records, and {count} were acknowledged"
    return found


def said_by(cluster: Cluster, client: str, name: str) -> list[dict[str, Any]]:
    """What a client printed of one kind."""
    printed = (cluster.directory / f"{client}.log").read_text(errors="replace")
    return [one for one in events_in(printed) if one["name"] == name]


def unconsumed(cluster: Cluster) -> set[tuple[int, int]]:
    """Acknowledged records that the consumer's group has not been given yet, by partition and offset."""
    sent = said_by(cluster, "VerifiableProducer", "producer_send_success")
    seen = said_by(cluster, "VerifiableConsumer", "record_data")
    return {(one["partition"], one["offset"]) for one in sent} - {(one["partition"], one["offset"]) for one in seen}


async def judge(cluster: Cluster, watcher: Watcher, order: Order) -> list[str]:
    """What is wrong; nothing if all is well."""
    wrong = []
    acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in said_by(cluster, "VerifiableProducer", "producer_send_success"):
        acknowledged[one["partition"]].append((one["offset"], int(one["value"])))
    failed = said_by(cluster, "VerifiableProducer", "producer_send_error")
    for number, acked in sorted(acknowledged.items()):
        found = await records_in(cluster, number, len(acked))
        values = [value for _, value in found]
        if len(set(values)) != len(values):
            wrong.append(f"{TOPIC}-{number}: {len(values) - len(set(values))} records are there twice")
        if missing := set(acked) - set(found):
            wrong.append(f"{TOPIC}-{number}: {len(missing)} acknowledged records are not where they were: {missing}")
        if values != sorted(values):
            wrong.append(f"{TOPIC}-{number}: records are out of order")
    claims = order.claims()
    epochs = [claim.controller_epoch for claim in claims]
    if epochs != list(range(epochs[0], epochs[0] + len(epochs))):
        wrong.append(f"controller epochs are {epochs}")
    if watcher.longest_s > LEADERLESS_MAX_S:
        wrong.append(f"a partition had no live leader for {watcher.longest_s:.1f} s, more than {LEADERLESS_MAX_S} s")
    count = sum(map(len, acknowledged.values()))
    if not count:
        wrong.append("nothing was acknowledged")
    log.info(
        "soak.judged",
        acknowledged=count,
        refused=len(failed),
        controllers=len(claims),
        ours=sum(claim.broker_id == cluster.controller.controller_id for claim in claims),
        longest_without_leader_s=round(watcher.longest_s, 2),
    )
    return wrong


async def soak(minutes: float, seed: int, directory: Path) -> list[str]:
    async with a_cluster(directory) as cluster:
        await cluster.controller.take_over()
        await cluster.create(TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3", "--config",
                             "min.insync.replicas=2")  # fmt: skip
        settings = directory / "producer.properties"
        settings.write_text("enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=300000\n")
        consumer_group = ("--group-id", "soak", "--reset-policy", "earliest", "--verbose")
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
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    directory = Path(tempfile.mkdtemp(prefix="klamm-soak-"))
    log.info("soak.begun", minutes=arguments.minutes, seed=seed, directory=str(directory))
    wrong = asyncio.run(soak(arguments.minutes, seed, directory))
    for one in wrong:
        log.error("soak.failed", reason=one, seed=seed)
    if not wrong:
        shutil.rmtree(directory)
        log.info("soak.passed", seed=seed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
