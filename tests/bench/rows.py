"""The rows: the action of each, and the moments between which it is measured. The same for all controllers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from controller.core.model import Leadership
from controller.core.project.znodes import CONTROLLER
from controller.zookeeper.port import NoNodeError
from tests.bench.acks import LEADER_AND_ISR, UPDATE_METADATA, Row
from tests.bench.contender import Contender
from tests.bench.world import BROKERS, CREATED, Key, World, replicas_of

CREATED_PARTITIONS = 10_000
MOVED_PARTITIONS = 1_000
FEW_MOVED_PARTITIONS = 200
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
REASSIGNMENT = f"reassignment of {MOVED_PARTITIONS:,}"
FEW_REASSIGNED = f"reassignment of {FEW_MOVED_PARTITIONS:,}"
SLOW = "failover beside a deaf broker"
MEMORY = "memory"

REASSIGNED = (FEW_REASSIGNED, REASSIGNMENT)

Measured = dict[str, Row]


async def one_round(world: World, contender: Contender, wanted: Collection[str]) -> Measured:
    """The rows wanted once, by one controller; the caller puts the cluster back."""
    rows: Measured = {}
    # until it has won the seat and told everybody
    await _row(world, contender, "start", partial(contender.order, "start"), ALL, ALL, _is_seated(world))
    for name, measure in ROWS.items():
        if name in wanted:
            await contender.order("settle")
            rows[name] = await measure(world, contender)
        if name == FAILOVER and name in wanted and contender.is_ours:
            rows[LOAD] = Row(await contender.load_s(), ())
            rows[MEMORY] = Row((contender.resident_bytes() - contender.fresh_bytes) / 1024 / world.partitions, ())
        if name == DEATH and name in wanted and contender.is_ours:
            rows[DECISION] = Row(contender.decided_s("BrokersSeen"), ())
    await contender.order("stop")
    await vacate(world)
    return rows


async def put_back(world: World, measured: Collection[str]) -> None:
    """The cluster as it was before a round; to be called while no controller is active."""
    touched = set(world.hosted_by(VICTIM)) if DEATH in measured else set()
    if DEATH in measured and BACK not in measured:
        await world.register(VICTIM)
    if SHUTDOWN in measured:
        touched |= set(world.hosted_by(LEAVING))
        await world.unregister(LEAVING)
        await world.register(LEAVING)
    moved = [each for row in REASSIGNED if row in measured for each in moved_in(world, row)]
    touched |= set(moved)
    await world.write(world.assignments({topic for topic, _ in moved}))
    await world.restore(sorted(touched))
    if CREATION in measured:
        await world.remove_created(CREATED_PARTITIONS, with_topic=True)


def moved_in(world: World, row: str) -> list[tuple[str, int]]:
    """Returns the reassigned partitions, which are on none of the brokers that come and go."""
    still = world.hosted_by_none_of((VICTIM, LEAVING))
    few, many = still[:FEW_MOVED_PARTITIONS], still[FEW_MOVED_PARTITIONS:][:MOVED_PARTITIONS]
    assert len(many) == MOVED_PARTITIONS, "the cluster has too few partitions for this row"
    return few if row == FEW_REASSIGNED else many


def target_of(topic: str, partition: int) -> tuple[int, ...]:
    """Where a reassigned partition goes: it gives up its first replica, which leads it, for one on another broker."""
    first, *others = replicas_of(topic, partition)
    steps = ((first + step) % BROKERS for step in range(1, BROKERS))
    return (*others, next(one for one in steps if one not in (*others, VICTIM, LEAVING)))


async def failover(world: World, contender: Contender) -> Row:
    """`/controller` gone, until every broker has acknowledged full metadata and all its replicas."""
    act = partial(world.zk.delete, CONTROLLER, -1)
    return await _row(world, contender, FAILOVER, act, ALL, ALL, _is_seated(world))


async def idle(world: World, contender: Contender) -> Row:
    """The cost of doing nothing."""
    before_s, started = contender.cpu_s(), time.monotonic()
    while (left_s := IDLE_S - (time.monotonic() - started)) > 0:  # noqa: ASYNC110 - the row is a stretch of time
        await asyncio.sleep(left_s)
    return Row((contender.cpu_s() - before_s) / IDLE_S * 1_000, ())


async def death(world: World, contender: Contender) -> Row:
    """A registration gone, until the others were told of new leaders and ISRs."""
    is_done = _are(world, world.hosted_by(VICTIM), lambda _, state: VICTIM not in state.isr)
    return await _row(world, contender, DEATH, partial(world.unregister, VICTIM), OTHERS, OTHERS, is_done)


async def back(world: World, contender: Contender) -> Row:
    """It is registered again, until it acknowledged everything and the others know it."""
    act = partial(world.register, VICTIM)
    return await _row(world, contender, BACK, act, frozenset((VICTIM,)), ALL, _is_seated(world))


async def creation(world: World, contender: Contender) -> Row:
    """A topic's znode written, until all its partitions are led and acknowledged."""
    new = [(CREATED, number) for number in range(CREATED_PARTITIONS)]
    is_done = _are(world, new, lambda _, state: state.leader >= 0)
    act = partial(world.create_topic, CREATED_PARTITIONS)
    return await _row(world, contender, CREATION, act, ALL, ALL, is_done)


