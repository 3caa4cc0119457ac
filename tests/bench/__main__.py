"""`python -m tests.bench [--topics 100] [--partitions 100] [-o table|json]`: the rows, on one cluster, once each."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import structlog
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from controller.core.cluster import Cluster
from controller.core.events import CreateTopicAsked
from controller.daemon import Daemon
from tests.bench.world import BROKERS, World, a_world

DEADLINE_S = 120
CREATED_PARTITIONS = 10_000


class Pulse:
    """The longest time that the event loop was held: sessions must outlive it."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            self.longest_s = max(self.longest_s, time.monotonic() - before - 0.005)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - the condition is belief, which sets no event
            await asyncio.sleep(0.001)


async def acknowledged(world: World, started: float) -> float:
    """Seconds until every live broker has acknowledged everything."""
    assert world.outboxes is not None
    async with asyncio.timeout(DEADLINE_S):
        await world.outboxes.settled()
    return time.monotonic() - started


async def measure(world: World) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    pulse = Pulse()
    beating = asyncio.create_task(pulse.run())
    try:
        async with world.controller() as daemon:
            await until(lambda: daemon.is_active)
            await acknowledged(world, 0)
            await _failover(world, daemon, rows)
            await _death_and_return(world, daemon, rows)
            await _creation(world, daemon, rows)
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
    rows["event loop"] = {"longest hold": pulse.longest_s}
    return rows


async def _failover(world: World, daemon: Daemon, rows: dict[str, dict[str, float]]) -> None:
    epoch = daemon.controller_epoch
    await world.zk.delete("/controller", -1)
    await until(lambda: daemon.is_active and daemon.controller_epoch != epoch)
    await until(lambda: "acknowledged" in daemon.history()[-1].phases)
    rows["failover"] = {phase: ms / 1000 for phase, ms in daemon.history()[-1].phases.items()}


async def _death_and_return(world: World, daemon: Daemon, rows: dict[str, dict[str, float]]) -> None:
    victim = BROKERS - 1
    await world.unregister(victim)
    started = time.monotonic()
    await until(lambda: victim not in belief(daemon).live_ids)
    decided = time.monotonic() - started
    rows["broker death"] = {"committed": decided, "acknowledged": await acknowledged(world, started)}
    await world.register(victim)
    started = time.monotonic()
    await until(lambda: victim in belief(daemon).live_ids)
    rows["broker back"] = {"acknowledged": await acknowledged(world, started)}


async def _creation(world: World, daemon: Daemon, rows: dict[str, dict[str, float]]) -> None:
    started = time.monotonic()
    reply = await daemon.ask(CreateTopicAsked("new", partitions=CREATED_PARTITIONS, replication_factor=3))
    assert reply.code == 0, reply
    answered = time.monotonic() - started
    rows["topic of 10,000"] = {"answered": answered, "acknowledged": await acknowledged(world, started)}


def belief(daemon: Daemon) -> Cluster:
    assert daemon.cluster is not None
    return daemon.cluster


async def bench(topics: int, partitions: int, console: Console) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        async with a_world(Path(folder)) as world:
            with Progress(console=console, transient=True) as progress:
                task = progress.add_task("writing partitions", total=topics * partitions)
                await world.populate(topics, partitions, lambda count: progress.advance(task, count))
            return await measure(world)


@click.command()
@click.option("--topics", default=100, show_default=True)
@click.option("--partitions", default=100, show_default=True, help="Of each topic.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def main(topics: int, partitions: int, output: str) -> None:
    """Measure the controller on a real ZooKeeper with ten brokers that acknowledge at once."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    console = Console(stderr=True)
    rows = asyncio.run(bench(topics, partitions, console))
    if output == "json":
        click.echo(json.dumps({"topics": topics, "partitions_per_topic": partitions, "seconds": rows}, indent=2))
        return
    table = Table(title=f"{topics * partitions:,} partitions, {BROKERS} brokers, replication factor 3; seconds")
    for column in ("what", "until", "seconds"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for what, times in rows.items():
        for phase, seconds in times.items():
            table.add_row(what, phase, f"{seconds:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
