"""The acknowledgements of the endpoints, and when: the only clock of the bench, the same for every controller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

#: a row is over when for so long nothing was acknowledged and the controller used less than this share of a core
QUIET_S = 1.5
IDLE_SHARE = 0.3
DEADLINE_S = 600.0
LEADER_AND_ISR = "leader-and-isr"
UPDATE_METADATA = "update-metadata"


class OverdueError(Exception):
    """A wait was in vain; the message names the missing acknowledgements, and how long the bench waited."""


class Ack(NamedTuple):
    """One request read whole and answered; `at` is monotonic, of the machine."""

    at: float
    broker: int
    kind: str
    size: int


class Row(NamedTuple):
    """A row as measured: seconds from its start to the last acknowledgement, and the requests in between.

    `cpu_s` is the CPU time of the controller's process until it was idle again: other work on the machine adds little
    to it.
    """

    seconds: float
    acks: Sequence[Ack]
    cpu_s: float | None = None

    @property
    def bytes_told(self) -> int:
        return sum(ack.size for ack in self.acks)


@asynccontextmanager
async def within(seconds: float, what: Callable[[], str]) -> AsyncIterator[None]:
    """Every wait of the bench has an end. `what` returns the missing acknowledgements for the message."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise OverdueError(f"waited {seconds:.0f} s for {what()}; the logs are in var/bench") from None


class Acks:
    """Takes in the endpoints' lines."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._acks: list[Ack] = []

    async def follow(self) -> None:
        while line := await self._stream.readline():
            at, broker, kind, size = line.split()
            self._acks.append(Ack(float(at), int(broker), kind.decode(), int(size)))

    def since(self, started: float) -> list[Ack]:
        return [ack for ack in self._acks if ack.at >= started]

    async def row(
        self,
        name: str,
        act: Callable[[], Awaitable[object]],
        wanted: set[tuple[int, str]],
        is_done: Callable[[], Awaitable[bool]],
        cpu_s: Callable[[], float],
    ) -> Row:
        """Do `act` and measure until the last acknowledgement: all that is `wanted` was told, ZooKeeper has it, no
        request follows, and the controller is idle (one that still prepares requests is not)."""
        started, used_s = time.monotonic(), cpu_s()
        missing = "what it begins with"
        async with within(DEADLINE_S, lambda: f"{name}: {missing}"):
            await act()
            while True:
                acks, cpu_before_s = self.since(started), cpu_s()
                await asyncio.sleep(QUIET_S)
                untold = sorted(wanted - {(ack.broker, ack.kind) for ack in acks})
                if untold:
                    missing = f"acknowledgements {untold}"
                elif cpu_s() - cpu_before_s >= IDLE_SHARE * QUIET_S:
                    missing = "the controller to be idle"
                elif not await is_done():
                    missing = "ZooKeeper to have what it is about"
                elif len(self.since(started)) == len(acks):
                    return Row(max(ack.at for ack in acks) - started, acks, cpu_s() - used_s)
                else:
                    missing = "the acknowledgements to end"
