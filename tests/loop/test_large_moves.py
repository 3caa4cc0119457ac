"""Moves of many partitions take little of the state-change log: less than 2 MB for a failover that finds a dead broker,
or for the death of a broker, with 100,000 partitions, in one topic or in as many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import msgspec
import pytest

from controller.core.project.lines import Line
from tests.loop.test_large_topic_cost import BROKERS, World, a_world, a_world_of_topics
from tests.support.harness import a_broker, a_controller

#: for each partition: 2 MB for 100,000
BYTES_MAX = 20
#: the lines of a move, and of a term's first reading
KINDS = ("move", "found")


def bytes_of(lines: Iterable[Line]) -> int:
    return sum(len(msgspec.json.encode(line)) + 1 for line in lines if line.kind in KINDS)


@pytest.mark.parametrize("size", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("made", [a_world, a_world_of_topics], ids=["one topic", "topics of one"])
async def test_moves_of_a_failover_and_of_a_death_take_few_bytes_for_each_partition(
    made: Callable[[int], Awaitable[World]], size: int
) -> None:
    world = await made(size)
    *live_ids, _ = BROKERS
    brokers = {broker_id: await a_broker(world.server, broker_id) for broker_id in live_ids}
    async with a_controller(world.server, 100, open_outboxes=world.open_outboxes) as node:
        await world.quiet()
        failover = bytes_of(node.heard.lines)
        node.heard.lines.clear()
        await brokers[5].close()
        await world.quiet()
        death = bytes_of(node.heard.lines)
    await world.dialect.http.close()
    assert size < failover < BYTES_MAX * size
    assert size < death < BYTES_MAX * size
