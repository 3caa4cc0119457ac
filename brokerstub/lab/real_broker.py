"""A real Kafka broker as the lab's HTTP side sees it: what `klamm kill` and the dashboard's buttons may do to it.

Signals and starts, nothing else: cuts, broken disks and held replicas are faults of stub brokers.
"""

from __future__ import annotations

import asyncio
from signal import Signals
from typing import NoReturn

from brokerstub.lab.bodies import ProcessRow, State
from brokerstub.lab.kafka import KafkaBroker
from brokerstub.lab.settings import LabError


class RealBroker:
    """Keeps the interface `brokerstub.lab.server.Suffering`."""

    def __init__(self, kafka: KafkaBroker) -> None:
        self.kafka = kafka
        self._after: State = "stopped"
        self._is_frozen = False
        self._thawing: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self.kafka.pid is not None

    @property
    def row(self) -> ProcessRow:
        state: State = ("frozen" if self._is_frozen else "running") if self.is_running else self._after
        log = str(self.kafka.directory / "kafka.log")
        return ProcessRow(f"broker-{self.kafka.broker_id}", self.kafka.pid, state, self.kafka.address, log=log)

    async def start(self) -> bool:
        if self.is_running:
            return False
        await self.kafka.launch()
        self._after = "exited"  # unless it is said to be otherwise
        return True

    async def stop(self) -> bool:
        if not self.is_running:
            return False
        self._thawed()
        await self.kafka.stop()
        self._after = "stopped"
        return True

    async def kill(self) -> bool:
        if not self.is_running:
            return False
        self._thawed()
        await self.kafka.kill()
        self._after = "killed"
        return True

    def freeze(self, for_ms: int | None = None) -> bool:
        if not self.is_running:
            raise LabError(f"broker {self.kafka.broker_id} does not run: start it first", "NOT_RUNNING")
        was_frozen = self._is_frozen
        self._thawed()
        self.kafka.send(Signals.SIGSTOP)
        self._is_frozen = True
        if for_ms is not None:
            self._thawing = asyncio.get_running_loop().call_later(for_ms / 1000, self.thaw)
        return not was_frozen

    def thaw(self) -> bool:
        was_frozen = self._is_frozen
        self._thawed()
        if was_frozen:
            self.kafka.send(Signals.SIGCONT)
        return was_frozen

    def cut(self, peer: int | None = None, *, one_way: bool = False) -> bool:
        self._cannot()

    def heal(self, peer: int | None = None) -> bool:
        self._cannot()

    def break_disk(self, index: int | None = None) -> bool:
        self._cannot()

    def mend_disk(self, index: int | None = None) -> bool:
        self._cannot()

    def hold(self, topic: str, partition: int) -> bool:
        self._cannot()

    def release(self, topic: str, partition: int) -> bool:
        self._cannot()

    def _cannot(self) -> NoReturn:
        raise LabError("a real broker can be killed, stopped, started, frozen and thawed here, no more", "NOT_POSSIBLE")

    def _thawed(self) -> None:
        self._is_frozen = False
        if self._thawing is not None:
            self._thawing.cancel()
            self._thawing = None
