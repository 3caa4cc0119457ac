"""The controller of one process, be it a broker or a dedicated controller: one builder for both, and their handle on
it.

The controller lives as long as the process. The state-change log, the meters, the handle and the known controller
epochs outlast sessions; each session gets a daemon, and each term its outboxes. A process says only in which ways it
differs.

The handle is the present daemon and the term that it holds, if any. Between two sessions there is no daemon, and on a
standby there is no term. Questions about a term go to the term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import structlog

from controller.base.bell import Bell
from controller.base.clock import wall_ms
from controller.base.config import LIMITS, BrokerConfig
from controller.core.belief.cluster import Cluster
from controller.core.model import Broker
from controller.loop.inbox import NotControllerError
from controller.seat.claim import Claim, KnownEpochs, release
from controller.seat.guard import TermGuard
from controller.statelog.journal import Journal
from controller.statelog.metrics import Meters
from controller.tell.dialects import Dialect
from controller.tell.outbox import Outboxes
from controller.term.daemon import Daemon
from controller.term.parts import OnAnswer, TermParts, close_at_end
from controller.term.term import Term
from controller.zookeeper.client import ZooKeeperClient
from controller.zookeeper.port import ZooKeeper, ZooKeeperError


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


#: for each of the two things that a process does about its seat before it ends
FAREWELL_S: Final = 2.5

#: opens the dialect of one term, and says how to close it; the guard's check is called before any byte leaves
OpenDialect = Callable[[Callable[[], None]], tuple[Dialect, Callable[[], Awaitable[None]]]]

log = structlog.get_logger()


class Controller:
    """`on_session` for each session with ZooKeeper; `say_farewell`, `give_up_seat` and `close` at the end."""

    def __init__(
        self,
        directory: Path,
        config: BrokerConfig,
        open_dialect: OpenDialect,
        *,
        obeyed_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        """`directory`: for the state-change log. `obeyed_epoch`: of the controller that this process obeys as a
        broker."""
        self._config = config
        self._open_dialect = open_dialect
        self.entropy = Random(SystemRandom().getrandbits(128))
        self.journal = Journal(directory / "state-change.log")
        self.meters = Meters()
        self.handle = Handle(self.journal, self.meters)
        self._epochs = KnownEpochs(obeyed_epoch)

    def parts_for(
        self,
        cluster_id: str,
        *,
        is_ours: Callable[[Broker], bool],
        yields_to_foreign_brokers: bool = False,
        is_dedicated: bool = False,
        is_preferred: bool | None = False,
        vetoes_against: Callable[[ZooKeeper], Awaitable[Sequence[str]]] | None = None,
    ) -> TermParts:
        """Returns the parts that every term of this process uses. `TermParts` says how processes differ."""
        config = self._config
        interval_s = config.leader_imbalance_check_interval_seconds
        return TermParts(
            cluster_id=cluster_id,
            open_outboxes=self._open_outboxes,
            journal=self.journal,
            limits=LIMITS,
            wall_ms=wall_ms,
            entropy=self.entropy,
            meters=self.meters,
            seat_changes=self.handle.seat_changes,
            epochs=self._epochs,
            is_ours=is_ours,
            yields_to_foreign_brokers=yields_to_foreign_brokers,
            is_dedicated=is_dedicated,
            is_preferred=is_preferred,
            vetoes_against=vetoes_against,
            unclean_default=config.unclean_leader_election_enable,
            delete_enabled=config.delete_topic_enable,
            imbalance_percentage=config.leader_imbalance_per_broker_percentage,
            balance_interval_s=interval_s if config.auto_leader_rebalance_enable else None,
        )

    @contextmanager
    def on_session(self, zk: ZooKeeperClient, own_id: int, parts: TermParts) -> Iterator[Daemon]:
        """The daemon of this session. The handle leads to it until the block ends."""
        zk.measure(lambda took_s: self.meters.zookeeper_answers.add(took_s * 1_000))
        daemon = Daemon(zk, own_id, parts)
        self.handle.open_to(daemon)
        try:
            yield daemon
        finally:
            self.handle.open_to(None)

    async def say_farewell(self) -> None:
        """Before the process ends: a term writes down that it ends by our own will."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self.handle.resign("shut down")
        except TimeoutError:
            log.warning("term.unrecorded")  # its successor will record the term's end as far as it knows

    async def give_up_seat(self, zk: ZooKeeper) -> None:
        """Before the session ends, so that no successor has to wait until it expires."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                if await release(zk, at_least=self._epochs.highest):
                    log.info("seat.released")
        except (ZooKeeperError, TimeoutError) as error:
            log.warning("seat.kept", reason=str(error) or "no answer")  # it goes with the session

    async def close(self) -> None:
        await self.journal.close()

    def _open_outboxes(
        self,
        claim: Claim,
        guard: TermGuard,
        group: asyncio.TaskGroup,
        on_fenced: Callable[[str], None],
        on_answer: OnAnswer,
    ) -> Outboxes:
        dialect, close = self._open_dialect(guard.check)
        group.create_task(close_at_end(close))
        return Outboxes(
            group,
            dialect,
            claim.broker_id,
            claim.controller_epoch,
            on_answer=on_answer,
            on_fenced=lambda: on_fenced("a broker obeys a later controller"),
            on_epoch=self._epochs.note,
            entropy=self.entropy,
        )
