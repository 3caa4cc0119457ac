"""The daemon of one process and one session: standby, claim, hold a term, standby.

It runs only while the broker's registration stands. It ends with its session: a new session gets a new daemon. If the
seat turns out to be ours while we hold no term, it is released before anything else, and where that is refused it is
given up with the session: holding the seat and acting as the controller are one fact.

Trouble with `/controller` or `/controller_epoch` ends no process: it is reported, and looked at again.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

import structlog

from controller.base.tasks import run_apart
from controller.core.project.znodes import CONTROLLER, CONTROLLER_EPOCH, broker_path, controller_path
from controller.loop.inbox import NotControllerError
from controller.loop.watched_nodes import LOOK_EVERY_S
from controller.seat.claim import (
    Claim,
    Seat,
    SeatTroubleError,
    StuckSeatError,
    claim,
    is_handed_back,
    read_seat,
    release,
    take_over,
)
from controller.term.parts import TermParts
from controller.term.term import Term
from controller.zookeeper.layout import ensure_paths
from controller.zookeeper.port import (
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    SessionLostError,
    SessionState,
    WatchEvent,
    ZooKeeper,
    connected,
)

log = structlog.get_logger()

#: so often a claim or a release may be overtaken, one after the other, before it is looked at again later
OVERTAKEN_MAX: Final = 10


class Daemon:
    """Races for the seat, and acts while it holds it."""

    def __init__(self, zk: ZooKeeper, broker_id: int, parts: TermParts) -> None:
        self._zk = zk
        self._broker_id = broker_id
        self._parts = parts
        self._seat_changed = asyncio.Event()
        #: held now
        self.term: Term | None = None
        self._seat: Seat | None = None
        self._bugs = 0
        #: terms in a row that ended because a broker obeys a later controller
        self._refused = 0
        self._trouble: str | None = None
        self._looks_in_trouble = 0
        self._overtaken = 0
        #: the last claim came too late, and the faster process has not been named yet
        self._is_beaten = False
        self._take_over: asyncio.Future[int] | None = None
        self._is_handing_back = False
        self._handed_back = asyncio.Event()
        self._noticed_at = parts.clock()

    @property
    def is_registered(self) -> bool:
        """Whether this process stands in the cluster as far as it can know."""
        return self._zk.state is SessionState.CONNECTED

    @property
    def seat(self) -> tuple[int, int] | None:
        """Broker id (-1: unreadable) and owner of `/controller` as last read."""
        if self._seat is None:
            return None
        return (-1 if self._seat.broker_id is None else self._seat.broker_id), self._seat.owner

    @property
    def seat_trouble(self) -> str | None:
        """Returns why no controller can be elected, and the remedy; None when a controller can be elected."""
        return self._trouble

    async def take_over(self) -> int:
        """Claims the seat from its holder, unless this process holds it; returns the controller epoch."""
        if self.term is not None:
            return self.term.claim.controller_epoch
        if self._take_over is None:
            self._take_over = asyncio.get_running_loop().create_future()
            self._seat_changed.set()
        return await asyncio.shield(self._take_over)

    async def hand_back(self) -> None:
        """Give the seat to Kafka's own brokers, until the next takeover. Returns when the term is over."""
        term = self.term
        if term is None:
            raise NotControllerError("this controller does not hold the seat")
        await term.resign("handed back")
        if self.term is not term:
            raise NotControllerError("the seat was lost before it could be handed back")
        self._is_handing_back = True
        self._handed_back.clear()
        term.guard.trip("handed back")
        await self._handed_back.wait()
        if self._is_handing_back:
            raise NotControllerError("the seat was lost before it could be handed back")

    async def run(self) -> None:
        """Until the session is lost, which comes out as SessionLostError."""
        self._zk.on_watch(self._on_watch)
        self._zk.on_state(self._on_state)
        looking = asyncio.create_task(self._look_again())
        try:
            while True:
                try:
                    await self._race()
                except (NotSentError, OutcomeUnknownError):
                    await connected(self._zk)
                except StuckSeatError as error:
                    log.warning("session.given_up", reason=str(error))
                    await self._zk.close()
                    await self._parts.sleep(self._parts.limits.trouble_backoff_min_ms / 1000)
                    raise SessionLostError(f"given up with the seat: {error}") from None
                except (SeatTroubleError, RefusedError) as error:
                    await self._wait_in(str(error))
        finally:
            looking.cancel()
            self._zk.remove_handler(self._on_watch)
            self._zk.remove_handler(self._on_state)
            self._handed_back.set()  # the seat goes with the session
            self._end_take_over("the session with ZooKeeper is over; try again")

    async def _race(self) -> None:
        """One look at the seat, and the action that follows from it."""
        self._seat_changed.clear()
        self._noticed_at = self._parts.clock()
        self._seat = await read_seat(self._zk, watch=True)
        self._parts.seat_changes.ring()
        self._tell_winner()
        won = None
        if self._seat is None:
            if self._take_over is None and await self._leaves_it_to_brokers():
                self._say(None)
                await self._seat_changed.wait()
            else:
                won = await self._claim_vacant()
        elif self._seat.owner == self._zk.session_id:
            await self._vacate()
        elif await self._wants_it_from(self._seat):
            wall_ms = self._parts.wall_ms()
            won = await take_over(self._zk, self._broker_id, wall_ms, self._seat, self._parts.epochs)
        else:
            self._overtaken = 0
            if self._seat.trouble is not None:
                raise SeatTroubleError(self._seat.trouble)
            self._say(None)
            await self._seat_changed.wait()
        if won is not None:
            self._overtaken = 0
            self._say(None)
            log.info("seat.won", controller_epoch=won.controller_epoch)
            if self._take_over is not None:
                self._take_over.set_result(won.controller_epoch)
                self._take_over = None
            await self._hold(won)

    async def _look_again(self) -> None:
        """Looks at the seat from time to time. A change while the seat was not readable sent no event, and used up the
        watch."""
        while self._zk.state is not SessionState.LOST:
            await self._parts.sleep(LOOK_EVERY_S)
            try:
                if self._trouble is None and await self._has_changed():
                    self._seat_changed.set()
            except (NotSentError, OutcomeUnknownError, RefusedError, SessionLostError):
                continue  # a look is as good later

    async def _has_changed(self) -> bool:
        """Returns whether the seat has changed since it was last read, or claimed."""
        stat, term = (await self._zk.exists(CONTROLLER)).stat, self.term
        if term is not None:
            kept = (await self._zk.exists(CONTROLLER_EPOCH)).stat
            is_kept = kept is not None and kept.mzxid == term.claim.zxid
            return not is_kept or stat is None or stat.ephemeral_owner != self._zk.session_id
        known = self._seat
        if stat is None or known is None:
            return (stat is None) is not (known is None)
        return (stat.ephemeral_owner, stat.version) != (known.owner, known.version)

    def _tell_winner(self) -> None:
        """After a claim that came too late: log the holder of the seat, or that the holder gave it up already."""
        if not self._is_beaten:
            return
        self._is_beaten = False
        if self._seat is None:
            log.warning("seat.given_up", trouble="the faster process has given the seat up already: claimed again")
        else:
            log.info("seat.lost", winner=self._seat.broker_id)

    async def _claim_vacant(self) -> Claim | None:
        zk, wall_ms, known = self._zk, self._parts.wall_ms(), self._parts.epochs
        try:
            if self._take_over is not None:
                won = await take_over(zk, self._broker_id, wall_ms, None, known)
            else:
                won = await claim(zk, self._broker_id, wall_ms, known)
        except NoNodeError:
            await ensure_paths(zk)  # the chroot itself is gone
            won = None
        if won is None:
            self._is_beaten = True
            self._overtaken += 1  # others are faster, which ends by itself, as a rule
            if self._overtaken > OVERTAKEN_MAX:
                raise SeatTroubleError(
                    "no controller can be elected: the seat is vacant, and each claim is overtaken; find out "
                    "which client keeps changing /controller and /controller_epoch"
                )
        return won

    async def _vacate(self) -> None:
        """The seat is ours, and no term is."""
        if await release(self._zk, at_least=self._parts.epochs.highest):
            self._overtaken = 0
        elif self._overtaken >= OVERTAKEN_MAX:
            raise StuckSeatError("other clients keep changing the nodes that a release needs")
        else:
            self._overtaken += 1

    def _say(self, trouble: str | None) -> None:
        """Once for each change."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        self._looks_in_trouble = 0
        if trouble is None:
            log.info("seat.mended")
        else:
            log.error("seat.blocked", trouble=trouble)
        self._parts.seat_changes.ring()

    async def _wait_in(self, trouble: str) -> None:
        """Until the nodes of the seat change, or for longer and longer: not everything that mends it is told."""
        self._say(trouble)
        self._end_take_over(trouble)
        limits = self._parts.limits
        pause_ms = min(limits.trouble_backoff_min_ms << self._looks_in_trouble, limits.trouble_backoff_max_ms)
        self._looks_in_trouble = min(self._looks_in_trouble + 1, limits.trouble_backoff_max_ms.bit_length())
        pausing = asyncio.create_task(self._pause(pause_ms / 1000))
        waiting = asyncio.create_task(self._seat_changed.wait())
        try:
            await asyncio.wait((pausing, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pausing.cancel()
            waiting.cancel()

    async def _pause(self, seconds: float) -> None:
        await self._parts.sleep(seconds)

    def _end_take_over(self, why: str) -> None:
        if self._take_over is not None:
            self._take_over.set_exception(NotControllerError(why))
            self._take_over.exception()  # the caller may have gone, and then no task waits for it
            self._take_over = None

    async def _leaves_it_to_brokers(self) -> bool:
        """Returns whether a controller that is no broker must not claim: it was handed back, or it could not lead
        here."""
        if not self._parts.is_dedicated:
            return False
        reasons = () if self._parts.vetoes_against is None else await self._parts.vetoes_against(self._zk)
        if reasons:
            log.warning("seat.left", reasons=list(reasons))
        return bool(reasons) or await is_handed_back(self._zk)

    async def _wants_it_from(self, seat: Seat) -> bool:
        """Returns whether to claim from the seat's holder: told to, or preferred to a broker that was not given it."""
        if self._take_over is not None:
            return True
        await self._note_whether_ours(seat)
        wants = self._parts.has_seen_ours if self._parts.is_preferred is None else self._parts.is_preferred
        if not wants or seat.broker_id is None or await self._leaves_it_to_brokers():
            return False
        return (await self._zk.exists(broker_path(seat.broker_id))).stat is not None

    async def _note_whether_ours(self, seat: Seat) -> None:
        """Whether another one of ours sits there: a broker that is faster when that dies was not given the seat."""
        parts = self._parts
        if parts.is_dedicated and not parts.has_seen_ours and seat.broker_id is not None:
            stat = (await self._zk.exists(controller_path(seat.broker_id))).stat
            parts.has_seen_ours = stat is not None and stat.ephemeral_owner == seat.owner

    async def _hold(self, won: Claim) -> None:
        self._is_handing_back = False
        self._seat_changed.set()  # the term reads the seat itself, which arms the watch again
        self.term = term = Term(self._zk, won, self._parts, self._seat_changed, self._noticed_at)
        self._parts.seat_changes.ring()
        started_s = self._parts.clock()
        try:
            reason = await run_apart(term.hold())
            log.warning("term.ended", controller_epoch=won.controller_epoch, reason=reason)
            self._bugs = 0
        except asyncio.CancelledError:
            if term.why_over:  # by itself, in the turn in which its process was told to end it
                log.warning("term.ended", controller_epoch=won.controller_epoch, reason=term.why_over)
            raise
        except Exception:
            lasted_ms = (self._parts.clock() - started_s) * 1_000
            self._bugs = 1 if lasted_ms > self._parts.limits.claim_backoff_max_ms else self._bugs + 1
            log.exception("term.failed", controller_epoch=won.controller_epoch, bugs=self._bugs)
        finally:
            self.term = None
        known, epoch = self._parts.epochs, won.controller_epoch
        self._refused = self._refused + 1 if term.is_refused_by_brokers else 0
        del term  # its belief goes before the next one is loaded
        if self._refused:
            known.note_refused(epoch, self._refused)
        try:
            await connected(self._zk)
            at_least = known.highest if known.highest > epoch else 0
            if await release(
                self._zk, epoch_version=won.epoch_version, hand_back=self._is_handing_back, at_least=at_least
            ):
                self._is_handing_back = False
        except RefusedError as error:
            log.warning("seat.kept", reason=str(error))  # the next look finds it ours
        finally:
            _let_go()
        self._handed_back.set()
        if failures := max(self._bugs, self._refused - 1):
            await self._parts.sleep(self._backoff_ms(failures) / 1000)  # let others try: they may not meet it

    def _backoff_ms(self, failures: int) -> int:
        limits = self._parts.limits
        return min(limits.claim_backoff_min_ms << (failures - 1), limits.claim_backoff_max_ms)

    def _on_watch(self, event: WatchEvent) -> None:
        if event.path in (CONTROLLER, CONTROLLER_EPOCH):
            self._seat_changed.set()

    def _on_state(self, state: SessionState) -> None:
        self._parts.meters.session_changed(state)
        if state is not SessionState.SUSPENDED:
            self._seat_changed.set()  # a change may have been missed, or there is none to wait for any more


def _let_go() -> None:
    """A term is over, and its belief is part of cycles (tasks and how they ended) that its start froze: frozen, they
    would stay for ever, and each further term of this process would add its own."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
