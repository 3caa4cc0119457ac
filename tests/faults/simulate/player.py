"""Acts on a simulated cluster as a client, a tool or fate does: in roles, and with time-outs. It draws nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from controller.core.events import Event, UndrainAsked
from controller.core.operations import Create
from controller.loop.inbox import BusyError, NotControllerError, OutcomesReply
from tests.faults.checker.history import json_of, object_of
from tests.faults.simulate.cluster import SimCluster
from tests.faults.simulate.member import Member

CALL_TIMEOUT_S: Final = 10.0
FINISH_TRIES: Final = 30
NOTHING: Final[frozenset[tuple[str, int]]] = frozenset()


async def pause(cluster: SimCluster, seconds: float) -> None:
    """Let virtual time pass."""
    over: asyncio.Future[None] = cluster.loop.create_future()
    cluster.loop.call_later(seconds, over.set_result, None)
    await over


class Player:
    """Carries a schedule out on a cluster."""

    def __init__(self, cluster: SimCluster, seed: str) -> None:
        self.cluster = cluster
        self.random = Random(f"{seed} schedule")
        self._asked: list[asyncio.Task[None]] = []

    async def finish(self) -> None:
        """Wait until every call has its answer, and end all drains by hand: a drained broker does not come back into
        ISRs."""
        await asyncio.gather(*self._asked)
        for _ in range(FINISH_TRIES):
            drained_ids = sorted({*self.drained_ids(), *self._believed_to_drain()})
            if not drained_ids:
                break
            for broker_id in drained_ids:
                await self.ask("undrain", str(broker_id), UndrainAsked(broker_id))
            await pause(self.cluster, 1.0)

    def drained_ids(self) -> list[int]:
        nodes = self.cluster.zookeeper.tree.nodes
        parent = nodes.get("/klamm/draining")
        names = sorted(parent.children) if parent is not None else []
        return [int(name) for name in names if object_of(nodes[f"/klamm/draining/{name}"].data).get("by") == "hand"]

    def _believed_to_drain(self) -> Iterator[int]:
        """By hand, in the belief of a controller: a tool may have removed the note of a drain that the term goes by."""
        for broker_id in self.cluster.active_ids:
            believed = self.cluster.members[broker_id].handle.cluster
            drains = {} if believed is None else believed.duties.drains
            yield from (one for one, drain in drains.items() if not drain.is_shutdown)

    # ------------------------------------------------------------------ roles

    def some(self, draw: Random) -> Member | None:
        """Return the target of a fault: half of the time the active controller."""
        cluster = self.cluster
        running = sorted(cluster.members)
        if not running:
            return None
        aimed = cluster.seat_id if draw.random() < 0.5 else draw.choice(running)
        return cluster.members.get(aimed if aimed in cluster.members else draw.choice(running))

    @property
    def broker_ids(self) -> range:
        return self.cluster.broker_ids

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        self.cluster.loop.call_later(seconds, do)

    # ------------------------------------------------------------------ operations

    def begin(self, what: str, subject: str, event: Event) -> None:
        """Ask without waiting; `finish` does."""
        self._asked.append(self.cluster.loop.create_task(self.ask(what, subject, event)))

    async def ask(self, what: str, subject: str, event: Event) -> None:
        """Ask the active controller as a client does, with a time-out."""
        cluster = self.cluster
        number = cluster.call_begun(what, subject, event)
        outcome, refused = "refused", NOTHING
        for member in [m for _, m in sorted(cluster.members.items()) if m.handle.is_active]:
            asking = member.process.start(_answer_of(member, event))
            done, _ = await asyncio.wait([asking], timeout=CALL_TIMEOUT_S)
            outcome, refused = asking.result() if done else ("unknown", NOTHING)
            break
        cluster.call_ended(number, outcome, refused)

    def assignment(self, topic: str) -> dict[int, list[int]]:
        said: Any = json_of(self.cluster.zookeeper.read(f"/brokers/topics/{topic}") or b"")
        return {int(n): replicas for n, replicas in said["partitions"].items()} if said else {}

    def write(self, path: str, data: bytes) -> None:
        """As a tool of Kafka's does, if it can."""
        if path not in self.cluster.zookeeper.tree.nodes:
            self.cluster.zookeeper.commit(0, [Create(path, data)])


async def _answer_of(member: Member, event: Event) -> tuple[str, frozenset[tuple[str, int]]]:
    """With the partitions that were refused each for itself."""
    try:
        reply = await member.ask(event)
    except (NotControllerError, BusyError):
        return "refused", NOTHING
    if reply.is_unknown:
        return "unknown", NOTHING
    outcomes = reply.outcomes if isinstance(reply, OutcomesReply) else ()
    refused = frozenset((one.topic, one.partition) for one in outcomes if one.code != 0)
    return "ok" if reply.code == 0 else "refused", refused
