"""The inbox of the loop: dirty paths, merged facts, and a bounded queue of requests with their replies.

Marking a path dirty reads nothing and is never refused: a path is in the set once, however often it changes. Brokers'
answers and the clock are never refused either: there is one slot per broker incarnation and kind. Requests are refused
when the queue is full, and every one that was taken gets an answer, also when the term ends.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from controller.base.config import Limits
from controller.core.codes import Code
from controller.core.events import (
    AlterPartitionAsked,
    CreateTopicAsked,
    ElectAsked,
    Event,
    ForgetBrokerAsked,
    GrowTopicAsked,
    LeaderAndIsrAnswered,
    ProducerIdsAsked,
    ReassignAsked,
    RefusalsAnswered,
    StopReplicaAnswered,
    TermTold,
    TimePassed,
    TopicsDescribed,
)
from controller.statelog.metrics import Meters
from controller.wire.bodies import AlteredTopic, RemainingPartition

#: facts that cannot be read again: they wait in a slot, and a later one is merged into it
SlotFact = StopReplicaAnswered | LeaderAndIsrAnswered | RefusalsAnswered | TopicsDescribed | TermTold | TimePassed


class Reply(msgspec.Struct, frozen=True):
    """How a request fared: done (code NONE), refused (nothing changed), or unknown (`is_unknown`)."""

    code: Code = Code.NONE
    detail: str = ""
    is_unknown: bool = False
    #: links the reply with the writes, requests and lines of its event; empty when it was not decided on
    event_id: str = ""


class PartitionOutcome(msgspec.Struct, frozen=True):
    """The result for one partition of a request about many; code NONE: done."""

    topic: str
    partition: int
    code: Code = Code.NONE
    detail: str = ""


class ChangeReply(Reply, frozen=True):
    """To a request that is done: whether anything was to be done, or it was so already."""

    has_changed: bool = True


class IsrReply(Reply, frozen=True):
    """To a leader's proposals: of each partition the state that stands now."""

    topics: Sequence[AlteredTopic] = ()


class ShutdownReply(Reply, frozen=True):
    """To a broker that shuts down: which partitions it still leads."""

    remaining: Sequence[RemainingPartition] = ()


class ProducerIdsReply(Reply, frozen=True):
    """To a broker that needs producer ids: the block that it was granted."""

    start: int = 0
    size: int = 0


class OutcomesReply(Reply, frozen=True):
    """To an election or a reassignment."""

    outcomes: Sequence[PartitionOutcome] = ()


#: the reply of a request that was decided and not refused as a whole; any other has `Reply` itself
REPLY_TO: Final[Mapping[type[Event], type[Reply]]] = {
    CreateTopicAsked: ChangeReply,
    GrowTopicAsked: ChangeReply,
    ForgetBrokerAsked: ChangeReply,
    AlterPartitionAsked: IsrReply,
    ProducerIdsAsked: ProducerIdsReply,
    ElectAsked: OutcomesReply,
    ReassignAsked: OutcomesReply,
}


class BusyError(Exception):
    """The controller cannot take the request now: try again after `retry_after_ms`. Nothing was changed."""

    def __init__(self, detail: str, retry_after_ms: int = 1_000) -> None:
        self.retry_after_ms = retry_after_ms
        super().__init__(detail)


class NotControllerError(Exception):
    """This process is not the active controller. Nothing was changed."""


class Request(msgspec.Struct):
    """A request in the queue: its event, until when it may be decided on, and its waiting caller."""

    event: Event
    deadline_s: float
    reply: asyncio.Future[Reply]
    #: when it came, or was put back
    since_s: float = 0.0
    attempts: int = 0
    #: of the event that decides it, as soon as there is one
    event_id: str = ""

    def answer(self, reply: Reply) -> None:
        """The caller may have stopped waiting."""
        if not self.reply.done():
            self.reply.set_result(msgspec.structs.replace(reply, event_id=self.event_id))


class Turn(msgspec.Struct):
    """One round of the loop: dirty paths, then the facts, then one request."""

    dirty: frozenset[str]
    facts: tuple[SlotFact, ...]
    request: Request | None


