"""The process's door to its controller: to whichever daemon runs now. Between two sessions there is none."""

from __future__ import annotations

from controller.core.cluster import Cluster
from controller.core.events import Event
from controller.core.lines import Line
from controller.daemon import Daemon, TermRecord
from controller.inbox import NotControllerError, Reply


class Door:
    """Keeps the interface `controller.api.view.ControllerDoor`."""

    def __init__(self) -> None:
        self._daemon: Daemon | None = None

    def open_to(self, daemon: Daemon | None) -> None:
        self._daemon = daemon

    @property
    def is_active(self) -> bool:
        return self._daemon is not None and self._daemon.is_active

    @property
    def controller_epoch(self) -> int | None:
        return None if self._daemon is None else self._daemon.controller_epoch

    @property
    def is_registered(self) -> bool:
        return self._daemon is not None and self._daemon.is_registered

    @property
    def phase(self) -> str:
        return "standby" if self._daemon is None else self._daemon.phase

    @property
    def since_ms(self) -> int | None:
        return None if self._daemon is None else self._daemon.since_ms

    @property
    def seat(self) -> tuple[int, int] | None:
        return None if self._daemon is None else self._daemon.seat

    @property
    def cluster(self) -> Cluster | None:
        return None if self._daemon is None else self._daemon.cluster

    def history(self) -> list[TermRecord]:
        return [] if self._daemon is None else self._daemon.history()

    async def resign(self, why: str) -> None:
        if self._daemon is not None:
            await self._daemon.resign(why)

    def lines_about(self, topic: str, partition: int) -> list[Line]:
        return [] if self._daemon is None else self._daemon.lines_about(topic, partition)

    async def ask(self, request: Event) -> Reply:
        if self._daemon is None:
            raise NotControllerError("this broker has no session with ZooKeeper now")
        return await self._daemon.ask(request)
