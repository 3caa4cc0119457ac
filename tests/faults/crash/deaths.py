"""Four operations in the simulator, and a process that dies in the middle of them at an await that was chosen.

Each operation says its own condition of the end; the checker's rules say the rest. The same seed is the
same run up to the death, so that the places that a run without one passed are those where one can die.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from controller.core.events import DrainAsked, UndrainAsked
from tests.faults.checker.verdict import report
from tests.faults.crash.awaits import Await, awaits_of
from tests.faults.simulate.cluster import SimCluster
from tests.faults.simulate.loop import nobody
from tests.faults.simulate.member import Member
from tests.faults.simulate.run import run
from tests.faults.story import Stage

BACK_AFTER_S: Final = 1.0
REPLICAS: Final = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}


class Operation(NamedTuple):
    """The events beforehand, the work that a process dies in, and the state that must be there after it."""

    prepare: Callable[[Stage], Awaitable[None]]
    begin: Callable[[Stage], Awaitable[None]]
    assert_done: Callable[[Stage], None]


async def _two_topics(stage: Stage) -> None:
    await stage.create("orders", REPLICAS)
    await stage.create("payments", {0: (1, 2), 1: (2, 3)})
    await stage.rest()


async def _delete(stage: Stage) -> None:
    stage.player.write("/admin/delete_topics/orders", b"")


def _is_deleted(stage: Stage) -> None:
    assert not stage.has("/brokers/topics/orders")
    assert not stage.has("/admin/delete_topics/orders")
    assert stage.has("/brokers/topics/payments")


async def _reassign(stage: Stage) -> None:
    wanted = b'{"topic":"payments","partition":0,"replicas":[3,1]},{"topic":"payments","partition":1,"replicas":[1]}'
    stage.player.write("/admin/reassign_partitions", b'{"version":1,"partitions":[' + wanted + b"]}")


def _is_reassigned(stage: Stage) -> None:
    assert stage.player.assignment("payments") == {0: [3, 1], 1: [1]}


async def _drain(stage: Stage) -> None:
    """By hand; the controller answers, or it is asked again."""
    drained = stage.others[0]
    while "ok" not in {one.outcome for one in stage.cluster.calls if one.what == "drain"}:
        await stage.ask(DrainAsked(drained), what="drain", subject=str(drained))
        await stage.pause(0.5)
    await stage.until(lambda: not _led_by(stage, drained), f"{drained} leads nothing")
    while drained in stage.player.drained_ids():
        await stage.ask(UndrainAsked(drained), what="undrain", subject=str(drained))
        await stage.pause(0.5)


def _led_by(stage: Stage, broker_id: int) -> list[tuple[str, int]]:
    keys = [(topic, number) for topic in ("orders", "payments") for number in stage.player.assignment(topic)]
    return [key for key in keys if (stage.state(*key) or {}).get("leader") == broker_id]


def _is_undrained(stage: Stage) -> None:
    assert stage.player.drained_ids() == []


async def _claim(stage: Stage) -> None:
    """Another has to: the one in the seat is gone for good, as far as it can tell."""
    stage.expire(stage.controller.broker_id)


def _is_claimed(stage: Stage) -> None:
    assert len(stage.cluster.active_ids) == 1


OPERATIONS: Final = {
    "deletion": Operation(_two_topics, _delete, _is_deleted),
    "reassignment": Operation(_two_topics, _reassign, _is_reassigned),
    "drain": Operation(_two_topics, _drain, _is_undrained),
    "claim": Operation(_two_topics, _claim, _is_claimed),
}


class Place(NamedTuple):
    """The n-th time, from 1, that the process passes an await."""

    at: Await
    time: int


class _Observer:
    """Counts the awaits that a process passes, and kills it at one of them."""

    def __init__(self, stage: Stage, place: Place | None) -> None:
        self.passed: Counter[Await] = Counter()
        self.within: set[Await] = set()
        self.has_died = False
        self._stage, self._place = stage, place

    def watch(self, member: Member) -> None:
        member.process.before_step = lambda task: self._on_step(member, task)

    def _on_step(self, member: Member, task: asyncio.Task[Any]) -> None:
        around = awaits_of(task)
        if not around or self.has_died:
            return
        place = around[-1]
        self.passed[place] += 1
        self.within.update(around)
        if self._place is not None and (place, self.passed[place]) == self._place:
            self.has_died = True
            cluster, broker_id = self._stage.cluster, member.broker_id
            cluster.fault(f"kill at {place}", broker_id, can_move_seat=True)
            cluster.kill(broker_id)
            # in no process's context: a timer of the dead never fires
            cluster.loop.call_later(BACK_AFTER_S, cluster.start, broker_id, context=nobody())


class Death(NamedTuple):
    """The awaits that a run passed, directly and within which others, whether a process died, and its findings."""

    passed: Counter[Await]
    within: set[Await]
    has_died: bool
    wrong: list[str]


def die(name: str, place: Place | None, *, victim: str = "controller") -> Death:
    """Play an operation; the process in the victim's role as it begins dies at the place. None: no death."""
    operation, observers = OPERATIONS[name], list[_Observer]()

    async def play(cluster: SimCluster, seed: str) -> None:
        stage = Stage(cluster, seed)
        await operation.prepare(stage)
        observer = _Observer(stage, place)
        observers.append(observer)
        ids = [stage.controller.broker_id] if victim == "controller" else stage.others
        for broker_id in ids:
            observer.watch(cluster.members[broker_id])
        await operation.begin(stage)
        await stage.rest()
        for member in cluster.members.values():
            member.process.before_step = None
        operation.assert_done(stage)

    try:
        outcome = run(f"crash {name}", play, brokers=3, balances=False)
    except AssertionError as error:
        return Death(observers[0].passed, observers[0].within, observers[0].has_died, [f"{error!r}"])
    wrong = list(report(outcome.history, outcome.findings)) if outcome.findings else []
    return Death(observers[0].passed, observers[0].within, observers[0].has_died, wrong)
