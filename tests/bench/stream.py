"""`python -m tests.bench.stream [--rounds 5]`: the cost of a hundred subscribers of the event stream.

A real controller on a real ZooKeeper makes 10,000 changes (topics of 100 partitions, one after the other, until the
last acknowledgement), in turns without subscribers and with 100 of them at its own API, which read in a process of
their own. The row is the ratio of the medians, of one run: machines differ, and so do minutes.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import click
import structlog
from aiohttp import web

from controller.api.serve.app import build_app
from controller.base.config import Limits
from controller.core.events import CreateTopicAsked, DeleteTopicAsked
from controller.statelog.journal import Journal
from controller.statelog.metrics import Meters
from controller.term.controller import Handle
from tests.api.api_support import CONFIG, View, reserved
from tests.bench.inside import Inside, a_controller
from tests.bench.world import BROKERS, a_world

SUBSCRIBERS = 100
TOPICS = 100
PARTITIONS = 100
CHANGES = TOPICS * PARTITIONS
WORD = b"\nevent: partition\n"


@asynccontextmanager
async def an_api(handle: Handle) -> AsyncIterator[str]:
    bound = reserved()
    address = f"127.0.0.1:{bound.getsockname()[1]}"
    limits = Limits(event_subscribers_per_caller=SUBSCRIBERS)
    app = build_app(View(), handle, listeners=[address], config=CONFIG, limits=limits)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    try:
        yield f"http://{address}"
    finally:
        await runner.cleanup()


async def subscribe(url: str) -> None:
    """The other process: 100 streams, read as they come; at each word on standard input it says how many lines each
    had had, the least and the most."""
    counts = [0] * SUBSCRIBERS

    async def read(number: int, client: aiohttp.ClientSession) -> None:
        async with client.get(f"{url}/v1/events", timeout=aiohttp.ClientTimeout(total=None)) as response:
            print("open", flush=True)  # noqa: T201 - the protocol of two processes
            rest = b""
            async for piece in response.content.iter_any():
                counts[number] += (rest + piece).count(WORD)
                rest = (rest + piece)[1 - len(WORD) :]  # a word may be cut in two

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client, asyncio.TaskGroup() as group:
        readers = [group.create_task(read(number, client)) for number in range(SUBSCRIBERS)]
        while await asyncio.to_thread(sys.stdin.readline):
            print(min(counts), max(counts), flush=True)  # noqa: T201
        for reader in readers:
            reader.cancel()


@asynccontextmanager
async def a_hundred(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.stream", "--subscribe", url,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(SUBSCRIBERS):
        assert await process.stdout.readline() == b"open\n"
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def lines_had(process: asyncio.subprocess.Process) -> tuple[int, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"?\n")
    least, most = (await process.stdout.readline()).split()
    return int(least), int(most)


async def make_changes(inside: Inside, number: int) -> float:
    """Seconds until the last acknowledgement of 10,000 new partitions; then they go again, outside the time."""
    names = [f"round-{number}-{topic}" for topic in range(TOPICS)]
    started = time.monotonic()
    for name in names:
        reply = await inside.ask(CreateTopicAsked(name, partitions=PARTITIONS, replication_factor=3))
        assert reply.code == 0, reply
    assert inside.outboxes is not None
    await inside.outboxes.settled()
    return time.monotonic() - started


async def tidy(inside: Inside, number: int) -> None:
    for topic in range(TOPICS):
        await inside.ask(DeleteTopicAsked(f"round-{number}-{topic}"))
    await until(lambda: inside.cluster is not None and not inside.cluster.topics)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the condition is belief, which sets no event
            await asyncio.sleep(0.001)


async def bench(rounds: int) -> dict[str, float]:
    alone: list[float] = []
    watched: list[float] = []
    caught_up_s = 0.0
    meters = Meters()
    with tempfile.TemporaryDirectory() as folder:
        handle = Handle(Journal(Path(folder) / "state-change.log"), meters)
        async with a_world(Path(folder)) as world, a_controller(world, meters) as inside, an_api(handle) as url:
            handle.open_to(inside.daemon)
            await until(lambda: handle.is_active)
            await make_changes(inside, 0)  # the first is slower for everybody
            await tidy(inside, 0)
            for number in range(1, 2 * rounds + 1):
                if number % 2:
                    alone.append(await make_changes(inside, number))
                else:
                    async with a_hundred(url) as process:
                        watched.append(await make_changes(inside, number))
                        ended = time.monotonic()
                        while (had := await lines_had(process))[0] < CHANGES:
                            assert time.monotonic() - ended < 60, f"lines were lost: {had}"
                            await asyncio.sleep(0.02)
                        caught_up_s = max(caught_up_s, time.monotonic() - ended)
                await tidy(inside, number)
    ratio = statistics.median(watched) / statistics.median(alone)
    return {
        "alone_s": statistics.median(alone), "watched_s": statistics.median(watched), "ratio": ratio,
        "caught_up_within_s": caught_up_s, "brokers": BROKERS,
    }  # fmt: skip


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Of each kind.")
@click.option("--subscribe", "url", hidden=True)
def main(rounds: int, url: str | None) -> None:
    """Measure the cost of 100 subscribers, and print it as JSON."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if url is not None:
        asyncio.run(subscribe(url))
    else:
        click.echo(json.dumps(asyncio.run(bench(rounds)), indent=2))


if __name__ == "__main__":
    main()
