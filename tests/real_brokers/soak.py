"""`make kafka-soak MINUTES= SEED= PROTOCOL=`: nothing lost, while brokers and controllers die and the seat goes round.

An idempotent producer with acks=all and a consumer run through random faults; in each minute the seat is handed back
and taken over, and our controller is killed in the middle of an operation. Then the judgement: every acknowledged
record is there exactly once and in order, no partition was without a live leader for long, one controller per epoch.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from signal import Signals
from typing import Any, Final

import structlog

from brokerstub.lab.child_process import Child, launched
from brokerstub.lab.kafka import KafkaError, java_command
from controller.base.clock import wall_ms
from controller.wire.client import HttpClient
from tests.integration.order import Order
from tests.real_brokers.cluster import (
    TOOLS,
    Cluster,
    a_cluster,
    written,
)
from tests.real_brokers.judge import (
    RATE,
    TOPIC,
    judge,
    unconsumed,
)
from tests.real_brokers.past import Dead
from tests.real_brokers.secured import KINDS
from tests.real_brokers.steps import OTHER, PARTITIONS, Steps
from tests.waiting import until

#: Kafka's controller that loses the seat in the middle of a deletion keeps its unsent requests, and if it is elected
#: again, each of its decisions about replicas fails with this, until the broker is started anew
KAFKAS_BUG: Final = "Controller to broker state change requests batch is not empty while creating a new one"
STUCK_AFTER_S: Final = 20.0
#: before it is waited for, so long may a step have been stuck
STEP_MAX_MS: Final = 90_000
AFTER_THE_FIRST_LINE_S: Final = (0, 0, 0.005, 0.02, 0.1, 0.4)
AFTER_THE_TAKEOVER_S: Final = (0, 0.02, 0.05, 0.1, 0.2, 0.4)
#: since this protocol level leaders ask the controller for their ISRs
ALTER_PARTITION: Final = (2, 7)
SILENCE_MAX_MS: Final = 120_000
#: in a stream of events: not a term's lines about its own beginning
DECIDED: Final = re.compile(rb"event: (partition|replica|broker|topic|reassignment)\n")
log = structlog.get_logger()


class Soak(Steps):
    """One run."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(cluster, seed)
        self.done: dict[str, int] = defaultdict(int)
        #: each of them in turn loses its controller in the middle
        self.operations = [self.make_topic, self.grow, self.reassign, self.kill_broker, self.stop_broker, self.elect,
                           self.delete_topic]  # fmt: skip
        #: our controller was killed when it had begun to carry this out, and the caller was still waiting
        self.hit: dict[str, int] = defaultdict(int)
        self.stuck: list[Dead] = []

    async def run(self, minutes: float) -> None:
        faults = [self.freeze_broker, *self.operations]
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            for step in (self.hand_back, self.take_over, self.kill_controller, self.kill_taking_over):
                await self.one_of([step])
                await self.one_of(faults)
        for broker in self.cluster.brokers.values():
            if broker.pid is None:
                await broker.start()
        await until(self.is_whole, "all replicas are in sync at the end")

    def omissions(self, minutes: float) -> list[str]:
        """Returns the cases that this run has not shown, though it was long enough for them."""
        found = []
        missed = [one.__name__ for one in self.operations if not self.hit[one.__name__]]
        # each second kill at least has to hit; twice round, each operation
        if len(missed) > max(0, len(self.operations) - self.done["kill_controller"] // 2):
            found.append(f"never killed in the middle of: {', '.join(missed)}")
        for step in ("hand_back", "take_over", "kill_controller", "kill_taking_over"):
            if self.done[step] < int(minutes):
                found.append(f"{step} only {self.done[step]} times in {minutes:g} minutes: too slow a machine for this")
        return found

    async def one_of(self, steps: list[Callable[[], Awaitable[None]]]) -> None:
        step = self.random.choice(steps)
        log.info("step.begun", step=step.__name__)
        await step()
        self.done[step.__name__] += 1
        await self.whole()

    async def whole(self) -> None:
        """All replicas of all topics are in sync again, or the next death would leave a partition without a possible
        leader; if a bug of Kafka's is in the way, ours mends it."""
        begun_ms = wall_ms() - STEP_MAX_MS
        try:
            async with asyncio.timeout(STUCK_AFTER_S):
                await until(self.is_whole, "all replicas are in sync again")
                return
        except TimeoutError:
            pass
        holder = self.cluster.brokers.get((self.cluster.read("/controller") or {}).get("brokerid", -1))
        if holder is not None and KAFKAS_BUG in holder.log_text():
            log.warning("kafka.stuck", broker_id=holder.broker_id, reason=KAFKAS_BUG)
            self.done["kafkas_bug"] += 1
            self.stuck.append(Dead(holder.broker_id, begun_ms))
            await self.cluster.controller.take_over()
            self.stuck[-1].to_ms = wall_ms()
        await until(self.is_whole, "all replicas are in sync again")

    def is_whole(self) -> bool:
        """Of every partition, each replica that it was given is in sync; no topic is half made or half gone."""
        for topic in self.cluster.kazoo.get_children("/kafka/brokers/topics"):
            assigned = (self.cluster.read(f"/brokers/topics/{topic}") or {}).get("partitions", {})
            in_sync = {number: set(state["isr"]) for number, state in self.cluster.states(topic).items()}
            if in_sync != {int(number): set(replica_ids) for number, replica_ids in assigned.items()}:
                return False
        return not self.cluster.kazoo.get_children("/kafka/admin/delete_topics")

    async def hand_back(self) -> None:
        status, _ = await self.cluster.controller.ask("POST", "/v1/handback", {})
        assert status in (200, 409), status
        await until(lambda: (self.cluster.read("/controller") or {}).get("brokerid", 100) < 100, "a broker took over")

    async def take_over(self) -> None:
        await self.cluster.controller.take_over()

    async def kill_controller(self) -> None:
        """In the middle of an operation: when it has written something, or a little later; a Kafka broker is the safety
        net."""
        await self.cluster.controller.take_over()
        operation = self.operations[self.done["kill_controller"] % len(self.operations)]
        await self.prepare(operation)
        async with asyncio.TaskGroup() as group:
            deciding = group.create_task(self.first_line())
            running = group.create_task(self.settled(operation))
            await asyncio.wait([deciding, running], return_when=asyncio.FIRST_COMPLETED)
            has_begun, pause_s = deciding.done(), self.random.choice(AFTER_THE_FIRST_LINE_S)
            if self.hit[operation.__name__]:  # the first time it is at once
                await self.let_pass(pause_s)
            self.hit[operation.__name__] += has_begun and not running.done()
            deciding.cancel()
            await self.lose_controller(running)

    async def kill_taking_over(self) -> None:
        """Right after it was asked to, wherever it has got to: it looks, it claims, it loads, it tells."""
        await self.hand_back()
        asking = asyncio.create_task(self.cluster.controller.ask("POST", "/v1/takeover", {}))
        await self.let_pass(self.random.choice(AFTER_THE_TAKEOVER_S))
        await self.lose_controller(asking)

    async def lose_controller(self, asked: asyncio.Task[Any]) -> None:
        """It dies now, with this under way, and is back in its seat in the end."""
        self.dead.append(dead := Dead(self.cluster.controller.controller_id, wall_ms()))
        await self.cluster.controller.end(Signals.SIGKILL)
        await until(lambda: (self.cluster.read("/controller") or {}).get("brokerid", 100) < 100, "the safety net")
        await asked
        dead.to_ms = wall_ms()
        await self.cluster.controller.start()
        await self.cluster.controller.take_over()

    async def first_line(self) -> None:
        """Until our controller has written something down, by its own stream; before, all was quiet."""
        client = HttpClient()
        try:
            async with aclosing(
                client.stream(f"{self.cluster.controller.url}/v1/events", {}, SILENCE_MAX_MS)
            ) as pieces:
                async for piece in pieces:
                    if DECIDED.search(piece):
                        return
        finally:
            await client.close()

    async def settled(self, operation: Callable[[], Awaitable[None]]) -> None:
        """An operation that may fail, since its controller is killed under it; its leftovers must come right."""
        try:
            await operation()
        except (AssertionError, KafkaError) as error:
            log.info("operation.failed", reason=str(error)[-200:])


async def client_of(cluster: Cluster, name: str, *arguments: str) -> Child:
    """One of Kafka's own clients, with its output in a file of its name."""
    log4j = cluster.directory / "tools-log4j.properties"
    command = java_command(cluster.jars, log4j, "128m")
    return await launched(
        [*command, f"{TOOLS}.{name}", "--bootstrap-server", cluster.bootstrap, *arguments],
        cluster.directory / f"{name}.log",
    )


async def soak(minutes: float, seed: int, directory: Path, kind: str | None, protocol: str | None) -> list[str]:
    secured = None if kind is None else KINDS[kind](directory)
    async with a_cluster(directory, secured=secured, protocol=protocol) as cluster:
        await cluster.controller.take_over()
        await cluster.create(TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3", "--config",
                             "min.insync.replicas=2")  # fmt: skip
        await cluster.create(OTHER, "--partitions", "1", "--replication-factor", "2")
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
        begun_ms = wall_ms()
        producer = await client_of(
            cluster, "VerifiableProducer", "--topic", TOPIC, "--throughput", str(RATE), "--producer.config",
            str(settings), "--acks", "-1",
        )  # fmt: skip
        consumer = await client_of(cluster, "VerifiableConsumer", "--topic", TOPIC, *consumer_group)
        run = Soak(cluster, seed)
        try:
            # made by a broker, which may place it on us: until ours has placed it anew, there is no handback
            await until(
                lambda: cluster.read("/brokers/topics/__consumer_offsets") and run.is_whole(), "the group is kept"
            )
            await run.run(minutes)
            ended_ms = wall_ms()
            producer.signal(Signals.SIGTERM)
            await producer.wait()
            await until(lambda: not unconsumed(cluster), "the consumer has had every acknowledged record")
        finally:
            for client in (producer, consumer):
                client.signal(Signals.SIGTERM)
                await client.wait()
        log.info("soak.over", **run.done, killed_in=dict(run.hit))
        order, times_ms = Order([cluster.server], "/kafka"), (begun_ms, ended_ms)
        leaders_write = protocol is not None and tuple(map(int, protocol.split("."))) < ALTER_PARTITION
        return [
            *run.omissions(minutes),
            *await judge(cluster, order, run.dead, run.stuck, times_ms, leaders_write=leaders_write),
        ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make kafka-soak", description="Real Kafka brokers under random faults.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--secured", choices=KINDS, help="listeners that ask who speaks")
    parser.add_argument("--protocol", help="of brokers and controllers; below 2.7 leaders write their ISRs themselves")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    directory = Path(tempfile.mkdtemp(prefix="klamm-soak-"))
    log.info("soak.begun", minutes=arguments.minutes, seed=seed, protocol=arguments.protocol, directory=str(directory))
    wrong = asyncio.run(soak(arguments.minutes, seed, directory, arguments.secured, arguments.protocol))
    for one in wrong:
        log.error("soak.failed", reason=one, seed=seed)
    if not wrong:
        shutil.rmtree(directory)
        log.info("soak.passed", seed=seed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