async def shutdown(world: World, contender: Contender) -> Row:
    """A broker asks for it, until it is answered, and all others have acknowledged the new leaders."""
    staying = ALL - {LEAVING}
    order = f"shutdown {LEAVING} {await world.broker_epoch(LEAVING)}"
    is_done = _are(world, world.hosted_by(LEAVING), lambda _, state: LEAVING not in state.isr)
    return await _row(world, contender, SHUTDOWN, partial(contender.order, order), staying, staying, is_done)


async def reassignment(row: str, world: World, contender: Contender) -> Row:
    """The request's znode written, until each of the partitions has moved and the request is gone. As soon as a new
    replica is expected of it, the partition's leader finds it in sync and says so."""
    targets = {each: target_of(*each) for each in moved_in(world, row)}
    told = ALL - {VICTIM, LEAVING}
    is_moved = _are(world, list(targets), lambda each, state: set(state.isr) == set(targets[each]))

    async def act() -> None:
        await world.reassign(targets)
        await world.catch_up(targets)

    async def is_done() -> bool:
        return await world.is_reassigned(targets) and await is_moved()

    return await _row(world, contender, row, act, told, told, is_done)


async def slow(world: World, contender: Contender) -> Row:
    """A failover as the others see it, while one broker reads and never answers."""
    hearing = ALL - {DEAF}
    await world.deafen(DEAF)
    act = partial(world.zk.delete, CONTROLLER, -1)
    row = await _row(world, contender, SLOW, act, hearing, hearing, _is_seated(world), hearing)
    deaf = frozenset((DEAF,))
    await _row(world, contender, "the deaf broker hears", partial(world.hear, DEAF), deaf, deaf, _is_seated(world))
    return row


ROWS: dict[str, Callable[[World, Contender], Awaitable[Row]]] = {
    FAILOVER: failover,
    SLOW: slow,  # next to the row it is compared with: a later term also records its predecessor's end
    IDLE: idle,
    DEATH: death,
    BACK: back,
    CREATION: creation,
    SHUTDOWN: shutdown,
    FEW_REASSIGNED: partial(reassignment, FEW_REASSIGNED),
    REASSIGNMENT: partial(reassignment, REASSIGNMENT),
}


async def vacate(world: World) -> None:
    """Wait until the seat is vacant."""
    try:
        await world.zk.delete(CONTROLLER, -1)
    except NoNodeError:
        return


async def _row(
    world: World,
    contender: Contender,
    name: str,
    act: Callable[[], Awaitable[object]],
    led_ids: frozenset[int],
    told_ids: frozenset[int],
    is_done: Callable[[], Awaitable[bool]],
    of_ids: frozenset[int] = ALL,
) -> Row:
    """Measured until these brokers have acknowledged leaderships, and those metadata, and nothing follows."""
    wanted = {(b, LEADER_AND_ISR) for b in led_ids} | {(b, UPDATE_METADATA) for b in told_ids}
    row = await world.acks.row(f"{contender.name}: {name}", act, wanted, is_done, contender.cpu_s)
    return row._replace(acks=[ack for ack in row.acks if ack.broker in of_ids])


def _is_seated(world: World) -> Callable[[], Awaitable[bool]]:
    async def is_done() -> bool:
        return (await world.zk.exists(CONTROLLER)).stat is not None

    return is_done


def _are(
    world: World, partitions: list[Key], is_good: Callable[[Key, Leadership], bool]
) -> Callable[[], Awaitable[bool]]:
    """Returns whether a sample of these states is as it should be: reading all of them would cost too much."""
    sample = partitions[:: max(1, len(partitions) // SAMPLES)]

    async def is_done() -> bool:
        return all(
            state is not None and is_good(each, state)
            for each, (state, _) in zip(sample, await world.states(sample), strict=True)
        )

    return is_done
