"""A term: one stretch as the active controller, with one epoch. This module starts and ends it.

Everything a term uses is built here and lives in one TaskGroup: nothing outlives it, nothing is carried into the next.
It ends when it is fenced, when the session is lost, when our own clock says that the session may be gone (the guard),
or by a bug; leaving the scope is all it takes.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import structlog

from controller.base.bell import Bell
from controller.core.belief.cluster import Cluster
from controller.core.decide.startup import epochs_in, found_states
from controller.core.events import (
    DrainAsked,
    Event,
    LogDirsSeen,
    StatesSeen,
    TermStarted,
    TermTold,
    TimePassed,
)
from controller.core.formats import TermZnode
from controller.core.model import Broker
from controller.core.project.lines import Line, Stamp, phase_line
from controller.core.project.znodes import CONTROLLER_EPOCH, TERMS
from controller.loop.inbox import BusyError, Inbox, Reply
from controller.loop.loop import Loop
from controller.loop.reader import Loaded, Reader
from controller.loop.store import FencedError, Store
from controller.loop.watched_nodes import LOOK_EVERY_S
from controller.loop.watches import Watches
from controller.seat.claim import WITNESSED_MAX, Claim, SeatTroubleError, read_seat
from controller.seat.guard import TermGuard
from controller.statelog.journal import RecentLines
from controller.tell.outbox import OutboxStatus
from controller.term.parts import OnAnswer, Outboxes, TermParts
from controller.zookeeper.layout import keep_paths
from controller.zookeeper.port import (
    DeadlinePassedError,
    NoAuthError,
    NotSentError,
    OutcomeUnknownError,
    SessionLostError,
    SessionState,
    ZooKeeper,
    connected,
)

__all__ = ["ForeignBrokersError", "OnAnswer", "Outboxes", "Term", "TermParts", "TermRecord", "first_cause"]

log = structlog.get_logger()

TICK_S = 1.0
#: Kafka's own: the first automatic preferred election after a start
FIRST_BALANCE_S = 5.0


class TermRecord(msgspec.Struct, frozen=True):
    """A term as written down."""

    controller_epoch: int
    broker_id: int
    from_ms: int
    to_ms: int | None
    why: str | None
    phases: dict[str, float]

    @classmethod
    def of(cls, epoch: int, record: TermZnode) -> TermRecord:
        return cls(epoch, record.broker_id, record.from_ms, record.to_ms, record.why, record.phases)


class ForeignBrokersError(Exception):
    """This process cannot lead this cluster: nothing was written, and others may have the seat."""


class _RingingJournal:
    """Stands beside the journals: every change of belief is recorded at once, whether it makes a line or not."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell

    def accept(self, lines: Sequence[Line]) -> None:
        self._bell.ring()


