"""The rows: what is done, from when to when it is measured. The same for every controller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from controller.core import formats
from controller.core.model import Leadership
from controller.core.znodes import CONTROLLER, state_path
from controller.zk_model import NoNodeError
from tests.bench.acks import LEADER_AND_ISR, UPDATE_METADATA, Row
from tests.bench.contender import Contender
from tests.bench.world import BROKERS, CREATED, World

CREATED_PARTITIONS = 10_000
MOVED_PARTITIONS = 1_000
VICTIM = BROKERS - 1
#: shuts down in order
LEAVING = BROKERS - 2
DEAF = BROKERS - 3
SAMPLES = 300
IDLE_S = 5.0

ALL = frozenset(range(BROKERS))
OTHERS = ALL - {VICTIM}

FAILOVER = "failover"
LOAD = "load"
IDLE = "idle"
DEATH = "broker death"
DECISION = "broker death: decision"
BACK = "broker back"
CREATION = "topic of 10,000"
SHUTDOWN = "controlled shutdown"
REASSIGNMENT = "reassignment of 1,000"
SLOW = "failover beside a deaf broker"
MEMORY = "memory"

Measured = dict[str, Row]


async def one_round(world: World, contender: Contender, wanted: Collection[str]) -> Measured:
    """The rows wanted once, by one controller; the caller puts the cluster back."""
    rows: Measured = {}
    before_bytes = contender.resident_bytes()
    await contender.order("start")
    await _row(world, contender, _nothing, ALL, ALL, _is_seated(world))  # it has won the seat and told everybody
    for name, measure in ROWS.items():
        if name in wanted:
            rows[name] = await measure(world, contender)
        if name == FAILOVER and name in wanted and contender.is_ours:
            rows[LOAD] = Row(await contender.load_s(), ())
            rows[MEMORY] = Row((contender.resident_bytes() - before_bytes) / 1024 / world.partitions, ())
        if name == DEATH and name in wanted and contender.is_ours:
            rows[DECISION] = Row(contender.decided_s("BrokersSeen"), ())
    await contender.order("stop")
    await vacate(world)
    return rows


async def put_back(world: World, measured: Collection[str]) -> None:
    """The cluster as it was before a round; to be called while nobody is controller."""
    touched = set(world.hosted_by(VICTIM)) if DEATH in measured else set()
    if SHUTDOWN in measured:
        touched |= set(world.hosted_by(LEAVING))
        await world.unregister(LEAVING)
        await world.register(LEAVING)
    if REASSIGNMENT in measured:
        moved = moved_in(world)
        touched |= set(moved)
        await world.write(world.assignments({topic for topic, _ in moved}))
    await world.restore(sorted(touched))
    if CREATION in measured:
        await world.remove_created(CREATED_PARTITIONS, with_topic=True)


def moved_in(world: World) -> list[tuple[str, int]]:
    """What is reassigned: partitions on none of the brokers that come and go."""
    still = world.hosted_by_none_of((VICTIM, LEAVING))
    return still[:MOVED_PARTITIONS]


async def failover(world: World, contender: Contender) -> Row:
    """`/controller` gone, until every broker has acknowledged full metadata and all its replicas."""
    return await _row(world, contender, partial(world.zk.delete, CONTROLLER, -1), ALL, ALL, _is_seated(world))


async def idle(world: World, contender: Contender) -> Row:
    """What it costs to do nothing."""
    before_s, started = contender.cpu_s(), time.monotonic()
    while (left_s := IDLE_S - (time.monotonic() - started)) > 0:  # noqa: ASYNC110 - time is what is waited for
        await asyncio.sleep(left_s)
    return Row((contender.cpu_s() - before_s) / IDLE_S * 1_000, ())


async def death(world: World, contender: Contender) -> Row:
    """A registration gone, until the others were told of new leaders and ISRs."""
    is_done = _are(world, world.hosted_by(VICTIM), lambda state: VICTIM not in state.isr)
    return await _row(world, contender, partial(world.unregister, VICTIM), OTHERS, OTHERS, is_done)


async def back(world: World, contender: Contender) -> Row:
    """It is registered again, until it acknowledged everything and the others know it."""
    return await _row(world, contender, partial(world.register, VICTIM), frozenset((VICTIM,)), ALL, _is_seated(world))


async def creation(world: World, contender: Contender) -> Row:
    """A topic's znode written, until all its partitions are led and acknowledged."""
    new = [(CREATED, number) for number in range(CREATED_PARTITIONS)]
    is_done = _are(world, new, lambda state: state.leader >= 0)
    return await _row(world, contender, partial(world.create_topic, CREATED_PARTITIONS), ALL, ALL, is_done)


async def shutdown(world: World, contender: Contender) -> Row:
    """A broker asks for it, until it is answered, and all others have acknowledged who leads instead."""
    staying = ALL - {LEAVING}
    order = f"shutdown {LEAVING} {await world.broker_epoch(LEAVING)}"
    is_done = _are(world, world.hosted_by(LEAVING), lambda state: LEAVING not in state.isr)
    return await _row(world, contender, partial(contender.order, order), staying, staying, is_done)


async def reassignment(world: World, contender: Contender) -> Row:
    """The request's znode written, until each of the partitions has lost its first replica, which led it, and the
    request is gone."""
    moved = moved_in(world)
    told = ALL - {VICTIM, LEAVING}
    is_moved = _are(world, moved, lambda state: len(state.isr) == len(world.assignment_of(*moved[0])) - 1)

    async def is_done() -> bool:
        return await world.is_reassigned(moved) and await is_moved()

    return await _row(world, contender, partial(world.reassign, moved), told, told, is_done)


async def slow(world: World, contender: Contender) -> Row:
    """A failover as the others see it, while one broker reads and never answers."""
    hearing = ALL - {DEAF}
    await world.deafen(DEAF)
    row = await _row(
        world, contender, partial(world.zk.delete, CONTROLLER, -1), hearing, hearing, _is_seated(world), hearing
    )
    await _row(world, contender, partial(world.hear, DEAF), frozenset((DEAF,)), frozenset((DEAF,)), _is_seated(world))
    return row


ROWS: dict[str, Callable[[World, Contender], Awaitable[Row]]] = {
    FAILOVER: failover,
    IDLE: idle,
    DEATH: death,
    BACK: back,
    CREATION: creation,
    SHUTDOWN: shutdown,
    REASSIGNMENT: reassignment,
    SLOW: slow,
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
    of_ids: frozenset[int] = ALL,
) -> Row:
    """Measured until these brokers have acknowledged leaderships, and those metadata, and nothing follows."""
    wanted = {(b, LEADER_AND_ISR) for b in led_ids} | {(b, UPDATE_METADATA) for b in told_ids}
    row = await world.acks.row(act, lambda acked: acked >= wanted, is_done, contender.cpu_s)
    return row._replace(acks=[ack for ack in row.acks if ack.broker in of_ids])


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