class Inbox:
    """Built anew for each term."""

    def __init__(self, limits: Limits, meters: Meters | None = None) -> None:
        self._limits = limits
        self._meters = meters or Meters()
        self._dirty: set[str] = set()
        self._slots: dict[tuple[object, ...], SlotFact] = {}
        self._requests: deque[Request] = deque()
        self._in_hand: Request | None = None  # taken last: the loop may be deciding on it
        self._arrived = asyncio.Event()
        self._since_s = math.inf  # dirty paths and the facts: they wait for the same turn
        self._is_closed = False

    @property
    def depth(self) -> int:
        return len(self._dirty) + len(self._slots) + len(self._requests)

    def mark_dirty(self, paths: Iterable[str]) -> None:
        self._dirty.update(paths)
        self._arrive_for_all()

    def put(self, fact: SlotFact) -> None:
        """A broker's answer, or the clock."""
        slot: tuple[object, ...] = (type(fact),)
        if isinstance(fact, StopReplicaAnswered | LeaderAndIsrAnswered | RefusalsAnswered | TopicsDescribed):
            slot = (type(fact), fact.broker_id, fact.broker_epoch)
        self._slots[slot] = merged(self._slots[slot], fact) if slot in self._slots else fact
        self._arrive_for_all()

    async def ask(self, event: Event) -> Reply:
        """Queue a request and wait for its reply."""
        if self._is_closed:
            raise NotControllerError("the term is over")
        if len(self._requests) >= self._limits.requests_queued:
            raise BusyError(f"{self._limits.requests_queued} requests are waiting already")
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        request = Request(event, now_s + self._limits.request_deadline_ms / 1000, loop.create_future(), now_s)
        self._requests.append(request)
        self._arrived.set()
        return await request.reply

    def put_back(self, request: Request) -> None:
        """A conflict: first in line again, after the conflicting nodes were read."""
        request.since_s = asyncio.get_running_loop().time()
        self._requests.appendleft(request)
        self._arrived.set()

    def _arrive_for_all(self) -> None:
        """There is something that the next turn takes all of, since now unless there was some already."""
        self._since_s = min(self._since_s, asyncio.get_running_loop().time())
        self._arrived.set()

    async def take(self) -> Turn:
        """Returns the next work; waits while there is none."""
        while not self._dirty and not self._slots and not self._requests:
            self._arrived.clear()
            await self._arrived.wait()
        dirty, self._dirty = frozenset(self._dirty), set()
        facts, self._slots = tuple(self._slots.values()), {}
        self._in_hand = self._next_request()
        oldest_s = min(self._since_s, math.inf if self._in_hand is None else self._in_hand.since_s)
        self._since_s = math.inf
        if oldest_s < math.inf:  # there were not only requests whose time was over
            self._meters.turn_taken(asyncio.get_running_loop().time() - oldest_s)
        return Turn(dirty, facts, self._in_hand)

    def _next_request(self) -> Request | None:
        """Returns the oldest request with a waiting caller whose time is not over."""
        now_s = asyncio.get_running_loop().time()
        while self._requests:
            request = self._requests.popleft()
            if request.reply.done():
                continue
            if now_s < request.deadline_s:
                self._meters.request_taken(now_s - request.since_s)
                return request
            if request.attempts:  # part of it may stand
                request.answer(
                    Reply(detail="others kept changing the same znodes until its time was over", is_unknown=True)
                )
            else:
                request.answer(Reply(Code.REQUEST_TIMED_OUT, "waited too long for its turn; nothing was changed"))
        return None

    def close(self) -> None:
        """The term is over: all waiting callers are told."""
        self._is_closed = True
        for request in self._requests:
            if request.attempts:  # part of it may stand
                request.answer(Reply(detail="the term ended before all of it was decided", is_unknown=True))
            elif not request.reply.done():
                request.reply.set_exception(NotControllerError("the term ended before the request was decided"))
        self._requests.clear()
        if self._in_hand is not None:  # its write may be on the way; nothing to say if it was answered
            self._in_hand.answer(Reply(detail="the term ended while it was decided", is_unknown=True))


def merged(earlier: SlotFact, later: SlotFact) -> SlotFact:
    """Both as one fact. The later one wins for each replica."""
    match earlier, later:
        case StopReplicaAnswered(replicas=known, refused=refused), StopReplicaAnswered():
            return StopReplicaAnswered(
                later.broker_id, later.broker_epoch, known | later.replicas, (refused - later.replicas) | later.refused
            )
        case LeaderAndIsrAnswered(served=served, failed=failed), LeaderAndIsrAnswered():
            return LeaderAndIsrAnswered(
                later.broker_id,
                later.broker_epoch,
                (served - later.failed) | later.served,
                (failed - later.served) | later.failed,
            )
        case TopicsDescribed(topics=topics), TopicsDescribed():
            return TopicsDescribed(later.broker_id, later.broker_epoch, {**topics, **later.topics})
        case RefusalsAnswered(refused=refused, obeyed=obeyed), RefusalsAnswered():
            left = {replica: told for replica, told in refused.items() if replica not in later.obeyed}
            return RefusalsAnswered(
                later.broker_id,
                later.broker_epoch,
                {**left, **later.refused},
                (obeyed - later.refused.keys()) | later.obeyed,
            )
        case TimePassed(is_balance_due=is_due), TimePassed():
            return TimePassed(is_due or later.is_balance_due)
        case TermTold(to_ms=to_ms, why=why, why_before=why_before), TermTold():
            # phases go on being told while the term's own end, or how its predecessor's was, waits to be written down
            if later.to_ms is not None:
                to_ms, why = later.to_ms, later.why
            if later.why_before != "unknown":
                why_before = later.why_before
            return TermTold(later.from_ms, later.phases, to_ms, why, why_before)
        case _:
            raise AssertionError("facts of one slot are of one kind")
