"""`python -m tests.bench.clients [--records 50000] [--size 1024]`: how fast stub brokers take records in from a client.

Three real broker processes on a real ZooKeeper, a topic with six partitions of three replicas, an idempotent producer
of librdkafka with `acks=all`: records per second with all it can send, and the latency of one record at a time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import sys
import time
from pathlib import Path

import click
from confluent_kafka import KafkaError, Message, Producer

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import cluster_for

FOLDER = Path(__file__).parents[2] / "var" / "bench-clients"
WARM_UP = 2_000
SINGLES = 200


class _Load:
    """One producer."""

    def __init__(self, servers: str, size: int) -> None:
        settings = {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**settings, "queue.buffering.max.messages": 100_000})
        self._value = os.urandom(size)
        self._refused: list[str] = []

    def run(self, count: int) -> float:
        """Seconds until all of them are acknowledged."""
        start = time.perf_counter()
        for _ in range(count):
            self._send()
        self._producer.flush()
        if self._refused:
            raise RuntimeError(f"{len(self._refused)} records were refused: {self._refused[0]}")
        return time.perf_counter() - start

    def _send(self) -> None:
        while True:
            try:
                self._producer.produce("bench", self._value, on_delivery=self._on_delivery)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.01)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(str(error))


async def measure(records: int, size: int) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    server = ZooKeeperServer(FOLDER / "zookeeper", free_port(), fsync=False)
    await server.start()
    cluster = cluster_for([server], FOLDER, keeps_records=True)
    try:
        await cluster.open()
        await cluster.start()
        await cluster.controller.create_topic("bench", partitions=6)
        await cluster.whole()
        servers = cluster.settings.bootstrap_servers or ""
        load = _Load(servers, size)
        await asyncio.to_thread(load.run, WARM_UP)
        seconds = await asyncio.to_thread(load.run, records)
        singles = [1_000 * await asyncio.to_thread(load.run, 1) for _ in range(SINGLES)]
    finally:
        await cluster.close()
        await server.stop()
    slow = statistics.quantiles(singles, n=100)[98]
    sys.stdout.write(
        f"{records / seconds:,.0f} records/s of {size} bytes, acks=all, 3 replicas; one at a time "
        f"{statistics.median(singles):.1f} ms, {slow:.1f} ms at the 99th percentile; load {os.getloadavg()[0]:.1f}\n"
    )


@click.command()
@click.option("--records", type=click.IntRange(1), default=50_000, show_default=True)
@click.option("--size", type=click.IntRange(1, 1_000_000), default=1_024, show_default=True, help="Bytes of each.")
def main(records: int, size: int) -> None:
    """Measure how fast stub brokers take records in."""
    asyncio.run(measure(records, size))


if __name__ == "__main__":
    main()
