"""`python -m tests.real_brokers.kills [--kills 20]`: our active controller is killed beside real Kafka brokers, which
race for the seat, again and again. A standby with the default preference has to win each time.

For each kill it prints whether a broker was faster, and how long after the end of the session ours was active. Then the
seat is handed back and left to the brokers for longer than any of the standbys took. A broker that was faster than a
standby with `--no-prefer` keeps the seat for as long. Exit code 1: one of these failed.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from signal import Signals
from typing import NamedTuple

import click

from tests.real_brokers.cluster import Cluster, Controller, a_cluster
from tests.waiting import until

FOLDER = Path(__file__).parents[2] / "var" / "kafka-kills"
#: the brokers keep the seat for so many times as long as any standby took
LEFT_FOR = 3
LEFT_MIN_S = 3.0
#: a broker is faster in one of so many kills
TRIES = 5


class Followed(NamedTuple):
    """The holders of the seat after a kill, in order, and how long after the session's end ours was active."""

    holder_ids: list[int]
    took_s: float

    @property
    def is_brokers_first(self) -> bool:
        return self.holder_ids[0] < 100


def holder(cluster: Cluster) -> int | None:
    seat = cluster.read("/controller")
    return None if seat is None else int(seat["brokerid"])


async def pair(cluster: Cluster, *more: str) -> tuple[Controller, Controller]:
    """Two of ours beside the brokers; the first has the seat."""
    for one in cluster.controllers:
        await one.end()
    first, second = (Controller(cluster.directory, cluster.zookeeper, number, more) for number in (100, 101))
    cluster.controllers += [first, second]
    for one in (first, second):
        await one.start()
    await first.take_over()
    return first, second


async def followed(cluster: Cluster, active: Controller, standby: Controller) -> Followed:
    """Kill the active controller, and record the holders of the seat until our other controller is active."""
    await active.end(Signals.SIGKILL)
    path, begun, seen = f"/kafka/klamm/controllers/{active.controller_id}", 0.0, list[int]()

    async def is_ours() -> bool:
        nonlocal begun
        if not begun and cluster.kazoo.exists(path) is None:
            begun = time.monotonic()
        now = holder(cluster)
        if now not in (None, active.controller_id, *seen[-1:]):
            seen.append(now or 0)
        return now == standby.controller_id and await standby.is_active()

    await until(is_ours, f"controller {standby.controller_id} leads; seen were {seen}")
    return Followed(seen, time.monotonic() - begun)


async def is_left_alone_after_a_handback(cluster: Cluster, active: Controller, seconds: float) -> bool:
    status, body = await active.ask("POST", "/v1/handback", {})
    assert status == 200, body
    await until(lambda: holder(cluster) in cluster.brokers, "one of Kafka's is back")
    return await is_left_alone(cluster, seconds)


async def is_left_alone_without_preference(cluster: Cluster, seconds: float) -> bool:
    """A kill in which a broker was faster than the standby; where it was not, it was the standby's."""
    for _ in range(TRIES):
        active, standby = await pair(cluster, "--no-prefer")
        await active.end(Signals.SIGKILL)
        others = (*cluster.brokers, standby.controller_id)
        await until(lambda others=others: holder(cluster) in others, "somebody follows")
        if holder(cluster) in cluster.brokers:
            return await is_left_alone(cluster, seconds)
    return False


async def is_left_alone(cluster: Cluster, seconds: float) -> bool:
    """Whether the brokers keep the seat."""
    over_at = time.monotonic() + seconds
    while time.monotonic() < over_at:
        if holder(cluster) not in (None, *cluster.brokers):
            return False
        await asyncio.sleep(0.1)
    return True


async def played(kills: int) -> bool:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    async with a_cluster(FOLDER) as cluster:
        active, standby = await pair(cluster)
        rows = []
        for number in range(1, kills + 1):
            try:
                rows.append(row := await followed(cluster, active, standby))
            except AssertionError as error:
                click.echo(f"{number:3}  FAILED: {error}")
                return False
            click.echo(f"{number:3}  seat: {' then '.join(map(str, row.holder_ids))}, active after {row.took_s:.2f} s")
            await active.start()
            path = f"/klamm/controllers/{active.controller_id}"
            await until(partial(cluster.read, path), "it is there again")
            active, standby = standby, active
        faster = sum(row.is_brokers_first for row in rows)
        longest_s = max(row.took_s for row in rows)
        click.echo(f"ours led after {len(rows)} of {kills} kills; a broker was faster {faster} times;"
                   f" at most {longest_s:.2f} s after the session's end")  # fmt: skip
        long_s = max(LEFT_MIN_S, LEFT_FOR * longest_s)
        is_left = await is_left_alone_after_a_handback(cluster, active, long_s)
        click.echo(f"after a handback the brokers {'kept' if is_left else 'LOST'} the seat for {long_s:.1f} s")
        is_kept = await is_left_alone_without_preference(cluster, long_s)
        click.echo(f"with --no-prefer a broker {'kept' if is_kept else 'LOST'} the seat for {long_s:.1f} s")
        return is_left and is_kept


@click.command()
@click.option("--kills", default=20, show_default=True)
def main(kills: int) -> None:
    """Twenty kills of our controller beside real brokers."""
    sys.exit(not asyncio.run(played(kills)))


if __name__ == "__main__":
    main()
