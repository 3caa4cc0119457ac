"""A term: one stretch as the active controller, with one epoch. What it starts, and what ends it.

Everything a term uses is built here and lives in one TaskGroup: nothing outlives it, nothing is carried into the next.
It ends when it is fenced, when the session is lost, when our own clock says that the session may be gone (the guard),
or by a bug; leaving the scope is all it takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

import msgspec
import structlog

from controller.claim import Claim, read_seat
from controller.config import Limits
from controller.core.cluster import Cluster
from controller.core.events import Event, StatesSeen, TermStarted
from controller.core.startup import found_states
from controller.guard import TermGuard
from controller.inbox import BusyError, Inbox, Reply
from controller.loop import Loop, Recorder, Teller
from controller.reader import Reader
from controller.store import FencedError, Store
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

log = structlog.get_logger()

#: opens a term's outboxes: claim, guard, tasks, and what to call when a broker names a later controller
OpenOutboxes = Callable[[Claim, TermGuard, asyncio.TaskGroup, Callable[[str], None]], Teller]


class Tools(msgspec.Struct):
    """What every term of this process is given."""

    cluster_id: str
    open_outboxes: OpenOutboxes
    journal: Recorder
    limits: Limits
    now_ms: Callable[[], int]
    entropy: Random
    unclean_default: bool = False
    #: the guard's own time; tests move it
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Term:
    """Holds the seat that was won, until something ends it."""

    def __init__(self, zk: ZooKeeper, claim: Claim, tools: Tools, seat_changed: asyncio.Event) -> None:
        self.claim = claim
        self.is_loaded = False
        self.guard = TermGuard(lambda: zk.deadline, tools.clock, tools.sleep)
        self.cluster = Cluster(
            controller_id=claim.broker_id,
            controller_epoch=claim.controller_epoch,
            unclean_default=tools.unclean_default,
        )
        self._zk = zk
        self._tools = tools
        self._seat_changed = seat_changed
        self._inbox = Inbox(tools.limits)
        self._reader = Reader(zk)
        self._watches = Watches(zk, self._inbox, self._reader)

    async def hold(self) -> str:
        """Act as the controller; returns why the term ended. A bug comes out as an exception."""
        reason = ""
        self._watches.open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._end_when_time_is_over())
                group.create_task(self._end_when_deposed())
                group.create_task(self._end_when_session_is_lost())
                outboxes = self._tools.open_outboxes(self.claim, self.guard, group, self.guard.trip)
                group.create_task(self._lead(outboxes))
        except* (FencedError, DeadlinePassedError, SessionLostError) as over:
            reason = str(first_cause(over))
        finally:
            # the order is fixed: act no more, hear no more, then tell those who wait
            self.guard.trip(reason or "the term is over")
            self._watches.close()
            self._inbox.close()
        return reason

    async def ask(self, request: Event) -> Reply:
        """Put a request before the loop."""
        if self._zk.state is not SessionState.CONNECTED:
            raise BusyError("the connection to ZooKeeper is suspended")
        return await self._inbox.ask(request)

    async def _lead(self, outboxes: Teller) -> None:
        """Load, decide everything once, then turn after turn."""
        started_ms = self._tools.now_ms()
        loaded = await self._reader.load_surely()
        self.cluster.load(loaded.topics, loaded.states)
        loaded_ms = self._tools.now_ms()
        loop = Loop(
            cluster=self.cluster,
            cluster_id=self._tools.cluster_id,
            reader=self._reader,
            store=Store(self._zk, self.claim, self.guard, self._tools.limits),
            inbox=self._inbox,
            outboxes=outboxes,
            journal=self._tools.journal,
            limits=self._tools.limits,
            now_ms=self._tools.now_ms,
            entropy=self._tools.entropy,
        )
        found = found_states(loaded.states, self.claim.controller_epoch)
        await loop.settle(TermStarted(loaded.brokers, loaded.zxid, found))
        if loaded.notifications:
            # their effect was read with the states; only now may they go
            await loop.settle(StatesSeen((), loaded.notifications))
        self.is_loaded = True
        log.info(
            "term.started",
            controller_epoch=self.claim.controller_epoch,
            topics=len(self.cluster.topics),
            brokers=len(self.cluster.brokers),
            load_ms=loaded_ms - started_ms,
            took_ms=self._tools.now_ms() - self.claim.claimed_at_ms,
        )
        await loop.run()

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


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first cause in a group."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
