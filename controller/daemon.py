"""The daemon of one process and one session: standby, claim, hold a term, standby.

It runs only while the broker's registration stands. It ends with its session: a new session gets a new daemon. If the
seat turns out to be ours while we hold no term, it is released before anything else: holding the seat and acting as
the controller are one fact.
"""

from __future__ import annotations

import asyncio
import gc

import msgspec
import structlog

from controller.chronicle import Chronicle
from controller.claim import Claim, Seat, claim, is_handed_back, read_seat, release, take_over
from controller.core.cluster import Cluster
from controller.core.events import Event
from controller.core.formats import TermZnode
from controller.core.lines import Line
from controller.core.model import Broker
from controller.core.znodes import CONTROLLER, broker_path
from controller.inbox import NotControllerError, Reply
from controller.outbox import OutboxStatus
from controller.term import Term
from controller.tools import Tools
from controller.zk_model import (
    NotSentError,
    OutcomeUnknownError,
    SessionState,
    WatchEvent,
    ZooKeeper,
    connected,
)

log = structlog.get_logger()


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


class Daemon:
    """Races for the seat, and acts while it holds it. The process's door to its controller."""

    def __init__(self, zk: ZooKeeper, broker_id: int, tools: Tools) -> None:
        self._zk = zk
        self._broker_id = broker_id
        self._tools = tools
        self._seat_changed = asyncio.Event()
        self._term: Term | None = None
        self._seat: Seat | None = None
        self._bugs = 0
        self._take_over: asyncio.Future[int] | None = None
        self._is_handing_back = False
        self._handed_back = asyncio.Event()
        self._noticed_at = tools.clock()

    # ------------------------------------------------------------------ the door

    @property
    def is_active(self) -> bool:
        return self._term is not None and self._term.is_loaded

    @property
    def controller_epoch(self) -> int | None:
        return None if self._term is None else self._term.claim.controller_epoch

    @property
    def is_registered(self) -> bool:
        """Whether this process stands in the cluster as far as it can know."""
        return self._zk.state is SessionState.CONNECTED

    @property
    def phase(self) -> str:
        if self._term is None:
            return "standby"
        return "active" if self._term.is_loaded else "loading"

    @property
    def since_ms(self) -> int | None:
        return None if self._term is None else self._term.claim.claimed_at_ms

    @property
    def seat(self) -> tuple[int, int] | None:
        """Broker id (-1: unreadable) and owner of `/controller` as last read."""
        if self._seat is None:
            return None
        return (-1 if self._seat.broker_id is None else self._seat.broker_id), self._seat.owner

    @property
    def cluster(self) -> Cluster | None:
        """What the term held now believes, once loaded: to be read, never to be changed."""
        return self._term.cluster if self._term is not None and self._term.is_loaded else None

    def history(self) -> list[TermRecord]:
        """Terms that are known, the oldest first; none on a standby."""
        cluster = self.cluster
        if cluster is None:
            return []
        return [TermRecord.of(epoch, record) for epoch, record in sorted(cluster.duties.terms.items())]

    @property
    def strangers(self) -> dict[int, Broker]:
        """Registered brokers that this process cannot speak to; none on a standby."""
        return {} if self._term is None else self._term.strangers

    async def take_over(self) -> int:
        """Claim from whoever holds the seat; the controller epoch. ours already: nothing to do."""
        if self._term is not None:
            return self._term.claim.controller_epoch
        if self._take_over is None:
            self._take_over = asyncio.get_running_loop().create_future()
            self._seat_changed.set()
        return await asyncio.shield(self._take_over)

    async def hand_back(self) -> None:
        """Give the seat to Kafka's own brokers, until somebody takes over again. Returns when the term is over."""
        term = self._term
        if term is None:
            raise NotControllerError("this controller does not hold the seat")
        await term.resign("handed back")
        if self._term is not term:
            raise NotControllerError("the seat was lost before it could be handed back")
        self._is_handing_back = True
        self._handed_back.clear()
        term.guard.trip("handed back")
        await self._handed_back.wait()
        if self._is_handing_back:
            raise NotControllerError("the seat was lost before it could be handed back")

    async def resign(self, why: str) -> None:
        """Before this process ends a term by its own will: its record says so."""
        if self._term is not None:
            await self._term.resign(why)

    def lines_about(self, topic: str, partition: int) -> list[Line]:
        """What this term remembers of a partition."""
        return [] if self._term is None else self._term.chronicle.about(topic, partition)

    @property
    def chronicle(self) -> Chronicle | None:
        """What the term held now has decided lately, as a stream, from its claim on; None on a standby."""
        return None if self._term is None else self._term.chronicle

    @property
    def inbox_depth(self) -> int:
        return 0 if self._term is None else self._term.inbox_depth

    def outboxes(self) -> dict[int, OutboxStatus]:
        """What brokers are owed, by broker id; nothing on a standby."""
        return {} if self._term is None or self._term.outboxes is None else self._term.outboxes.status()

    async def ask(self, request: Event) -> Reply:
        if self._term is None:
            raise NotControllerError("this broker is not the active controller")
        return await self._term.ask(request)

    # ------------------------------------------------------------------ the race

    async def run(self) -> None:
        """Until the session is lost, which comes out as SessionLostError."""
        self._zk.on_watch(self._on_watch)
        self._zk.on_state(self._on_state)
        try:
            while True:
                try:
                    await self._race()
                except (NotSentError, OutcomeUnknownError):
                    await connected(self._zk)
        finally:
            self._zk.remove_handler(self._on_watch)
            self._zk.remove_handler(self._on_state)
            self._handed_back.set()  # the seat goes with the session
            if self._take_over is not None:
                self._take_over.set_exception(NotControllerError("the session with ZooKeeper is over; try again"))
                self._take_over.exception()  # whoever asked may have gone, and then it is nobody's

    async def _race(self) -> None:
        """One look at the seat, and what follows from it."""
        self._seat_changed.clear()
        self._noticed_at = self._tools.clock()
        self._seat = await read_seat(self._zk, watch=True)
        self._tools.seat_changes.tell()
        won = None
        if self._seat is None:
            if self._take_over is not None:
                won = await take_over(self._zk, self._broker_id, self._tools.now_ms(), None)
            elif await self._leaves_it_to_brokers():
                await self._seat_changed.wait()
            else:
                won = await claim(self._zk, self._broker_id, self._tools.now_ms())
        elif self._seat.owner == self._zk.session_id:
            await release(self._zk)
        elif await self._wants_it_from(self._seat):
            won = await take_over(self._zk, self._broker_id, self._tools.now_ms(), self._seat)
        else:
            await self._seat_changed.wait()
        if won is not None:
            log.info("seat.won", controller_epoch=won.controller_epoch)
            if self._take_over is not None:
                self._take_over.set_result(won.controller_epoch)
                self._take_over = None
            await self._hold(won)

    async def _leaves_it_to_brokers(self) -> bool:
        """Whether a controller that is no broker must not claim: it was handed back, or it could not lead here."""
        if not self._tools.is_dedicated:
            return False
        reasons = () if self._tools.reasons_against is None else await self._tools.reasons_against(self._zk)
        if reasons:
            log.warning("seat.left", reasons=list(reasons))
        return bool(reasons) or await is_handed_back(self._zk)

    async def _wants_it_from(self, seat: Seat) -> bool:
        """Whether to claim from who holds the seat: told to, or preferred to a broker that was not given it."""
        if self._take_over is not None:
            return True
        if not self._tools.is_preferred or seat.broker_id is None or await self._leaves_it_to_brokers():
            return False
        return (await self._zk.exists(broker_path(seat.broker_id))).stat is not None

    async def _hold(self, won: Claim) -> None:
        self._is_handing_back = False
        self._seat_changed.set()  # the term reads the seat itself, which arms the watch again
        self._term = Term(self._zk, won, self._tools, self._seat_changed, self._noticed_at)
        self._tools.seat_changes.tell()
        started_ms = self._tools.now_ms()
        try:
            reason = await self._term.hold()
            log.warning("term.ended", controller_epoch=won.controller_epoch, reason=reason)
            self._bugs = 0
        except Exception:
            self._bugs = (
                1 if self._tools.now_ms() - started_ms > self._tools.limits.claim_backoff_max_ms else self._bugs + 1
            )
            log.exception("term.failed", controller_epoch=won.controller_epoch, bugs=self._bugs)
        finally:
            self._term = None
        try:
            await connected(self._zk)
            if await release(self._zk, epoch_version=won.epoch_version, hand_back=self._is_handing_back):
                self._is_handing_back = False
        finally:
            _let_go()
        self._handed_back.set()
        if self._bugs:
            await self._tools.sleep(self._backoff_ms() / 1000)  # let others try: they may not meet the bug

    def _backoff_ms(self) -> int:
        limits = self._tools.limits
        return min(limits.claim_backoff_min_ms << (self._bugs - 1), limits.claim_backoff_max_ms)

    def _on_watch(self, event: WatchEvent) -> None:
        if event.path == CONTROLLER:
            self._seat_changed.set()

    def _on_state(self, state: SessionState) -> None:
        self._tools.meters.session_changed(state)
        if state is not SessionState.SUSPENDED:
            self._seat_changed.set()  # a change may have been missed, or there is none to wait for any more


def _let_go() -> None:
    """A term is over, and its belief is part of cycles (tasks and how they ended) that its start froze: frozen, they
    would stay for ever, and each further term of this process would add its own."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
