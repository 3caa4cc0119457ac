"""The third lab: the client that the simulation's processes have (`tests/faults/simulate/client.py`).

The suite runs on a loop that real servers need, too, so this lab's time is that loop's. All of the suite applies to it:
the client asks a loop for timers and the time, and virtual time changes only how long they take.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, cast

from controller.zookeeper.port import ZooKeeper
from tests.fakes.acls import Grant
from tests.faults.simulate.client import SimClient
from tests.faults.simulate.loop import Clock, Process, VirtualLoop
from tests.faults.simulate.zookeeper import TICK_S, SimZooKeeper

_numbers = itertools.count(1)


class SimLab:
    def __init__(self) -> None:
        self.chroot = f"/contract-{next(_numbers)}"
        self._loop = cast(VirtualLoop, asyncio.get_running_loop())
        self._clock = Clock(self._loop)
        self.server = SimZooKeeper(self._clock)
        self.server.seed({self.chroot: b""})
        self._ticking = asyncio.create_task(self._tick())

    async def connect(self, **options: Any) -> SimClient:
        number = len(self.server.clients)
        given = {"chroot": self.chroot, "session_timeout_ms": 4000, **options}
        return self.server.connect_for(Process(f"client {number}", self._loop), random=Random(number), **given)

    async def set_acl(self, path: str, *grants: Grant) -> None:
        self.server.set_acl(self.chroot + path, *grants)

    def cut(self, client: ZooKeeper) -> None:
        _simulated(client).refuse()

    def heal(self, client: ZooKeeper) -> None:
        _simulated(client).heal()

    def lose_answer(self, client: ZooKeeper) -> None:
        _simulated(client).lose_next_answer()

    def lose_request(self, client: ZooKeeper) -> None:
        _simulated(client).lose_next_request()

    def hold(self, client: ZooKeeper) -> None:
        _simulated(client).cut()

    def release(self, client: ZooKeeper) -> None:
        _simulated(client).join()

    async def close(self) -> None:
        for client in list(self.server.clients):
            client.lose()
        self._ticking.cancel()
        with suppress(asyncio.CancelledError):
            await self._ticking

    async def _tick(self) -> None:
        """As in a simulated cluster: a client that is heard pings, one that is not expires."""
        while True:
            await asyncio.sleep(TICK_S)
            self._clock.tick()


def _simulated(client: ZooKeeper) -> SimClient:
    assert isinstance(client, SimClient)
    return client


@asynccontextmanager
async def sim_lab() -> AsyncIterator[SimLab]:
    lab = SimLab()
    try:
        yield lab
    finally:
        await lab.close()
