"""The rows: what is done, from when to when it is measured. The same for every controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from controller.core import formats
from controller.core.model import Leadership
from controller.core.znodes import CONTROLLER, state_path
from controller.zk_model import NoNodeError
from tests.bench.acks import LEADER_AND_ISR, UPDATE_METADATA, Row
from tests.bench.contender import Contender
from tests.bench.world import BROKERS, CREATED, World

CREATED_PARTITIONS = 10_000
VICTIM = BROKERS - 1
SAMPLES = 300

ALL = frozenset(range(BROKERS))
OTHERS = ALL - {VICTIM}

FAILOVER = "failover"
DEATH = "broker death"
BACK = "broker back"
CREATION = "topic of 10,000"


async def one_round(world: World, contender: Contender) -> dict[str, Row]:
    """All rows once, by one controller; the caller puts the cluster back."""
    touched = world.hosted_by(VICTIM)
    rows: dict[str, Row] = {}
    await contender.order("start")
    await _row(world, contender, _nothing, ALL, ALL, _is_seated(world))  # it has won the seat and told everybody
    for name, measure in ROWS.items():
        rows[name] = await measure(world, contender, touched)
    await contender.order("stop")
    await vacate(world)
    return rows


async def put_back(world: World) -> None:
    """The cluster as it was before a round; to be called while nobody is controller."""
    await world.restore(world.hosted_by(VICTIM), CREATED_PARTITIONS)


async def failover(world: World, contender: Contender, touched: list[tuple[str, int]]) -> Row:
    """`/controller` gone, until every broker has acknowledged full metadata and all its replicas."""
    return await _row(world, contender, partial(world.zk.delete, CONTROLLER, -1), ALL, ALL, _is_seated(world))


async def death(world: World, contender: Contender, touched: list[tuple[str, int]]) -> Row:
    """A registration gone, until the others were told of new leaders and ISRs."""
    is_done = _are(world, touched, lambda state: VICTIM not in state.isr)
    return await _row(world, contender, partial(world.unregister, VICTIM), OTHERS, OTHERS, is_done)


async def back(world: World, contender: Contender, touched: list[tuple[str, int]]) -> Row:
    """It is registered again, until it acknowledged everything and the others know it."""
    return await _row(world, contender, partial(world.register, VICTIM), frozenset((VICTIM,)), ALL, _is_seated(world))


async def creation(world: World, contender: Contender, touched: list[tuple[str, int]]) -> Row:
    """A topic's znode written, until all its partitions are led and acknowledged."""
    new = [(CREATED, number) for number in range(CREATED_PARTITIONS)]
    is_done = _are(world, new, lambda state: state.leader >= 0)
    return await _row(world, contender, partial(world.create_topic, CREATED_PARTITIONS), ALL, ALL, is_done)


ROWS: dict[str, Callable[[World, Contender, list[tuple[str, int]]], Awaitable[Row]]] = {
    FAILOVER: failover,
    DEATH: death,
    BACK: back,
    CREATION: creation,
}


async def vacate(world: World) -> None:
    """The seat is empty, whoever left it."""
    try:
        await world.zk.delete(CONTROLLER, -1)
    except NoNodeError:
        return


async def _row(
    world: World,
    contender: Contender,
    act: Callable[[], Awaitable[object]],
    led_ids: frozenset[int],
    told_ids: frozenset[int],
    is_done: Callable[[], Awaitable[bool]],
) -> Row:
    """Measured until these brokers have acknowledged leaderships, and those metadata, and nothing follows."""
    wanted = {(b, LEADER_AND_ISR) for b in led_ids} | {(b, UPDATE_METADATA) for b in told_ids}
    return await world.acks.row(act, lambda acked: acked >= wanted, is_done, contender.cpu_s)


async def _nothing() -> None:
    await asyncio.sleep(0)


def _is_seated(world: World) -> Callable[[], Awaitable[bool]]:
    async def is_done() -> bool:
        return (await world.zk.exists(CONTROLLER)).stat is not None

    return is_done


def _are(
    world: World, partitions: list[tuple[str, int]], is_good: Callable[[Leadership], bool]
) -> Callable[[], Awaitable[bool]]:
    """Whether a sample of these states is as it should be: reading all of them would cost what is measured."""
    sample = partitions[:: max(1, len(partitions) // SAMPLES)]

    async def is_done() -> bool:
        nodes = await world.zk.get_many([state_path(*each) for each in sample])
        return all(node is not None and is_good(formats.decode_state(node.data)) for node in nodes)

    return is_done
