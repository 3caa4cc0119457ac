"""Faults at a step: a proxy stops a process's message at that very point, and the process is hit meanwhile.

A step is a moment in the work of a controller that no clock could aim at. The stopped message shows which process
reached the step. When no process reaches it in time, the fault missed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

from kazoo.exceptions import KazooException

from tests.faults.chaos import links, primitives
from tests.faults.chaos.target_cluster import LOOK_EVERY_S, Field, Injury
from tests.integration.cluster import Broker

STEP_WAIT_S: Final = 10.0
#: the kind of fault that names the process that reached a step, and how long the fault lasted
HIT: Final = "hit at a step"
MULTI, MULTI_READ = 14, 22

#: the possible faults at a step; a kill is drawn more often than the others
BLOWS: Final[Mapping[str, Callable[[Field, Broker], Awaitable[Injury]]]] = {
    "kill": primitives.kill,
    "freeze": primitives.freeze,
    "expire": primitives.expire,
    "cut": links.cut,
}
BLOW_DRAWS: Final = ("kill", "kill", "freeze", "expire", "cut")


class Step(NamedTuple):
    """`arm` sets the traps and returns, for each broker, the events that a trap sets. A step with `is_there` needs no
    trap: the function is polled."""

    name: str
    arm: Callable[[Field, Random], Mapping[Broker, list[asyncio.Event]]]
    needs_a_claim: bool = False
    is_there: Callable[[Field], bool] | None = None


def _controllers_multi(kind: str) -> Callable[[Field, Random], Mapping[Broker, list[asyncio.Event]]]:
    def arm(field: Field, draw: Random) -> Mapping[Broker, list[asyncio.Event]]:
        broker, skip = field.broker("controller", draw), draw.randint(0, 3)
        if broker is None:
            return {}
        return {broker: [getattr(proxy, kind)(MULTI, skip=skip) for proxy in broker.proxies]}

    return arm


def _claimants(kind: str, opcode: int) -> Callable[[Field, Random], Mapping[Broker, list[asyncio.Event]]]:
    """Return a function that sets traps on the standbys. A standby writes a transaction only to claim the seat, and
    reads many nodes only to load."""

    def arm(field: Field, draw: Random) -> Mapping[Broker, list[asyncio.Event]]:
        standbys = [one for one in field.cluster.running if one.broker_id != field.seat_id]
        return {one: [getattr(proxy, kind)(opcode) for proxy in one.proxies] for one in standbys}

    return arm


def _while_telling(field: Field, draw: Random) -> Mapping[Broker, list[asyncio.Event]]:
    broker = field.broker("controller", draw)
    if broker is None:
        return {}
    way = field.cluster.peers.ways[broker.broker_id, field.peer_of(broker, draw).broker_id]
    return {broker: [way.drop_request(draw.choice(("/rpc/v1/leader-and-isr", "/rpc/v1/update-metadata", "/rpc/")))]}


def _nothing(field: Field, draw: Random) -> Mapping[Broker, list[asyncio.Event]]:
    return {}


STEPS: Final = {
    one.name: one
    for one in (
        Step("as it commits", _controllers_multi("drop_request")),
        Step("between commit and tell", _controllers_multi("lose_answer")),
        Step("while it tells", _while_telling),
        Step("as it claims", _claimants("lose_answer", MULTI), needs_a_claim=True),
        Step("between claim and load", _claimants("drop_request", MULTI_READ), needs_a_claim=True),
        Step("in the middle of a reassignment", _nothing, is_there=lambda field: bool(field.moving)),
        Step("in the middle of a deletion", _nothing, is_there=lambda field: bool(field.doomed)),
    )
}


async def at_step(field: Field, step: Step, draw: Random) -> Injury | None:
    """Wait until a process reaches the step, and hit it there. Returns None when none did."""
    blow = draw.choice(BLOW_DRAWS)
    traps = step.arm(field, draw)
    first = None
    if step.needs_a_claim:
        seat = field.broker("controller", draw)
        if seat is None or not traps:
            return None
        field.note(f"kill for: {step.name}", seat.broker_id, can_move_seat=True, broker_id=seat.broker_id)
        first = await primitives.kill(field, seat)
    try:
        if traps and not step.needs_a_claim:
            await _provoke(field, draw)
        victim = await _who_reaches(field, step, traps, draw)
    finally:
        _disarm(field, [one for happened in traps.values() for one in happened])
    if victim is None:
        if first is not None:
            await first.heal()
        return None
    hit = field.note(HIT, f"{step.name}: {blow} {victim.broker_id}", broker_id=victim.broker_id)
    injury = await BLOWS[blow](field, victim)

    async def heal() -> None:
        await injury.heal()
        field.settle(hit, has_missed=False)
        if first is not None:
            await first.heal()

    return Injury(f"{step.name}: {blow}", injury.target, injury.has_hit, heal)


async def _provoke(field: Field, draw: Random) -> None:
    """Something to commit and to tell: a topic made as Kafka's older tools make one."""
    said = {"version": 1, "partitions": {"0": draw.sample(field.broker_ids, 3)}}
    path = f"/brokers/topics/provoked-{draw.randrange(1 << 30)}"
    with suppress(KazooException, TimeoutError):
        async with asyncio.timeout(STEP_WAIT_S):
            await field.cluster.zookeeper("create", path, json.dumps(said).encode())


async def _who_reaches(
    field: Field, step: Step, traps: Mapping[Broker, list[asyncio.Event]], draw: Random
) -> Broker | None:
    try:
        async with asyncio.timeout(STEP_WAIT_S):
            while True:
                if step.is_there is not None and step.is_there(field):
                    return field.broker("controller", draw)
                for broker, happened in traps.items():
                    if any(one.is_set() for one in happened):
                        return broker if broker.state == "running" else None
                await asyncio.sleep(0.001 if traps else LOOK_EVERY_S)
    except TimeoutError:
        return None


def _disarm(field: Field, traps: list[asyncio.Event]) -> None:
    ways = field.cluster.peers.ways.values()
    for proxy in (*ways, *(proxy for broker in field.cluster.brokers.values() for proxy in broker.proxies)):
        if traps:
            proxy.disarm(*traps)
