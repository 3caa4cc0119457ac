"""The process's handle on its controller: whichever daemon runs now, and the term that it holds, if any.

Between two sessions there is no daemon, and on a standby there is no term. Questions about a term go to the term.
"""

from __future__ import annotations

from controller.base.bell import Bell
from controller.core.belief.cluster import Cluster
from controller.loop.inbox import NotControllerError
from controller.statelog.journal import Journal
from controller.statelog.metrics import Meters
from controller.term.daemon import Daemon
from controller.term.term import Term


class Handle:
    """Keeps the interface `controller.api.ports.ControllerHandle`."""

    def __init__(self, journal: Journal, meters: Meters) -> None:
        self.meters = meters
        self._journal = journal
        self._daemon: Daemon | None = None
        #: for the parts of every term, and for waiters for a controller
        self.seat_changes = Bell()

    def open_to(self, daemon: Daemon | None) -> None:
        self._daemon = daemon
        self.seat_changes.ring()

    @property
    def term(self) -> Term | None:
        return None if self._daemon is None else self._daemon.term

    @property
    def cluster(self) -> Cluster | None:
        term = self.term
        return term.cluster if term is not None and term.is_loaded else None

    @property
    def is_active(self) -> bool:
        return self.cluster is not None

    @property
    def phase(self) -> str:
        if self.term is None:
            return "standby"
        return "active" if self.is_active else "loading"

    @property
    def controller_epoch(self) -> int | None:
        term = self.term
        return None if term is None else term.controller_epoch

    @property
    def is_registered(self) -> bool:
        return self._daemon is not None and self._daemon.is_registered

    @property
    def seat(self) -> tuple[int, int] | None:
        return None if self._daemon is None else self._daemon.seat

    @property
    def seat_trouble(self) -> str | None:
        return None if self._daemon is None else self._daemon.seat_trouble

    @property
    def lines_lost(self) -> int:
        return self._journal.lines_lost

    @property
    def lines_lost_lately(self) -> int:
        return self._journal.lines_lost_lately

    async def take_over(self) -> int:
        return await self._running().take_over()

    async def hand_back(self) -> None:
        await self._running().hand_back()

    async def resign(self, why: str) -> None:
        """Before this process ends a term by its own will: its record says so."""
        term = self.term
        if term is not None:
            await term.resign(why)

    def _running(self) -> Daemon:
        if self._daemon is None:
            raise NotControllerError("no session with ZooKeeper now")
        return self._daemon
