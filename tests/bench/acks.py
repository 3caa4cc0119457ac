"""What the endpoints have acknowledged, and when: the only clock of the bench, the same for every controller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

#: a row is over when for so long nothing was acknowledged and the controller used less than this share of a core
QUIET_S = 1.5
IDLE_SHARE = 0.3
DEADLINE_S = 600.0
LEADER_AND_ISR = "leader-and-isr"
UPDATE_METADATA = "update-metadata"


class Ack(NamedTuple):
    """One request read whole and answered; `at` is monotonic, of the machine."""

    at: float
    broker: int
    kind: str
    size: int


class Row(NamedTuple):
    """A row as measured: seconds from its start to the last acknowledgement, and what was told in between."""

    seconds: float
    acks: Sequence[Ack]

    @property
    def bytes_told(self) -> int:
        return sum(ack.size for ack in self.acks)


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
        act: Callable[[], Awaitable[object]],
        told: Callable[[set[tuple[int, str]]], bool],
        is_done: Callable[[], Awaitable[bool]],
        cpu_s: Callable[[], float],
    ) -> Row:
        """Do `act` and measure until the last acknowledgement: all were `told`, ZooKeeper has it, nothing follows, and
        the controller is idle (one that still prepares what it will tell is not)."""
        started = time.monotonic()
        await act()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                acks, cpu_before_s = self.since(started), cpu_s()
                await asyncio.sleep(QUIET_S)
                is_idle = cpu_s() - cpu_before_s < IDLE_SHARE * QUIET_S
                is_over = is_idle and told({(ack.broker, ack.kind) for ack in acks}) and await is_done()
                if is_over and len(self.since(started)) == len(acks):
                    return Row(max(ack.at for ack in acks) - started, acks)
