"""Every harm that a schedule can draw, by its name: its hazard, its targets, its lengths, and its function.

The hazards F1 to F20 are those of the test plan: process, session, ZooKeeper, network, disk and clock faults. A harm
that has no target, or that an earlier fault makes impossible, is recorded as a miss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

from brokerstub.lab.http_proxy import GARBAGE
from brokerstub.lab.settings import LabError
from brokerstub.lab.zookeeper import ZooKeeperError
from tests.faults.chaos import links, primitives
from tests.faults.chaos.spoiling import spoil
from tests.faults.chaos.steps import STEPS, at_step
from tests.faults.chaos.target_cluster import Field, Injury
from tests.faults.chaos.tool import HANDS, READERS
from tests.faults.hostile import ON_THE_SEAT
from tests.faults.malformed_znodes import SPOILED
from tests.faults.operations import TOPICS
from tests.integration.cluster import Broker

Inflict = Callable[[Field, Broker, Random], Awaitable[Injury | None]]

ANYBODY: Final = ("controller", "controller", "leader", "other", "any")
MULTI: Final = 14


class Harm(NamedTuple):
    """A schedule draws from `roles` and `lengths_s`. The summary names the `hazards`."""

    hazards: str
    inflict: Inflict
    lengths_s: tuple[float, ...] = (0.0,)
    roles: tuple[str, ...] = ANYBODY
    can_move_seat: bool = True
    #: it falls on ZooKeeper, a znode, or the process that reaches a step, and not on the broker that it is aimed at
    falls_on_all: bool = False
    loses_lines: bool = False
    #: it is a hostile tool's, and notes itself, by the node that it falls on
    is_hostile: bool = False


def _on(primitive: Callable[[Field, Broker], Awaitable[Injury]]) -> Inflict:
    async def inflict(field: Field, broker: Broker, draw: Random) -> Injury:
        return await primitive(field, broker)

    return inflict


def _between(primitive: Callable[..., Awaitable[Injury]], **drawn: Callable[[Random], object]) -> Inflict:
    """Of that broker and a peer; in either direction."""

    async def inflict(field: Field, broker: Broker, draw: Random) -> Injury:
        pair = [broker, field.peer_of(broker, draw)]
        draw.shuffle(pair)
        return await primitive(field, *pair, **{name: one(draw) for name, one in drawn.items()})

    return inflict


async def _lose_disk(field: Field, broker: Broker, draw: Random) -> Injury:
    return await primitives.kill(field, broker, loses_disk=True)


async def _silence(field: Field, broker: Broker, draw: Random) -> Injury:
    return await links.silence(field, broker, draw.choice(("up", "down")))


async def _lose_answer(field: Field, broker: Broker, draw: Random) -> Injury:
    return await links.lose_answer(field, broker, draw.choice((None, MULTI)), skip=draw.randint(0, 2))


async def _lose_request(field: Field, broker: Broker, draw: Random) -> Injury:
    return await links.lose_request(field, broker, draw.choice((None, MULTI)), skip=draw.randint(0, 2))


async def _slow(field: Field, broker: Broker, draw: Random) -> Injury:
    return await links.slow_zookeeper(field, broker, draw.choice((20, 200)), draw.choice((20, 200, 600)))


async def _late(field: Field, broker: Broker, draw: Random) -> Injury:
    return await links.slow_zookeeper(field, broker, 0, draw.choice((100, 500, 1_500)))


async def _jump(field: Field, broker: Broker, draw: Random) -> Injury:
    return await primitives.jump_clock(field, broker, draw.choice((-86_400_000, -5_000, 5_000, 3_600_000)))


async def _break_disk(field: Field, broker: Broker, draw: Random) -> Injury:
    return await primitives.break_disk(field, broker, draw.randrange(2))


async def _restart_leader(field: Field, broker: Broker, draw: Random) -> Injury | None:
    leader = await field.zookeeper_leader()
    return None if leader is None else await primitives.restart_zookeeper(field, [leader])


async def _restart_minority(field: Field, broker: Broker, draw: Random) -> Injury:
    return await primitives.restart_zookeeper(field, [draw.choice(field.servers)])


async def _restart_majority(field: Field, broker: Broker, draw: Random) -> Injury:
    return await primitives.restart_zookeeper(field, draw.sample(field.servers, len(field.servers) // 2 + 1))


async def _end_zookeeper(field: Field, broker: Broker, draw: Random) -> Injury:
    return await primitives.restart_zookeeper(field, field.servers)


async def _freeze_zookeeper(field: Field, broker: Broker, draw: Random) -> Injury:
    leader = await field.zookeeper_leader()
    return await primitives.freeze_zookeeper(field, leader or draw.choice(field.servers))


async def _delete_seat(field: Field, broker: Broker, draw: Random) -> Injury:
    return await primitives.edit(field, "/controller", None)


async def _delete_registration(field: Field, broker: Broker, draw: Random) -> Injury:
    return await primitives.edit(field, f"/brokers/ids/{broker.broker_id}", None)


async def _write_nonsense(field: Field, broker: Broker, draw: Random) -> Injury:
    """Write nonsense to a path that tools write: malformed JSON, an unknown partition, or an invalid assignment."""
    topic = draw.choice(TOPICS)
    path, data = draw.choice([
        ("/admin/reassign_partitions", b"\xff{"),
        ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"none","partition":7,"replicas":[1]}]}'),
        ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"%s","partition":0,"replicas":[77]}]}'
         % topic.encode()),
        ("/admin/preferred_replica_election", b"[]"),
        ("/admin/delete_topics/nowhere", b""),
        ("/isr_change_notification/isr_change_0000000000", b"nonsense"),
        ("/log_dir_event_notification/log_dir_event_0000000000", b'{"version":1,"broker":99,"event":1}'),
    ])  # fmt: skip
    return await primitives.edit(field, path, data)


def _spoil(kind: str) -> Inflict:
    async def inflict(field: Field, broker: Broker, draw: Random) -> Injury | None:
        return await spoil(field, draw, kind)

    return inflict


def _step(name: str) -> Inflict:
    async def inflict(field: Field, broker: Broker, draw: Random) -> Injury | None:
        return await at_step(field, STEPS[name], draw)

    return inflict


HARMS: Final[dict[str, Harm]] = {
    "kill": Harm("F1", _on(primitives.kill), (0.2, 3.0, 8.0)),
    "kill with its disk": Harm("F1", _lose_disk, (1.0, 6.0)),
    "bounce": Harm("F18", _on(primitives.bounce)),
    "stop": Harm("", _on(primitives.stop), (0.5, 5.0)),
    "freeze": Harm("F2 F3", _on(primitives.freeze), (1.0, 2.5, 6.0, 9.0)),
    "starve": Harm("F20", _on(primitives.starve), (3.0, 6.0)),
    "expire": Harm("F4", _on(primitives.expire)),
    "cut": Harm("F5", _on(links.cut), (1.0, 3.0, 8.0)),
    "silence": Harm("F6", _silence, (2.0, 7.0)),
    "lose answer": Harm("F7", _lose_answer, (4.0,), ("controller",)),
    "lose request": Harm("F6", _lose_request, (4.0,), ("controller",)),
    "slow ZooKeeper": Harm("F10", _slow, (2.0, 5.0)),
    "late watches": Harm("F11", _late, (2.0, 5.0)),
    "restart ZooKeeper's leader": Harm("F8", _restart_leader, (0.0, 2.0), falls_on_all=True),
    "restart a minority of ZooKeeper": Harm("F8", _restart_minority, (0.0, 5.0), falls_on_all=True),
    "restart a majority of ZooKeeper": Harm("F8 F9", _restart_majority, (1.0, 6.0), falls_on_all=True),
    "end ZooKeeper": Harm("F9", _end_zookeeper, (0.5, 6.0), falls_on_all=True),
    "freeze ZooKeeper": Harm("F10", _freeze_zookeeper, (0.5, 3.0), falls_on_all=True),
    "cut link": Harm("F12", _between(links.cut_link), (1.0, 5.0), can_move_seat=False),
    "mute": Harm("F6 F14", _between(links.mute), (1.0, 5.0), can_move_seat=False),
    "slow link": Harm("F13", _between(links.slow_link, delay_ms=lambda draw: draw.choice((50, 900))), (3.0,),
                      can_move_seat=False),
    "lose HTTP answers": Harm("F7", _between(links.lose_http_answers, count=lambda draw: draw.randint(1, 4)), (4.0,),
                              can_move_seat=False),
    "double": Harm("F13", _between(links.double, count=lambda draw: draw.randint(1, 4)), (4.0,), can_move_seat=False),
    "garble": Harm("F15", _between(links.garble, kinds=lambda draw: draw.choices(sorted(GARBAGE), k=3)), (4.0,),
                   can_move_seat=False),
    "jump clock": Harm("F16", _jump, (4.0, 10.0), can_move_seat=False),
    "delete /controller": Harm("F17", _delete_seat, falls_on_all=True),
    "delete a registration": Harm("F17", _delete_registration),
    "write nonsense": Harm("F17", _write_nonsense, can_move_seat=False),
    **{kind: Harm("F17", _spoil(kind), (0.5, 4.0, 9.0), can_move_seat=False, falls_on_all=True) for kind in SPOILED},
    "block journal": Harm("F19", _on(primitives.block_journal), (3.0,), can_move_seat=False, loses_lines=True),
    "break disk": Harm("F19", _break_disk, (3.0, 8.0), can_move_seat=False),
    "exhaust files": Harm("F19", _on(primitives.exhaust_files), (3.0,), loses_lines=True),
    **{name: Harm("", _step(name), (1.0, 6.0), falls_on_all=True) for name in STEPS},
    **{name: Harm("", do, (3.0,) if name == READERS else (0.5, 4.0, 9.0), can_move_seat=name in ON_THE_SEAT,
                  falls_on_all=True, is_hostile=True)
       for name, do in HANDS.items()},
}  # fmt: skip


FALL_TIMEOUT_S: Final = 40.0


class Fallen(NamedTuple):
    """A fault in the timeline: its number, unless it notes itself, and its injury. The injury is None when the fault
    had no target or could not be inflicted."""

    number: int | None
    injury: Injury | None


async def fall(field: Field, name: str, role: str, draw: Random) -> Fallen | None:
    """Choose a target and inflict the harm. Returns None when no broker runs."""
    harm, broker = HARMS[name], field.broker(role, draw)
    if broker is None:
        return None
    broker_id = None if harm.falls_on_all else broker.broker_id
    number = None
    if not harm.is_hostile:
        target = f"{role} {broker.broker_id}"
        number = field.note(name, target, can_move_seat=harm.can_move_seat, broker_id=broker_id)
    with suppress(LabError, ZooKeeperError, TimeoutError, ProcessLookupError, FileNotFoundError):
        async with asyncio.timeout(FALL_TIMEOUT_S):
            return Fallen(number, await harm.inflict(field, broker, draw))
    return Fallen(number, None)  # an earlier fault makes it impossible
