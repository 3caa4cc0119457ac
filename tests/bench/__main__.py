"""`python -m tests.bench [--kafka] [--topics 100] [--partitions 100] [--rounds 3] [-o table|json]`."""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import structlog
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.bench import contender
from tests.bench.acks import Row
from tests.bench.limits import limit_of
from tests.bench.rows import CREATED_PARTITIONS, ROWS, one_round, put_back
from tests.bench.world import BROKERS, a_world

LIMIT = "limit"
TABLE_WIDTH = 120
#: data and logs of the last run
FOLDER = Path(__file__).parents[2] / "var" / "bench"


async def bench(topics: int, partitions: int, rounds: int, console: Console, *, with_kafka: bool) -> dict[str, Any]:
    makers = [contender.ours, *([contender.kafka] if with_kafka else [])]
    seconds: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    told: defaultdict[str, dict[str, int]] = defaultdict(dict)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with Progress(console=console, transient=True) as progress:
        async with AsyncExitStack() as stack:
            world = await stack.enter_async_context(a_world(FOLDER))
            task = progress.add_task("writing partitions", total=topics * partitions)
            await world.populate(topics, partitions, lambda count: progress.advance(task, count))
            port = world.server.client_port
            contenders = [await stack.enter_async_context(contender.launched(*make(port, FOLDER))) for make in makers]
            task = progress.add_task("measuring", total=(1 + rounds) * len(contenders))
            for number in range(1 + rounds):
                for one in contenders:
                    rows = await one_round(world, one)
                    _note(rows, one.name, number, seconds, told)
                    if one is contenders[0]:
                        await world.remove_created(CREATED_PARTITIONS, with_topic=False)  # the limit makes them
                        bare = {row: Row(await limit_of(world, row, rows[row].acks), ()) for row in rows}
                        _note(bare, LIMIT, number, seconds, told)
                    await put_back(world)
                    progress.advance(task)
            said = await contenders[0].report()
    return {
        "topics": topics,
        "partitions_per_topic": partitions,
        "brokers": BROKERS,
        "seconds": seconds,
        "bytes_told": told,
        "longest_hold_s": round(said["longest_hold_s"], 3),
        "memory_bytes": said["memory_bytes"],
    }


def _note(
    rows: dict[str, Row], name: str, number: int, seconds: dict[str, Any], told: dict[str, dict[str, int]]
) -> None:
    """The round before the first only warms up."""
    for row, measured in rows.items():
        if measured.acks:
            told[row][name] = measured.bytes_told
        if number > 0:
            seconds[row][name].append(round(measured.seconds, 4))


def table_of(result: dict[str, Any]) -> Table:
    count = result["topics"] * result["partitions_per_topic"]
    table = Table(title=f"{count:,} partitions, {result['brokers']} brokers, replication factor 3; seconds")
    for column in ("row", "klamm", "limit", "x limit", "kafka", "kafka / klamm"):
        table.add_column(column, justify="left" if column == "row" else "right")
    for row in ROWS:
        ours, bare = result["seconds"][row]["klamm"], result["seconds"][row][LIMIT]
        kafkas = result["seconds"][row].get("kafka")
        cells = [_spread(ours), _spread(bare), _ratio(ours, bare)]
        table.add_row(row, *cells, *((_spread(kafkas), _ratio(kafkas, ours)) if kafkas else ("", "")))
    table.caption = (
        f"our event loop was held for at most {result['longest_hold_s']:.2f} s; our process has "
        f"{result['memory_bytes'] / count / 1024:.1f} KiB per partition, interpreter and buffers included"
    )
    return table


def _ratio(one: list[float], other: list[float]) -> str:
    return f"{statistics.median(one) / statistics.median(other):.1f}"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


@click.command()
@click.option("--kafka", "with_kafka", is_flag=True, help="Apache Kafka's controller beside ours, row by row.")
@click.option("--topics", default=100, show_default=True)
@click.option("--partitions", default=100, show_default=True, help="Of each topic.")
@click.option("--rounds", default=3, show_default=True, help="After one that only warms up.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def main(with_kafka: bool, topics: int, partitions: int, rounds: int, output: str) -> None:
    """Measure the controller on a real ZooKeeper with ten brokers that acknowledge at once."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    try:
        if with_kafka:
            asyncio.run(contender.fetch_kafka())
        result = asyncio.run(bench(topics, partitions, rounds, Console(stderr=True), with_kafka=with_kafka))
    except contender.KafkaMissingError as error:
        sys.exit(str(error))
    if output == "json":
        click.echo(json.dumps(result, indent=2))
    else:
        Console(width=TABLE_WIDTH).print(table_of(result))


if __name__ == "__main__":
    main()
