"""`python -m tests.bench [--kafka] [--topics 100] [--partitions 100] [--rounds 3] [--row NAME] [-o FORMAT]`."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import click
import structlog
from rich.console import Console
from rich.progress import Progress

from brokerstub.lab.kafka import KafkaError, jars
from controller.term.term import first_cause
from tests.bench import contender
from tests.bench.acks import OverdueError, Row
from tests.bench.contender import Contender
from tests.bench.limits import limit_of
from tests.bench.rows import BACK, CREATED_PARTITIONS, CREATION, DEATH, ROWS, Measured, one_round, put_back
from tests.bench.table import (
    BROKER_LOAD,
    BROKER_MEMORY,
    LIMIT,
    earlier_table,
    markdown_of,
    ratio_of,
    table_of,
    target_of,
    to_earlier,
)
from tests.bench.world import BROKERS, SESSION_TIMEOUT_MS, World, a_world
from tests.compare import git

TABLE_WIDTH = 190
#: data and logs of the last run
FOLDER = Path(__file__).parents[2] / "var" / "bench"
#: a ZooKeeper server takes about so much for each partition: its znode and its state's
HEAP_BYTES_PER_PARTITION = 2_500
HEAP_MIN_MB = 2_048


class Notes:
    """Values by row and by contender."""

    def __init__(self) -> None:
        self.values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.told: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self.cpu_s: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def take(self, rows: Measured, name: str) -> None:
        for row, measured in rows.items():
            if measured.acks:
                self.told[row][name] = measured.bytes_told
            self.values[row][name].append(round(measured.seconds, 4))
            if measured.cpu_s is not None:
                self.cpu_s[row][name].append(round(measured.cpu_s, 4))


async def bench(
    topics: int,
    partitions: int,
    rounds: int,
    wanted: Collection[str],
    *,
    with_kafka: bool,
    is_warm: bool,
    earlier: Path | None = None,
) -> dict[str, Any]:
    started = time.monotonic()
    makers: list[contender.Maker] = [contender.ours]
    if with_kafka:
        makers += [contender.ours_as_kafka, partial(contender.kafka, jars=await jars(FOLDER.parent / "kafka"))]
    if earlier is not None:
        makers.append(partial(contender.earlier, root=earlier))
    notes = Notes()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    heap_mb = max(HEAP_MIN_MB, topics * partitions * HEAP_BYTES_PER_PARTITION >> 20)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        async with AsyncExitStack() as stack:
            world = await stack.enter_async_context(a_world(FOLDER, heap_mb=heap_mb))
            task = progress.add_task("writing partitions", total=topics * partitions)
            await world.populate(topics, partitions, lambda count: progress.advance(task, count))
            port = world.server.client_port
            contenders = [await stack.enter_async_context(contender.launched(make(port, FOLDER))) for make in makers]
            turns = [  # the second contender finds caches warm, so they take turns at being first
                (number, one)
                for number in range(0 if is_warm else 1, 1 + rounds)
                for one in (contenders if number % 2 else reversed(contenders))
            ]
            task = progress.add_task("measuring", total=len(turns))
            for number, one in turns:
                measured = await _turn(
                    world, one, wanted, is_last=(number, one) == turns[-1], has_limits=earlier is None
                )
                for name, rows in measured.items():
                    if number > 0:  # the round before the first only warms up
                        notes.take(rows, name)
                progress.advance(task)
            said = await contenders[0].report()
            reports = [
                await one.report() for one in contenders if one.name in (contender.OURS, contender.OURS_AS_KAFKA)
            ]
    for row, value in (await _broker_side(topics, partitions)).items():
        notes.values[row][contender.OURS].append(round(value, 4))
    targets = {row: target_of(row, notes.values, topics * partitions) for row in list(notes.values)}
    return {
        "topics": topics,
        "partitions_per_topic": partitions,
        "brokers": BROKERS,
        "rounds": rounds,
        "day": date.today().isoformat(),
        "took_s": round(time.monotonic() - started),
        "values": notes.values,
        "kafka_times_ours": {
            row: {name: ratio_of(by, name) for name in (contender.OURS, contender.OURS_AS_KAFKA)}
            for row, by in notes.values.items()
            if contender.KAFKA in by
        },
        "targets": {row: {"value": one[0], "why": one[1]} for row, one in targets.items() if one is not None},
        "cpu_s": notes.cpu_s,
        "to_earlier": {} if earlier is None else to_earlier(notes.cpu_s, notes.values),
        "bytes_told": notes.told,
        **{name: round(max(one[name] for one in reports), 3) for name in ("longest_hold_s", "longest_hold_cpu_s")},
        "session_timeout_s": SESSION_TIMEOUT_MS / 1_000,
        "memory_bytes": said["memory_bytes"],
    }


async def _turn(
    world: World, one: Contender, wanted: Collection[str], *, is_last: bool, has_limits: bool
) -> dict[str, Measured]:
    """A round of one contender, and after one of ours (in our own dialect) the limits of its rows."""
    rows = await one_round(world, one, wanted)
    measured = {one.name: rows}
    if has_limits and one.name == contender.OURS:
        if CREATION in rows:
            await world.remove_created(CREATED_PARTITIONS, with_topic=False)  # the limit makes them
        limits = {row: await limit_of(world, row, rows[row].acks) for row in rows}
        measured[LIMIT] = {row: Row(limit, ()) for row, limit in limits.items() if limit is not None}
    if not is_last:
        await put_back(world, rows)
    return measured


async def _broker_side(topics: int, partitions: int) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.broker_side", str(topics), str(partitions), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    result: dict[str, float] = json.loads(said)
    return {BROKER_LOAD: result["seconds"], BROKER_MEMORY: result["kib_per_partition"]}


@contextmanager
def checked_out(commit: str | None) -> Iterator[Path | None]:
    """A folder with the code of a commit; None if none is asked for."""
    if commit is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        root = Path(folder) / "earlier"
        git("worktree", "add", "--quiet", "--detach", str(root), commit)
        try:
            yield root
        finally:
            git("worktree", "remove", "--force", str(root))


@click.command()
@click.option("--kafka", "with_kafka", is_flag=True, help="Apache Kafka's controller beside ours, row by row.")
@click.option("--topics", default=100, show_default=True)
@click.option("--partitions", default=100, show_default=True, help="Of each topic.")
@click.option("--rounds", default=3, show_default=True, help="After one that only warms up.")
@click.option("--row", "rows", multiple=True, type=click.Choice(list(ROWS)), help="Only these; may be repeated.")
@click.option("--cold", is_flag=True, help="Without the round that only warms up.")
@click.option("--earlier", "commit", help="Our controller of another commit beside, in turns; without limits.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "markdown"]), default="table")
def main(
    with_kafka: bool,
    topics: int,
    partitions: int,
    rounds: int,
    rows: tuple[str, ...],
    cold: bool,
    commit: str | None,
    output: str,
) -> None:
    """Measure the controller on a real ZooKeeper with ten brokers that acknowledge at once."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    wanted = set(rows or ROWS)
    if BACK in wanted:
        wanted.add(DEATH)  # a broker that comes back was gone
    try:
        with checked_out(commit) as root:
            measuring = bench(topics, partitions, rounds, wanted, with_kafka=with_kafka, is_warm=not cold, earlier=root)
            result = asyncio.run(measuring)
    except* (KafkaError, OverdueError, contender.ContenderEndedError) as errors:
        sys.exit(str(first_cause(errors)))
    if output == "json":
        click.echo(json.dumps(result, indent=2))
    elif output == "markdown":
        click.echo(markdown_of(result), nl=False)
    else:
        Console(width=TABLE_WIDTH).print(table_of(result))
        if result["to_earlier"]:
            Console(width=TABLE_WIDTH).print(earlier_table(result))


if __name__ == "__main__":
    main()