class Term:
    """Holds the seat that was won, until something ends it."""

    def __init__(
        self, zk: ZooKeeper, claim: Claim, parts: TermParts, seat_changed: asyncio.Event, noticed_at: float
    ) -> None:
        self.claim = claim
        self.is_loaded = False
        #: why it ended, when it ended by itself
        self.why_over = ""
        #: whether it ended because a broker obeys a later controller
        self.is_refused_by_brokers = False
        self._is_starting = True
        self.guard = TermGuard(lambda: zk.deadline, parts.clock, parts.sleep)
        self.cluster = Cluster(
            controller_id=claim.broker_id,
            controller_epoch=claim.controller_epoch,
            unclean_default=parts.unclean_default,
            delete_enabled=parts.delete_enabled,
            imbalance_percentage=parts.imbalance_percentage,
            is_dedicated=parts.is_dedicated,
            asking_ms=zk.session_timeout_ms,
        )
        self.phases: dict[str, float] = {}
        self.recent_lines = RecentLines(claim.controller_epoch)
        #: rung whenever belief has changed, and when the term is over
        self.believed = Bell()
        self._noticed_at = noticed_at
        self._began_at = parts.clock()
        self._zk = zk
        self._parts = parts
        self._seat_changed = seat_changed
        self._inbox = Inbox(parts.limits, parts.meters)
        self.outboxes: Outboxes | None = None
        self._reader = Reader(zk, parts.is_ours)
        self._watches = Watches(zk, self._inbox, self._reader)

    @property
    def controller_epoch(self) -> int:
        return self.claim.controller_epoch

    @property
    def since_ms(self) -> int:
        """When it began, by the wall clock: for people."""
        return self.claim.claimed_at_ms

    @property
    def age_ms(self) -> int:
        """For how long it has lasted, by the monotonic clock."""
        return round((self._parts.clock() - self._began_at) * 1_000)

    @property
    def foreign_brokers(self) -> dict[int, Broker]:
        """Registered brokers that this process cannot speak to."""
        return self._reader.foreign_brokers

    @property
    def unread(self) -> Mapping[str, str]:
        """Znodes that are left out because they may not be read or are malformed, and why."""
        return self._reader.unread.troubles

    @property
    def is_over(self) -> bool:
        return self.guard.reason is not None

    async def told(self) -> None:
        """Returns when every broker has acknowledged all earlier decisions, or is gone."""
        if self.outboxes is not None:
            await self.outboxes.settled()

    def history(self) -> list[TermRecord]:
        """Terms that are known, the oldest first; none before belief is loaded."""
        if not self.is_loaded:
            return []
        return [TermRecord.of(epoch, record) for epoch, record in sorted(self.cluster.duties.terms.items())]

    def outbox_status(self) -> dict[int, OutboxStatus]:
        """Returns the backlogs of brokers, by broker id."""
        return {} if self.outboxes is None else self.outboxes.status()

    @property
    def inbox_depth(self) -> int:
        return self._inbox.depth

    async def hold(self) -> str:
        """Act as the controller; returns why the term ended. A bug comes out as an exception."""
        self._watches.open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._end_when_time_is_over())
                group.create_task(self._end_when_deposed())
                group.create_task(self._end_when_session_is_lost())
                outboxes = self._parts.open_outboxes(self.claim, self.guard, group, self._refuse, self._inbox.put)
                group.create_task(self._lead(outboxes))
                group.create_task(self._tick())
                group.create_task(self._look_again())
                group.create_task(keep_paths(self._zk, self._parts.cluster_id, self._parts.sleep))
        except* (FencedError, DeadlinePassedError, SessionLostError) as over:
            self.why_over = str(first_cause(over))
        finally:
            # the order is fixed: act no more, hear no more, then tell those who wait
            self.guard.trip(self.why_over or "the term is over")
            self._watches.close()
            self._inbox.close()
            self.recent_lines.close()
            self.believed.ring()
        return self.why_over

    async def ask(self, request: Event) -> Reply:
        """Put a request before the loop."""
        if self._zk.state is not SessionState.CONNECTED:
            raise BusyError("the connection to ZooKeeper is suspended")
        return await self._inbox.ask(request)

    async def resign(self, why: str) -> None:
        """Write down when and why this term ends, while it can still write. Returns when that stands, or when
        it cannot."""
        if not self.is_loaded:
            return
        epoch = self.claim.controller_epoch
        self._inbox.put(self._told(to_ms=self._parts.wall_ms(), why=why))
        while self.guard.reason is None:
            record = self.cluster.duties.terms.get(epoch)
            if (record is not None and record.to_ms is not None) or f"{TERMS}/{epoch}" in self.cluster.refused:
                return
            await self.believed.wait()

    async def _lead(self, outboxes: Outboxes) -> None:
        """Load, decide everything once, then turn after turn."""
        self.outboxes = outboxes
        self._mark("claimed")
        gc.disable()  # belief lives as long as the term: no collection has to walk over it
        try:
            loaded = await self._reader.load_surely()
            self._check_epoch(loaded)
            for _ in self.cluster.loading(loaded.topics, loaded.states, loaded.duties(), loaded.brokers):
                await asyncio.sleep(0)
            if self._parts.yields_to_foreign_brokers and (theirs := holding(self.cluster, self.foreign_brokers)):
                raise ForeignBrokersError(f"brokers {theirs} are none of ours, and the cluster is theirs")
            started = started_for(loaded, self.claim.controller_epoch)
            is_large = len(loaded.states) >= self._parts.limits.frozen_partitions_min
            loaded.forget_partitions()
            if is_large:
                gc.freeze()
        finally:
            gc.enable()
        self._mark("loaded")
        loop = Loop(
            cluster=self.cluster,
            cluster_id=self._parts.cluster_id,
            reader=self._reader,
            store=Store(self._zk, self.claim, self.guard, self._parts.limits, self._parts.meters),
            inbox=self._inbox,
            outboxes=outboxes,
            journals=(self._parts.journal, self.recent_lines, _RingingJournal(self.believed)),
            limits=self._parts.limits,
            meters=self._parts.meters,
            wall_ms=self._parts.wall_ms,
            clock=self._parts.clock,
            entropy=self._parts.entropy,
            on_phase=self._mark,
        )
        await loop.settle_whole(started)
        del started  # what was found is believed, too
        self._is_starting = False
        for event in self._left_to_do(loaded):
            await loop.settle_whole(event)
        self.is_loaded = True
        log.info(
            "term.started",
            controller_epoch=self.claim.controller_epoch,
            topics=len(self.cluster.topics),
            brokers=len(self.cluster.brokers),
            phases={phase: round(at_ms, 1) for phase, at_ms in self.phases.items()},
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._note_acknowledged(outboxes))
            await loop.run()

    def _mark(self, phase: str) -> None:
        """A phase of the start is over; the last mark of a phase counts."""
        if self._is_starting or phase == "acknowledged":
            self.phases[phase] = since_ms = (self._parts.clock() - self._noticed_at) * 1000
            epoch, ids = self.claim.controller_epoch, (self._parts.cluster_id, self.claim.broker_id)
            line = phase_line(Stamp(self._parts.wall_ms(), *ids, epoch, f"{epoch}-1"), phase, since_ms)
            for journal in (self._parts.journal, self.recent_lines):
                journal.accept([line])

    async def _note_acknowledged(self, outboxes: Outboxes) -> None:
        """Waits until every live broker has acknowledged the first requests of the term: the failover is over."""
        await outboxes.settled()
        self._mark("acknowledged")
        self._inbox.put(self._told())

    def _told(self, *, to_ms: int | None = None, why: str | None = None, why_before: str = "unknown") -> TermTold:
        return TermTold(self.claim.claimed_at_ms, dict(self.phases), to_ms, why, why_before)

    async def _look_again(self) -> None:
        """Looks from time to time for changes of znodes that were not readable, as such changes send no event."""
        while True:
            await self._parts.sleep(LOOK_EVERY_S)
            if self.is_loaded:
                try:
                    if missed := await self._reader.watched.missed(self._zk):
                        self._inbox.mark_dirty(missed)
                except (NotSentError, OutcomeUnknownError):
                    await connected(self._zk)

    async def _tick(self) -> None:
        """The clock as an event: only when something can be due."""
        balance_s = self._parts.balance_interval_s
        balance_at = None if balance_s is None else self._parts.clock() + FIRST_BALANCE_S
        while True:
            await self._parts.sleep(TICK_S)
            if self.is_loaded and (due := self._reader.unread.due(self._parts.clock())):
                self._inbox.mark_dirty(due)
            is_balance_due = balance_at is not None and self._parts.clock() >= balance_at
            if is_balance_due and balance_s is not None:
                balance_at = self._parts.clock() + balance_s
            is_pending = self.cluster.duties.are_pending or self.cluster.unnoted or self.cluster.refused
            if self.is_loaded and (is_balance_due or is_pending):
                self._inbox.put(TimePassed(is_balance_due))

    def _left_to_do(self, loaded: Loaded) -> list[Event]:
        """Requests and announcements that were lying there: decided once everybody is live, like any other."""
        admin = loaded.admin
        before = max((epoch for epoch in admin.terms if epoch < self.claim.controller_epoch), default=None)
        is_gone = before is not None and admin.terms[before].broker_id not in loaded.brokers
        why_before = "session gone" if is_gone else "deposed"
        # a broker that dies together with this process is known to the next term, if it is noted at once
        events: list[Event] = [TimePassed()] if self.cluster.unnoted else []
        events += [self._told(why_before=why_before), admin.producer_ids, admin.reassign]
        # granted by a predecessor, who may have had no time to move the leaderships
        drains = sorted(self.cluster.duties.drains.items())
        events += [DrainAsked(broker_id, drain.epoch, drain.is_shutdown) for broker_id, drain in drains]
        if admin.election is not None:
            events.append(admin.election)
        if admin.log_dir_events:
            # every broker is told all its replicas now, and its answer says which are bad
            events.append(LogDirsSeen(frozenset(), admin.log_dir_events))
        if loaded.notifications:
            # their effect was read with the states; only now may they go
            events.append(StatesSeen((), loaded.notifications))
        return events

    async def _end_when_time_is_over(self) -> None:
        raise DeadlinePassedError(await self.guard.tripped())

    async def _end_when_session_is_lost(self) -> None:
        await self._zk.lost()
        raise SessionLostError("session gone")

    async def _end_when_deposed(self) -> None:
        """Whenever the seat's node or the epoch's changed, and after each reconnect: are they still as we made them?"""
        while True:
            await self._seat_changed.wait()
            self._seat_changed.clear()
            try:
                seat = await read_seat(self._zk, watch=True)
                kept = (await self._zk.exists(CONTROLLER_EPOCH, watch=True)).stat
            except (NoAuthError, SeatTroubleError) as error:
                raise FencedError(str(error)) from None
            except (NotSentError, OutcomeUnknownError):
                self._seat_changed.set()
                await connected(self._zk)
                continue
            if seat is None or seat.owner != self._zk.session_id:
                raise FencedError("deposed")
            if seat.version:
                raise FencedError("/controller was changed")
            # A node that was made anew may come to our version again. Never to the transaction that was ours.
            if kept is None or kept.mzxid != self.claim.zxid:
                raise FencedError(f"/controller_epoch was {'deleted' if kept is None else 'changed'}")

    def _refuse(self, reason: str) -> None:
        """A broker obeys a later controller."""
        self.is_refused_by_brokers = True
        self.guard.trip(reason)

    def _check_epoch(self, loaded: Loaded) -> None:
        """States know epochs, too. One that was drawn below them would be used twice: nothing is written then."""
        newest = max((epoch for epoch in epochs_in(loaded.states) if epoch <= WITNESSED_MAX), default=0)
        if newest > self.claim.controller_epoch:
            self._parts.epochs.note(newest)
            raise FencedError(f"/controller_epoch was behind: states were written by controller epoch {newest}")


def holding(cluster: Cluster, broker_ids: Iterable[int]) -> list[int]:
    """Returns those of these brokers that have replicas."""
    return sorted(broker_id for broker_id in broker_ids if cluster.hosted.get(broker_id))


def started_for(loaded: Loaded, controller_epoch: int) -> TermStarted:
    """Returns the event that begins the term of this epoch."""
    admin = loaded.admin
    loaded_before = [epoch for epoch, record in admin.terms.items() if record.phases]  # others are noted by their claim
    found = found_states(loaded.states, controller_epoch, loaded_before)
    epochs = {**{broker_id: drain.epoch for broker_id, drain in admin.drains.items()}, **admin.failed_dirs}
    stale_ids = {b for b, epoch in epochs.items() if b not in loaded.brokers or loaded.brokers[b].epoch != epoch}
    return TermStarted(loaded.brokers, loaded.zxid, found, admin.markers, frozenset(stale_ids))


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the first cause in a group."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
