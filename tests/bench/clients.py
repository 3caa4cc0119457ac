"""`python -m tests.bench.clients [--beside]`: how fast stub brokers take records in from a client.

Three real broker processes on a real ZooKeeper, and librdkafka's idempotent producer with `acks=all`: seconds until the
cluster serves, records per second with all it can send to six partitions of three replicas, the latency of one record
at a time, the CPU time of brokers and of the client for a record, and how long after the death of a leader (SIGKILL)
the first record is acknowledged. `--beside`: the same of three real Kafka brokers with Kafka's controller, and of the
mock cluster in librdkafka, which has no replicas and elects no leaders.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from brokerstub.lab.kafka import HOST, VERSION, KafkaBroker, jars
from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import SESSION_TIMEOUT_MS, cluster_for
from tests.real_brokers.cluster import JARS

FOLDER: Final = Path(__file__).parents[2] / "var" / "bench-clients"
WARM_UP, SINGLES = 2_000, 200
#: brokers that are not there yet, and one that is killed, are no news
QUIET: Final = {"log_level": 2}
#: a client waits so long for topics
PATIENCE_S: Final = 120.0
TICKS: Final = os.sysconf("SC_CLK_TCK")
ROWS: Final = (
    "the cluster has acknowledged its first record after",
    "records/s",
    "one record at a time, median",
    "99th percentile",
    "CPU time of all brokers for a record",
    "CPU time of the client for a record",
    "first record acknowledged after the leader's death",
)


class Served(NamedTuple):
    """A cluster that serves. `kill` ends one broker by SIGKILL; None: it has no brokers that could die."""

    servers: str
    pids: Collection[int]
    kill: Callable[[int], Awaitable[None]] | None
    #: further configuration of the client
    client: dict[str, str | int]


class Measured(NamedTuple):
    """One column."""

    started_s: float
    per_second: float
    median_ms: float
    slow_ms: float
    brokers_us: float
    client_us: float
    failover_s: float | None


class _Load:
    """One producer."""

    def __init__(self, served: Served, size: int) -> None:
        settings = {
            "bootstrap.servers": served.servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            **QUIET,
        }
        self.producer = Producer({**settings, "queue.buffering.max.messages": 100_000, **served.client})
        self._value = os.urandom(size)
        self._refused: list[str] = []

    def run(self, count: int, topic: str = "bench") -> float:
        """Seconds until all of them are acknowledged."""
        start = time.perf_counter()
        for _ in range(count):
            self._send(topic)
        self.producer.flush()
        if self._refused:
            raise RuntimeError(f"{len(self._refused)} records were refused: {self._refused[0]}")
        return time.perf_counter() - start

    def _send(self, topic: str) -> None:
        while True:
            try:
                self.producer.produce(topic, self._value, on_delivery=self._on_delivery)
                self.producer.poll(0)
                return
            except BufferError:
                self.producer.poll(0.01)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(str(error))


@asynccontextmanager
async def stubs(server: ZooKeeperServer) -> AsyncIterator[Served]:
    cluster = cluster_for([server], FOLDER / "stubs", keeps_records=True)
    try:
        await cluster.open()
        for broker in cluster.brokers.values():
            await broker.start()

        async def kill(broker_id: int) -> None:
            await cluster.brokers[broker_id].kill()

        pids = [pid for broker in cluster.brokers.values() for pid in broker.pids]
        yield Served(cluster.settings.bootstrap_servers or "", pids, kill, {})
    finally:
        await cluster.close()


@asynccontextmanager
async def kafkas(server: ZooKeeperServer) -> AsyncIterator[Served]:
    installed = await jars(JARS)
    brokers = {
        number: KafkaBroker(
            number,
            free_port(),
            f"{server.address}/kafka",
            FOLDER / f"kafka-{number}",
            installed,
            properties={"min.insync.replicas": "1"},
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )
        for number in (1, 2, 3)
    }
    try:
        for broker in brokers.values():
            await broker.launch()
        for broker in brokers.values():
            await broker.listening()

        async def kill(broker_id: int) -> None:
            await brokers[broker_id].kill()

        pids = [broker.pid for broker in brokers.values() if broker.pid is not None]
        yield Served(",".join(f"{HOST}:{broker.port}" for broker in brokers.values()), pids, kill, {})
    finally:
        for broker in brokers.values():
            await broker.kill()


@asynccontextmanager
async def mock(server: ZooKeeperServer) -> AsyncIterator[Served]:
    """In the client's own process, and gone with it; with its own addresses in place of ours."""
    yield Served(f"{HOST}:1", (), None, {"test.mock.num.brokers": 3})


