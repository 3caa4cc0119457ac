"""A term: one stretch as the active controller, with one epoch. What it starts, and what ends it.

Everything a term uses is built here and lives in one TaskGroup: nothing outlives it, nothing is carried into the next.
It ends when it is fenced, when the session is lost, when our own clock says that the session may be gone (the guard),
or by a bug; leaving the scope is all it takes.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable

import structlog

from controller.chronicle import Chronicle
from controller.claim import Claim, read_seat
from controller.core.cluster import Cluster
from controller.core.events import (
    DrainAsked,
    Event,
    LogDirsSeen,
    StatesSeen,
    TermStarted,
    TermTold,
    TimePassed,
)
from controller.core.lines import Stamp, phase_line
from controller.core.model import Broker
from controller.core.startup import found_states
from controller.guard import TermGuard
from controller.inbox import BusyError, Inbox, Reply
from controller.loop import Loop
from controller.reader import Loaded, Reader
from controller.store import FencedError, Store
from controller.tools import OnAnswer, Outboxes, Tools
from controller.watches import Watches
from controller.zk_model import (
    DeadlinePassedError,
    NotSentError,
    OutcomeUnknownError,
    SessionLostError,
    SessionState,
    ZooKeeper,
    connected,
)

__all__ = ["OnAnswer", "Outboxes", "StrangersError", "Term", "Tools", "first_cause"]

log = structlog.get_logger()

TICK_S = 1.0
RESIGN_POLL_S = 0.01
#: Kafka's own: the first automatic preferred election after a start
FIRST_BALANCE_S = 5.0


class StrangersError(Exception):
    """This process cannot lead this cluster: nothing was written, and others may have the seat."""


class Term:
    """Holds the seat that was won, until something ends it."""

    def __init__(
        self, zk: ZooKeeper, claim: Claim, tools: Tools, seat_changed: asyncio.Event, noticed_at: float
    ) -> None:
        self.claim = claim
        self.is_loaded = False
        self._is_starting = True
        self.guard = TermGuard(lambda: zk.deadline, tools.clock, tools.sleep)
        self.cluster = Cluster(
            controller_id=claim.broker_id,
            controller_epoch=claim.controller_epoch,
            unclean_default=tools.unclean_default,
            delete_enabled=tools.delete_enabled,
            imbalance_percentage=tools.imbalance_percentage,
            is_dedicated=tools.is_dedicated,
        )
        self.phases: dict[str, float] = {}
        self.chronicle = Chronicle(claim.controller_epoch)
        self._noticed_at = noticed_at
        self._zk = zk
        self._tools = tools
        self._seat_changed = seat_changed
        self._inbox = Inbox(tools.limits, tools.meters)
        self.outboxes: Outboxes | None = None
        self._reader = Reader(zk, tools.now_ms, tools.is_ours)
        self._watches = Watches(zk, self._inbox, self._reader)

    @property
    def strangers(self) -> dict[int, Broker]:
        return self._reader.strangers

    @property
    def inbox_depth(self) -> int:
        return self._inbox.depth

    async def hold(self) -> str:
        """Act as the controller; returns why the term ended. A bug comes out as an exception."""
        reason = ""
        self._watches.open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._end_when_time_is_over())
                group.create_task(self._end_when_deposed())
                group.create_task(self._end_when_session_is_lost())
                outboxes = self._tools.open_outboxes(self.claim, self.guard, group, self.guard.trip, self._inbox.put)
                group.create_task(self._lead(outboxes))
                group.create_task(self._tick())
        except* (FencedError, DeadlinePassedError, SessionLostError) as over:
            reason = str(first_cause(over))
        finally:
            # the order is fixed: act no more, hear no more, then tell those who wait
            self.guard.trip(reason or "the term is over")
            self._watches.close()
            self._inbox.close()
            self.chronicle.close()
        return reason

    async def ask(self, request: Event) -> Reply:
        """Put a request before the loop."""
        if self._zk.state is not SessionState.CONNECTED:
            raise BusyError("the connection to ZooKeeper is suspended")
        return await self._inbox.ask(request)

    async def resign(self, why: str) -> None:
        """Write down when and why this term ends, while it can still write. Returns when that stands, or never can."""
        if not self.is_loaded:
            return
        epoch = self.claim.controller_epoch
        self._inbox.put(self._told(to_ms=self._tools.now_ms(), why=why))
        while self.guard.reason is None:
            record = self.cluster.duties.terms.get(epoch)
            if record is not None and record.to_ms is not None:
                return
            await asyncio.sleep(RESIGN_POLL_S)

    async def _lead(self, outboxes: Outboxes) -> None:
        """Load, decide everything once, then turn after turn."""
        self.outboxes = outboxes
        self._mark("claimed")
        gc.disable()  # belief lives as long as the term: no collection has to walk over it
        try:
            loaded = await self._reader.load_surely()
            for _ in self.cluster.loading(loaded.topics, loaded.states, loaded.duties()):
                await asyncio.sleep(0)
            if self._tools.yields_to_strangers and (theirs := holding(self.cluster, self.strangers)):
                raise StrangersError(f"brokers {theirs} are none of ours, and the cluster is theirs")
            started = started_for(loaded, self.claim.controller_epoch)
            is_large = len(loaded.states) >= self._tools.limits.frozen_partitions_min
            loaded.forget_partitions()
            if is_large:
                gc.freeze()
        finally:
            gc.enable()
        self._mark("loaded")
        loop = Loop(
            cluster=self.cluster,
            cluster_id=self._tools.cluster_id,
            reader=self._reader,
            store=Store(self._zk, self.claim, self.guard, self._tools.limits, self._tools.meters),
            inbox=self._inbox,
            outboxes=outboxes,
            journals=(self._tools.journal, self.chronicle),
            limits=self._tools.limits,
            meters=self._tools.meters,
            now_ms=self._tools.now_ms,
            entropy=self._tools.entropy,
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
            self.phases[phase] = since_ms = (self._tools.clock() - self._noticed_at) * 1000
            epoch, ids = self.claim.controller_epoch, (self._tools.cluster_id, self.claim.broker_id)
            line = phase_line(Stamp(self._tools.now_ms(), *ids, epoch, f"{epoch}-1"), phase, since_ms)
            for journal in (self._tools.journal, self.chronicle):
                journal.accept([line])

    async def _note_acknowledged(self, outboxes: Outboxes) -> None:
        """Every live broker has acknowledged what the start told it: the failover is over."""
        await outboxes.settled()
        self._mark("acknowledged")
        self._inbox.put(self._told())

    def _told(self, *, to_ms: int | None = None, why: str | None = None, why_before: str = "unknown") -> TermTold:
        return TermTold(self.claim.claimed_at_ms, dict(self.phases), to_ms, why, why_before)

    async def _tick(self) -> None:
        """The clock as an event: only when something can be due."""
        balance_s = self._tools.balance_interval_s
        balance_at = None if balance_s is None else self._tools.clock() + FIRST_BALANCE_S
        while True:
            await self._tools.sleep(TICK_S)
            is_balance_due = balance_at is not None and self._tools.clock() >= balance_at
            if is_balance_due and balance_s is not None:
                balance_at = self._tools.clock() + balance_s
            if self.is_loaded and (is_balance_due or self.cluster.duties.are_pending or self.cluster.unnoted):
                self._inbox.put(TimePassed(is_balance_due))

    def _left_to_do(self, loaded: Loaded) -> list[Event]:
        """Requests and announcements that were lying there: decided once everybody is live, like any other."""
        admin = loaded.admin
        before = max((epoch for epoch in admin.terms if epoch < self.claim.controller_epoch), default=None)
        is_gone = before is not None and admin.terms[before].broker_id not in loaded.brokers
        why_before = "session gone" if is_gone else "deposed"
        events: list[Event] = [self._told(why_before=why_before), admin.producer_ids, admin.reassign]
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
        """Whenever the seat's node changed, and after each reconnect: is it still ours?"""
        while True:
            await self._seat_changed.wait()
            self._seat_changed.clear()
            try:
                seat = await read_seat(self._zk, watch=True)
            except (NotSentError, OutcomeUnknownError):
                self._seat_changed.set()
                await connected(self._zk)
                continue
            if seat is None or seat.owner != self._zk.session_id:
                raise FencedError("deposed")


def holding(cluster: Cluster, broker_ids: Iterable[int]) -> list[int]:
    """Those of these brokers that have replicas."""
    return sorted(broker_id for broker_id in broker_ids if cluster.hosted.get(broker_id))


def started_for(loaded: Loaded, controller_epoch: int) -> TermStarted:
    """The event that begins the term of this epoch."""
    admin = loaded.admin
    found = found_states(loaded.states, controller_epoch, admin.terms)
    epochs = {**{broker_id: drain.epoch for broker_id, drain in admin.drains.items()}, **admin.failed_dirs}
    stale_ids = {b for b, epoch in epochs.items() if b not in loaded.brokers or loaded.brokers[b].epoch != epoch}
    return TermStarted(loaded.brokers, loaded.zxid, found, admin.markers, frozenset(stale_ids))


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first cause in a group."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
