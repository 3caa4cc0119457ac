"""The process's door to its controller: to whichever daemon runs now. Between two sessions there is none."""

from __future__ import annotations

from collections.abc import Mapping

from controller.base.bell import Bell
from controller.core.belief.cluster import Cluster
from controller.core.events import Event
from controller.core.model import Broker
from controller.core.project.lines import Line
from controller.loop.inbox import NotControllerError, Reply
from controller.statelog.journal import Journal
from controller.statelog.metrics import Meters
from controller.statelog.recent_lines import RecentLines
from controller.tell.outbox import OutboxStatus
from controller.term.daemon import Daemon, TermRecord


class Door:
    """Keeps the interface `controller.api.ports.ControllerDoor`."""

    def __init__(self, journal: Journal, meters: Meters) -> None:
        self.meters = meters
        self._journal = journal
        self._daemon: Daemon | None = None
        #: for the tools of every daemon, and for who waits for a controller
        self.seat_changes = Bell()

    def open_to(self, daemon: Daemon | None) -> None:
        self._daemon = daemon
        self.seat_changes.ring()

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
    def seat_trouble(self) -> str | None:
        return None if self._daemon is None else self._daemon.seat_trouble

    @property
    def cluster(self) -> Cluster | None:
        return None if self._daemon is None else self._daemon.cluster

    def history(self) -> list[TermRecord]:
        return [] if self._daemon is None else self._daemon.history()

    @property
    def strangers(self) -> dict[int, Broker]:
        return {} if self._daemon is None else self._daemon.strangers

    @property
    def unread(self) -> Mapping[str, str]:
        return {} if self._daemon is None else self._daemon.unread

    async def take_over(self) -> int:
        if self._daemon is None:
            raise NotControllerError("no session with ZooKeeper now")
        return await self._daemon.take_over()

    async def hand_back(self) -> None:
        if self._daemon is None:
            raise NotControllerError("no session with ZooKeeper now")
        await self._daemon.hand_back()

    async def resign(self, why: str) -> None:
        if self._daemon is not None:
            await self._daemon.resign(why)

    @property
    def recent_lines(self) -> RecentLines | None:
        return None if self._daemon is None else self._daemon.recent_lines

    def lines_about(self, topic: str, partition: int) -> list[Line]:
        return [] if self._daemon is None else self._daemon.lines_about(topic, partition)

    @property
    def lines_lost(self) -> int:
        return self._journal.lines_lost

    @property
    def lines_lost_lately(self) -> int:
        return self._journal.lines_lost_lately

    @property
    def inbox_depth(self) -> int:
        return 0 if self._daemon is None else self._daemon.inbox_depth

    def outboxes(self) -> dict[int, OutboxStatus]:
        return {} if self._daemon is None else self._daemon.outboxes()

    async def ask(self, request: Event) -> Reply:
        if self._daemon is None:
            raise NotControllerError("this broker has no session with ZooKeeper now")
        return await self._daemon.ask(request)