async def measured(served: Served, began_at: float, records: int, size: int) -> Measured:
    load = _Load(served, size)
    if served.kill is not None:
        await asyncio.to_thread(make_topics, served.servers)
    await asyncio.to_thread(load.run, 1)
    started_s = time.perf_counter() - began_at
    await asyncio.to_thread(load.run, WARM_UP)
    brokers, client = cpu_of(served.pids), time.process_time()
    seconds = await asyncio.to_thread(load.run, records)
    brokers, client = cpu_of(served.pids) - brokers, time.process_time() - client
    singles = [1_000 * await asyncio.to_thread(load.run, 1) for _ in range(SINGLES)]
    failover_s = None
    if served.kill is not None:
        await asyncio.to_thread(load.run, 1, "one")
        leader = await asyncio.to_thread(leader_of_one, served.servers)
        await served.kill(leader)
        failover_s = await asyncio.to_thread(load.run, 1, "one")
    return Measured(
        started_s,
        records / seconds,
        statistics.median(singles),
        statistics.quantiles(singles, n=100)[98],
        1e6 * brokers / records,
        1e6 * client / records,
        failover_s,
    )


def make_topics(servers: str) -> None:
    """Create the topics as soon as a controller is there."""
    give_up_at = time.monotonic() + PATIENCE_S
    wanted = {name: NewTopic(name, count, 3) for name, count in (("bench", 6), ("one", 1))}
    while wanted:
        admin = AdminClient({"bootstrap.servers": servers, **QUIET})
        try:
            if len(admin.list_topics(timeout=5).brokers) < 3:
                raise KafkaException("not all of them are there")
            for name, future in admin.create_topics([*wanted.values()]).items():
                future.result(PATIENCE_S)
                del wanted[name]
        except KafkaException:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)


def leader_of_one(servers: str) -> int:
    told = AdminClient({"bootstrap.servers": servers, **QUIET}).list_topics("one", timeout=PATIENCE_S)
    return int(told.topics["one"].partitions[0].leader)


def cpu_of(pids: Collection[int]) -> float:
    """Seconds of CPU time that these processes have taken."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS


async def measure(records: int, size: int, *, is_beside: bool) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    server = ZooKeeperServer(FOLDER / "zookeeper", free_port(), fsync=False)
    await server.start()
    kinds: dict[str, Callable[[ZooKeeperServer], AbstractAsyncContextManager[Served]]] = {"Klamm's stub brokers": stubs}
    if is_beside:
        kinds |= {f"Apache Kafka {VERSION}": kafkas, "librdkafka's mock": mock}
    found = {}
    try:
        for name, started in kinds.items():
            began_at = time.perf_counter()
            async with started(server) as served:
                found[name] = await measured(served, began_at, records, size)
    finally:
        await server.stop()
    sys.stdout.write(table(found))
    sys.stdout.write(f"\n{records:,} records of {size} bytes; load {os.getloadavg()[0]:.1f}\n")


def table(found: dict[str, Measured]) -> str:
    """In Markdown."""
    columns = [
        (
            f"{one.started_s:.1f} s",
            f"{one.per_second:,.0f}",
            f"{one.median_ms:.1f} ms",
            f"{one.slow_ms:.1f} ms",
            f"{one.brokers_us:.0f} µs" if one.failover_s is not None else "in the client's",
            f"{one.client_us:.0f} µs",
            "never: nobody is elected" if one.failover_s is None else f"{one.failover_s:.1f} s",
        )
        for one in found.values()
    ]
    lines = [("", *found), ("---",) * (len(found) + 1), *zip(ROWS, *columns, strict=True)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@click.command()
@click.option("--records", type=click.IntRange(1), default=50_000, show_default=True)
@click.option("--size", type=click.IntRange(1, 1_000_000), default=1_024, show_default=True, help="Bytes of each.")
@click.option("--beside", is_flag=True, help="Also real Kafka brokers (Maven) and librdkafka's mock cluster.")
def main(records: int, size: int, beside: bool) -> None:
    """Measure how fast stub brokers take records in."""
    asyncio.run(measure(records, size, is_beside=beside))


if __name__ == "__main__":
    main()
