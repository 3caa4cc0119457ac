"""`python -m tests.bench.readers [--partitions 8000] [--session-ms 4000] [--seconds 15]`: readers without manners that
ask for costly answers as fast as they can, and whether the controller keeps its seat.

Three real broker processes on a real ZooKeeper, with every token set; the readers have the one to read and are in a
process of their own. Each attack goes at the broker that has the seat. Counted are its answers by status, the claims of
the seat meanwhile, and how long `/livez` took at the most, asked ten times a second on a connection of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import click
from rich.console import Console
from rich.table import Table

from brokerstub.lab.zookeeper import ZooKeeperServer, free_port
from tests.integration.cluster import Broker, Cluster, cluster_for, until

ADMIN, READER, RPC = ("administrator-of-the-bench", "reader-of-the-bench", "secret-of-the-brokers-of-the-bench")
SECRETS = {"KLAMM_API_TOKEN": ADMIN, "KLAMM_READ_TOKEN": READER, "KLAMM_RPC_SECRET": RPC}
BROKERS = 3
PARTITIONS_PER_TOPIC = 100
#: data and logs of the last run
FOLDER = Path(__file__).parents[2] / "var" / "bench-readers"
PROBE_EVERY_S = 0.1
PROBE_TIMEOUT_S = 30
#: after an attack it is looked on for so long: a controller that was deposed has a successor by then
CALM_S = 5
#: an answer that does not come is given up, as a scraper would
PATIENCE_S = 10


class Attack(NamedTuple):
    """So many readers, which ask for these paths in turn."""

    readers: int
    paths: tuple[str, ...]


METRICS, MATRIX, LIST = "/metrics", "/v1/matrix", "/v1/partitions?limit=10000"
STREAM = "/v1/events?last=1000&pulse=true"
ATTACKS = (
    Attack(32, (METRICS,)),
    Attack(100, (METRICS,)),
    Attack(100, (MATRIX,)),
    Attack(100, (LIST,)),
    Attack(300, (METRICS, MATRIX, LIST, "/v1/cluster", "/v1/topics?limit=10000")),
    Attack(200, (STREAM,)),
)


class Result(NamedTuple):
    """The result of one attack."""

    answers: Counter[str]
    claims: int
    livez_longest_s: float
    livez_failed: int


async def read(
    url: str, paths: Sequence[str], readers: int, seconds: float, headers: Mapping[str, str]
) -> Counter[str]:
    """The attack itself: by status, how many answers were read to their end."""
    answers: Counter[str] = Counter()
    over_at = time.monotonic() + seconds

    async def ask(client: aiohttp.ClientSession, turn: int) -> None:
        while (left_s := over_at - time.monotonic()) > 0:
            path, turn = paths[turn % len(paths)], turn + 1
            try:
                async with asyncio.timeout(min(left_s, PATIENCE_S)), client.get(url + path) as response:
                    answers[f"{response.status}"] += 1
                    async for piece in response.content.iter_any():
                        answers["bytes"] += len(piece)
            except TimeoutError:
                answers["no end"] += 1
            except (aiohttp.ClientError, OSError) as error:
                answers[type(error).__name__] += 1

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as client, asyncio.TaskGroup() as group:
        for number in range(readers):
            group.create_task(ask(client, number))
    return answers


@asynccontextmanager
async def a_cluster(folder: Path, partitions: int, session_timeout_ms: int) -> AsyncIterator[Cluster]:
    """Started, with so many partitions of three replicas each."""
    server = ZooKeeperServer(folder / "zookeeper", free_port(), fsync=False)
    await server.start()
    cluster = cluster_for([server], folder / "lab", brokers=BROKERS, session_timeout_ms=session_timeout_ms)
    try:
        await cluster.open()
        for broker in cluster.brokers.values():
            await broker.start()
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {ADMIN}"}) as client:
            await until(cluster.order.claims, "a controller")
            url = cluster.controller.url
            for number in range(partitions // PARTITIONS_PER_TOPIC):
                name = f"topic-{number:04}"
                await until(lambda name=name: _is_made(client, url, name), "a topic is made")
            await until(lambda: _is_green(client, cluster), "the cluster is green")
        yield cluster
    finally:
        await cluster.close()
        await server.stop()


async def _is_made(client: aiohttp.ClientSession, url: str, name: str) -> bool:
    wanted = {"name": name, "partitions": PARTITIONS_PER_TOPIC, "replication_factor": BROKERS}
    try:
        async with client.post(f"{url}/v1/topics", json=wanted) as response:
            return response.status in (200, 201)
    except aiohttp.ClientError:
        return False


async def _is_green(client: aiohttp.ClientSession, cluster: Cluster) -> bool:
    for broker in cluster.brokers.values():
        async with client.get(f"{broker.url}/healthz/cluster") as response:
            if (await response.json())["status"] != "green":
                return False
    return True


async def attacked(cluster: Cluster, attack: Attack, seconds: float) -> Result:
    """One attack on the active controller."""
    victim, before = cluster.controller, len(cluster.order.claims())
    said = [victim.url, attack.paths, attack.readers, seconds, {"Authorization": f"Bearer {READER}"}]
    command = (sys.executable, "-m", "tests.bench.readers", "--attack", json.dumps(said))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    probing = asyncio.create_task(_probe(victim, seconds + CALM_S))
    out, _ = await process.communicate()
    longest_s, failed = await probing
    claims = len(cluster.order.claims()) - before
    return Result(Counter(json.loads(out)), claims, longest_s, failed)


async def _probe(victim: Broker, seconds: float) -> tuple[float, int]:
    """How long `/livez` took at the most, and how often it did not answer at all."""
    longest_s, failed, over_at = 0.0, 0, time.monotonic() + seconds
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as client:
        while time.monotonic() < over_at:
            started = time.monotonic()
            try:
                async with client.get(f"{victim.url}/livez") as response:
                    failed += response.status != 200
            except (aiohttp.ClientError, OSError, TimeoutError):
                failed += 1
            longest_s = max(longest_s, time.monotonic() - started)
            await asyncio.sleep(PROBE_EVERY_S)
    return longest_s, failed


async def measured(partitions: int, session_timeout_ms: int, seconds: float) -> list[tuple[Attack, Result]]:
    os.environ.update(SECRETS)
    results = []
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    async with a_cluster(FOLDER, partitions, session_timeout_ms) as cluster:
        for attack in ATTACKS:
            results.append((attack, await attacked(cluster, attack, seconds)))
    return results


def table_of(results: Sequence[tuple[Attack, Result]]) -> Table:
    table = Table("readers", "of", "answers", "bytes", "claims of the seat", "/livez at most, s", "/livez failed")
    for attack, result in results:
        answers = dict(result.answers)
        count = answers.pop("bytes", 0)
        said = ", ".join(f"{what}: {number:,}" for what, number in sorted(answers.items()))
        table.add_row(
            str(attack.readers), "\n".join(attack.paths), said, f"{count:,}", str(result.claims),
            f"{result.livez_longest_s:.2f}", str(result.livez_failed),
        )  # fmt: skip
    return table


@click.command()
@click.option("--partitions", default=8_000, show_default=True)
@click.option("--session-ms", default=4_000, show_default=True)
@click.option("--seconds", default=15.0, show_default=True)
@click.option("--attack", hidden=True)
def main(partitions: int, session_ms: int, seconds: float, attack: str | None) -> None:
    """Measure readers without manners against the seat."""
    if attack is not None:
        sys.stdout.write(json.dumps(asyncio.run(read(*json.loads(attack)))))
        return
    results = asyncio.run(measured(partitions, session_ms, seconds))
    Console(width=190).print(table_of(results))


if __name__ == "__main__":
    main()
