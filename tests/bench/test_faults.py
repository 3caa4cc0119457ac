"""The rows of the bench with a fault in the middle: the controller is killed, and its successor ends the work.

The same world, endpoints and processes as the bench, smaller. How far the first one came differs from run to run; where
it must end does not.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from controller.core.model import Leadership
from controller.core.project.znodes import CONTROLLER, CONTROLLER_EPOCH
from tests.bench import contender
from tests.bench.acks import LEADER_AND_ISR, UPDATE_METADATA
from tests.bench.contender import Contender
from tests.bench.rows import (
    ALL,
    BACK,
    CREATION,
    DEAF,
    DEATH,
    FAILOVER,
    FEW_REASSIGNED,
    IDLE,
    LEAVING,
    OTHERS,
    REASSIGNMENT,
    ROWS,
    SHUTDOWN,
    SLOW,
    VICTIM,
    moved_in,
    target_of,
    vacate,
)
from tests.bench.world import CREATED, Key, World, a_world, replicas_of

pytestmark = [pytest.mark.java, pytest.mark.long]

DEADLINE_S = 60
CREATED_PARTITIONS = 3_000


#: the rows that have a fault in their middle here
FAULTED: set[str] = set()
Fault = Callable[..., Awaitable[None]]


def in_the_middle_of(*rows: str) -> Callable[[Fault], Fault]:
    def mark(test: Fault) -> Fault:
        FAULTED.update(rows)
        return test

    return mark


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():  # noqa: ASYNC110 - the condition is in another process
            await asyncio.sleep(0.001)


async def told(world: World, broker_ids: frozenset[int], since: float) -> None:
    """Each of these brokers has acknowledged metadata and replicas since then."""
    wanted = {(broker_id, kind) for broker_id in broker_ids for kind in (LEADER_AND_ISR, UPDATE_METADATA)}

    async def is_told() -> bool:
        return wanted <= {(ack.broker, ack.kind) for ack in world.acks.since(since)}

    await until(is_told)


async def states(world: World, partitions: list[Key]) -> list[Leadership | None]:
    return [state for state, _ in await world.states(partitions)]


async def epoch(world: World) -> int:
    node = await world.zk.get(CONTROLLER_EPOCH)
    assert node is not None
    return int(node.data)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path, heap_mb=512) as made:
        await made.populate(40, 100, lambda count: None)
        yield made


@pytest.fixture
async def first(world: World, tmp_path: Path) -> AsyncIterator[Contender]:
    """Active, and every broker has acknowledged its requests."""
    async with contender.launched(contender.ours(world.server.client_port, tmp_path)) as one:
        started = asyncio.get_running_loop().time()
        await one.order("start")
        await told(world, ALL, started)
        yield one


async def succeed(world: World, killed: Contender, tmp_path: Path, live_ids: frozenset[int], is_right: Ending) -> None:
    """Kill it now; another takes the seat, tells every broker, and ends the work."""
    killed.process.send_signal(signal.SIGKILL)
    await killed.process.wait()
    await vacate(world)
    async with contender.launched(contender.ours(world.server.client_port, tmp_path)) as successor:
        started = asyncio.get_running_loop().time()
        await successor.order("start")
        await told(world, live_ids, started)
        await until(is_right)


Ending = Callable[[], Awaitable[bool]]


async def is_led(world: World, partitions: list[Key], leader_epochs: set[int], gone: int | None) -> bool:
    """Every partition has an in-sync leader on its replicas, without the dead broker, and no epoch was taken twice."""
    found = await states(world, partitions)
    return all(
        state is not None
        and state.leader in state.isr
        and set(state.isr) == set(replicas_of(*each)) - {gone}
        and state.leader_epoch in leader_epochs
        for each, state in zip(partitions, found, strict=True)
    )


@in_the_middle_of(FAILOVER)
async def test_a_controller_killed_while_it_loads_is_succeeded(world: World, first: Contender, tmp_path: Path) -> None:
    before = await epoch(world)
    await world.zk.delete(CONTROLLER, -1)

    async def has_claimed() -> bool:
        return await epoch(world) > before

    await until(has_claimed)
    every = [(topic, number) for topic, count in world.topics.items() for number in range(count)]
    await succeed(world, first, tmp_path, ALL, partial(is_led, world, every, {0}, None))


@in_the_middle_of(IDLE)
async def test_a_controller_killed_while_nothing_happens_is_succeeded_and_changes_nothing(
    world: World, first: Contender, tmp_path: Path
) -> None:
    every = [(topic, number) for topic, count in world.topics.items() for number in range(count)]
    before = await world.states(every)

    async def is_untouched() -> bool:
        return await world.states(every) == before

    await succeed(world, first, tmp_path, ALL, is_untouched)


@in_the_middle_of(DEATH)
async def test_a_controller_killed_while_a_brokers_death_is_written_is_succeeded(
    world: World, first: Contender, tmp_path: Path
) -> None:
    hosted = world.hosted_by(VICTIM)
    await world.unregister(VICTIM)

    async def has_begun() -> bool:
        return any(state is not None and VICTIM not in state.isr for state in await states(world, hosted[::50]))

    await until(has_begun)
    await succeed(world, first, tmp_path, OTHERS, partial(is_led, world, hosted, {1}, VICTIM))


@in_the_middle_of(BACK)
async def test_a_controller_killed_while_it_tells_a_returning_broker_is_succeeded(
    world: World, first: Contender, tmp_path: Path
) -> None:
    hosted = world.hosted_by(VICTIM)
    away = asyncio.get_running_loop().time()
    await world.unregister(VICTIM)
    await told(world, OTHERS, away)
    returned = asyncio.get_running_loop().time()
    await world.register(VICTIM)

    async def is_heard() -> bool:
        return any(ack.broker == VICTIM for ack in world.acks.since(returned))

    await until(is_heard)
    # no broker fetches here, so no leader asks for it to be in sync again
    await succeed(world, first, tmp_path, ALL, partial(is_led, world, hosted, {1}, VICTIM))


@in_the_middle_of(CREATION)
async def test_a_controller_killed_while_a_topic_is_created_is_succeeded(
    world: World, first: Contender, tmp_path: Path
) -> None:
    new = [(CREATED, number) for number in range(CREATED_PARTITIONS)]
    await world.create_topic(CREATED_PARTITIONS)

    async def has_begun() -> bool:
        return any(state is not None for state in await states(world, new[::100]))

    await until(has_begun)
    await succeed(world, first, tmp_path, ALL, partial(is_led, world, new, {0}, None))


@in_the_middle_of(SHUTDOWN)
async def test_a_controller_killed_while_a_broker_shuts_down_is_succeeded(
    world: World, first: Contender, tmp_path: Path
) -> None:
    hosted = world.hosted_by(LEAVING)
    order = f"shutdown {LEAVING} {await world.broker_epoch(LEAVING)}"
    asking = asyncio.create_task(first.order(order))

    async def has_begun() -> bool:
        return any(state is not None and LEAVING not in state.isr for state in await states(world, hosted[::50]))

    await until(has_begun)
    await succeed(world, first, tmp_path, ALL - {LEAVING}, partial(is_led, world, hosted, {1}, LEAVING))
    await asyncio.gather(asking, return_exceptions=True)  # answered before the kill, or never


@in_the_middle_of(FEW_REASSIGNED, REASSIGNMENT)
async def test_a_controller_killed_while_partitions_are_reassigned_is_succeeded(
    world: World, first: Contender, tmp_path: Path
) -> None:
    targets = {each: target_of(*each) for each in moved_in(world, REASSIGNMENT)}
    await world.reassign(targets)

    async def has_begun() -> bool:
        return any(state is not None and state.leader_epoch > 0 for state in await states(world, list(targets)[::10]))

    async def has_ended() -> bool:
        found = await states(world, list(targets))
        return await world.is_reassigned(targets) and all(
            state is not None and state.leader in wanted and set(state.isr) == set(wanted) and state.leader_epoch >= 2
            for state, wanted in zip(found, targets.values(), strict=True)
        )

    await until(has_begun)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.catch_up(targets))  # leaders catch up under every controller
        await succeed(world, first, tmp_path, ALL - {VICTIM, LEAVING}, has_ended)


@in_the_middle_of(SLOW)
async def test_a_controller_killed_while_a_broker_is_deaf_is_succeeded_and_that_broker_told_in_the_end(
    world: World, first: Contender, tmp_path: Path
) -> None:
    every = [(topic, number) for topic, count in world.topics.items() for number in range(count)]
    await world.deafen(DEAF)
    started = asyncio.get_running_loop().time()
    await world.zk.delete(CONTROLLER, -1)
    await told(world, ALL - {DEAF}, started)

    async def is_told_in_the_end() -> bool:
        heard = asyncio.get_running_loop().time()
        await world.hear(DEAF)
        await told(world, frozenset((DEAF,)), heard)
        return await is_led(world, every, {0}, None)

    await succeed(world, first, tmp_path, ALL - {DEAF}, is_told_in_the_end)


def test_every_row_of_the_bench_has_a_fault_in_its_middle() -> None:
    assert set(ROWS) == FAULTED
