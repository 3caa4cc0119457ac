"""The target of faults: a cluster of real processes, its ZooKeeper, and the current role of each process.

It records for the checker which faults fell when, and keeps observing ZooKeeper, so that a fault can be aimed while
ZooKeeper does not answer. It inflicts nothing itself: `primitives.py` does.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from kazoo.exceptions import KazooException, NoNodeError

from brokerstub.identity import SavedSession
from brokerstub.lab.settings import LabError
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.faults.checker.history import Fault, json_of
from tests.integration.cluster import Broker, Cluster, now_ms

LOOK_EVERY_S: Final = 0.25
LOOK_TIMEOUT_S: Final = 5.0
STANDS_WITHIN_S: Final = 2.0


async def _nothing() -> None:
    """There is nothing to be undone."""


@dataclass
class Injury:
    """A fault that fell. `has_hit` says, at the latest after `heal`, whether anything felt it."""

    kind: str
    target: str
    has_hit: Callable[[], bool]
    heal: Callable[[], Awaitable[None]] = _nothing


@dataclass(eq=False)
class Field:
    """One cluster under fire."""

    cluster: Cluster
    servers: list[ZooKeeperServer]
    faults: list[Fault] = field(default_factory=list)
    seat_id: int | None = None
    #: topic -> partition -> replicas, as ZooKeeper had it when it was last seen
    assignments: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    #: topics in the middle of a reassignment, and of a deletion
    moving: set[str] = field(default_factory=set)
    doomed: set[str] = field(default_factory=set)
    leader_ids: Counter[int] = field(default_factory=Counter)
    #: znodes that are malformed now, and how each is put right
    spoiled: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)

    # ------------------------------------------------------------------ roles

    @property
    def broker_ids(self) -> list[int]:
        return list(self.cluster.brokers)

    def broker(self, role: str, draw: Random) -> Broker | None:
        """Return the running broker in this role: the active controller, the leader of most partitions, another broker,
        or any. Returns None when no broker runs."""
        running = {one.broker_id: one for one in self.cluster.running}
        if not running:
            return None
        chosen = draw.choice(sorted(running))
        if role == "controller":
            chosen = self.seat_id if self.seat_id in running else chosen
        elif role == "leader":
            leading = [one for one, _ in self.leader_ids.most_common() if one in running]
            chosen = leading[0] if leading else chosen
        elif role == "other":
            others = sorted(running.keys() - {self.seat_id})
            chosen = draw.choice(others) if others else chosen
        return running[chosen]

    def peer_of(self, broker: Broker, draw: Random) -> Broker:
        return self.cluster.brokers[draw.choice([one for one in self.broker_ids if one != broker.broker_id])]

    async def zookeeper_leader(self) -> ZooKeeperServer | None:
        for server in self.servers:
            if server.pid is not None and await server.mode() in ("leader", "standalone"):
                return server
        return None

    async def restore(self) -> None:
        """Everything works again, everybody runs again, everything makes sense again."""
        for server in self.servers:
            await server.launch()
            server.thaw()
        for broker in self.cluster.brokers.values():
            broker.thaw()
            broker.heal()
            broker.jump(0)
            broker.mend_disk()
            for proxy in broker.proxies:
                proxy.heal()
                proxy.thaw()
                proxy.disarm()
                proxy.delay_ms = {"up": 0, "down": 0}
            if broker.state != "running":
                await broker.start()
            give_files(broker.row.pid)
        for way in self.cluster.peers.ways.values():
            way.disarm()
            way.delay_ms = {"up": 0, "down": 0}
        for put_right in list(self.spoiled.values()):
            await put_right()

    # ------------------------------------------------------------------ the record of faults

    def note(self, kind: str, target: object = "", *, can_move_seat: bool = False, broker_id: int | None = None) -> int:
        """Record a fault and return its number. `settle` takes the number when the fault is over."""
        self.faults.append(Fault(now_ms(), kind, str(target), can_move_seat, broker_id))
        return len(self.faults) - 1

    def settle(self, number: int, *, has_missed: bool) -> None:
        """A fault is over. One that nothing felt explains nothing."""
        noted = self.faults[number]
        can_move_seat = noted.can_move_seat and not has_missed
        self.faults[number] = noted._replace(can_move_seat=can_move_seat, lasts_ms=now_ms() - noted.at_ms)

    async def look(self) -> None:
        """Observe the roles and the operations in progress, again and again, until cancelled."""
        while True:
            with suppress(KazooException, TimeoutError):
                async with asyncio.timeout(LOOK_TIMEOUT_S):
                    await self._look_once()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look_once(self) -> None:
        read = self.cluster.zookeeper
        seat = await _data_of(read, "/controller")
        self.seat_id = None if seat is None else seat.get("brokerid")
        assignments, moving = {}, set()
        for topic in await read("get_children", "/brokers/topics"):
            said = await _data_of(read, f"/brokers/topics/{topic}")
            if said:
                assignments[topic] = {int(number): replicas for number, replicas in said["partitions"].items()}
                if said.get("adding_replicas") or said.get("removing_replicas"):
                    moving.add(topic)
        self.assignments, self.moving = assignments, moving
        with suppress(NoNodeError):
            self.doomed = set(await read("get_children", "/admin/delete_topics"))
        for broker in self.cluster.running:
            page = await broker.get("/v1/partitions?limit=200")
            if page is not None and "items" in page:  # readers in hundreds leave no room for us
                self.leader_ids = Counter(row["leader"] for row in page["items"] if row["leader"] >= 0)
                break

    def session_of(self, broker: Broker) -> SavedSession:
        """Its session, as it keeps it for its next start."""
        try:
            return msgspec.json.decode((broker.folder / "session").read_bytes(), type=SavedSession)
        except FileNotFoundError:
            raise LabError(f"broker {broker.broker_id} has no session yet") from None


async def _data_of(read: Callable[..., Awaitable[Any]], path: str) -> Any:
    try:
        data, _ = await read("get", path)
    except NoNodeError:
        return None
    return json_of(data)


def give_files(pid: int | None) -> None:
    """It may have as many open as we may."""
    if pid is not None:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))


def is_stopped(pid: int | None) -> bool:
    """Whether the kernel lets a process run no more."""
    try:
        return pid is not None and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:  # killed meanwhile
        return False


async def stands(pid: int | None) -> bool:
    """Whether it comes to stand: a signal takes a moment."""
    end = time.monotonic() + STANDS_WITHIN_S
    while not (stopped := is_stopped(pid)) and time.monotonic() < end:  # noqa: ASYNC110 - no event exists
        await asyncio.sleep(0.002)
    return stopped


async def elapse(seconds: float) -> None:
    """Let real time pass: the length of a fault, which nothing else tells the end of."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:  # noqa: ASYNC110 - it is the time itself that is waited for
        await asyncio.sleep(left)
