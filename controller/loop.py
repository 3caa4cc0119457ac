"""The loop: the single writer, one event at a time.

see, decide, commit, believe, record, tell, answer: the order is written once, in `_settle`. Nothing is told to a broker
that ZooKeeper has not accepted, and only what stands is believed: a large step piece by piece as it lands, while
ZooKeeper writes the rest of it; told it is as a whole. What did not stand is read again in the next turn and
decided anew; a request keeps its place in line and its reply.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Protocol

import structlog

from controller.answers import reply_for
from controller.config import Limits
from controller.core.admin import Reported
from controller.core.changes import Change, Committed, StateDecided, SubjectParked, Unreadable
from controller.core.cluster import Cluster
from controller.core.decide import decide
from controller.core.events import Event
from controller.core.events import Request as AskedEvent
from controller.core.goals import Key
from controller.core.lines import Line, Stamp, lines_for
from controller.core.reassignment import due_after
from controller.core.requests import Telling, is_first, requests_for
from controller.core.znodes import writes_for
from controller.inbox import Inbox, Reply, Request
from controller.metrics import Meters
from controller.reader import Reader
from controller.store import Store

log = structlog.get_logger()

_LEFT_OUT = (SubjectParked, Unreadable, Reported)


class Teller(Protocol):
    """The outboxes, as the loop knows them."""

    def accept(self, telling: Telling, event_id: str) -> None: ...


class Recorder(Protocol):
    """The journal, as the loop knows it."""

    def accept(self, lines: Sequence[Line]) -> None: ...


class Loop:
    """The only place where belief changes. Built anew for each term."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        cluster_id: str,
        reader: Reader,
        store: Store,
        inbox: Inbox,
        outboxes: Teller,
        journals: Sequence[Recorder],
        limits: Limits,
        meters: Meters,
        now_ms: Callable[[], int],
        entropy: Random,
        on_phase: Callable[[str], None],
    ) -> None:
        self.cluster = cluster
        self._cluster_id = cluster_id
        self._reader = reader
        self._store = store
        self._inbox = inbox
        self._outboxes = outboxes
        self._journals = journals
        self._limits = limits
        self._meters = meters
        self._now_ms = now_ms
        self._entropy = entropy
        self._on_phase = on_phase
        self._events = 0
        self._decided_ms = 0.0
        self._conflicts: Counter[str] = Counter()
        #: reassignments that were due, and what was decided did not stand
        self._overdue: frozenset[Key] = frozenset()

    async def run(self) -> None:
        """Turn after turn, until the term ends."""
        while True:
            turn = await self._inbox.take()
            for event in (*await self._reader.see_surely(turn.dirty), *turn.facts):
                await self.settle_whole(event)
            overdue, self._overdue = self._overdue, frozenset()
            await self._follow_up((), overdue)  # their znodes were read again, and may say nothing new
            if turn.request is not None:
                await self._answer(turn.request)

    async def settle_whole(self, event: Event) -> None:
        """An event, and the reassignments that it makes due: each of these is an event of its own."""
        stood, _ = await self.settle(event)
        await self._follow_up(stood)

    async def _follow_up(self, stood: Sequence[Committed], overdue: Iterable[Key] = ()) -> None:
        due = due_after(self.cluster, stood, overdue)
        while due is not None:
            stood, is_settled = await self.settle(due)
            if not is_settled:
                self._overdue |= due.partitions
            due = due_after(self.cluster, stood)

    async def settle(self, event: Event) -> tuple[list[Committed], bool]:
        """Decide one event and make it stand, step by step. Returns what stands, and whether all of it does."""
        started = time.perf_counter()
        with self._meters.handling(event):
            stood, is_settled = await self._settle(event)
        if stood or not is_settled:
            took_ms = round((time.perf_counter() - started) * 1_000, 1)
            log.info(
                "event.settled", kind=type(event).__name__, event_id=self._event_id, changes=len(stood),
                newest_zxid=max((one.zxid for one in stood), default=0), is_settled=is_settled, took_ms=took_ms,
                decided_ms=self._decided_ms,
            )  # fmt: skip
        return stood, is_settled

    async def _settle(self, event: Event) -> tuple[list[Committed], bool]:
        self._events += 1
        event_id = self._event_id
        started = time.perf_counter()
        steps = await self._decide(event)
        self._decided_ms = round((time.perf_counter() - started) * 1_000, 1)
        self._on_phase("decided")
        stood: list[Committed] = []
        dropped: set[str] = set()
        for number in sorted(steps):
            changes = steps[number]
            if dropped:  # what was never led is led when its topic is read again
                changes = [change for change in changes if change.subject not in dropped]
                left = (change for change in steps[number] if change.subject in dropped)
                self._mark_dirty(one for one in left if not (isinstance(one, StateDecided) and is_first(one)))
            result = await self._store.commit(self.cluster, changes, partial(self._stand, event_id))
            self._on_phase("committed")
            self._tell(result.committed, event_id)
            stood += result.committed
            # the later steps of a subject rest on this one; other subjects do not
            dropped |= {change.subject for change in result.unsettled}
            self._read_again(result.unsettled, event_id)
            if dropped and isinstance(event, AskedEvent):
                break  # all of a request is decided again
        self._on_phase("told")
        for subject in self._conflicts.keys() - dropped:
            if any(one.change.subject == subject for one in stood):
                del self._conflicts[subject]
        return stood, not dropped

    def _stand(self, event_id: str, committed: Sequence[Committed]) -> None:
        """Committed: believe and record, here and nowhere else. A large step comes in pieces, while ZooKeeper still
        writes the rest of it."""
        self._meters.committed(self.cluster, committed)
        self.cluster.apply(committed)
        stamp = Stamp(
            self._now_ms(), self._cluster_id, self.cluster.controller_id, self.cluster.controller_epoch, event_id
        )
        lines = list(lines_for(self.cluster, committed, stamp))
        for journal in self._journals:
            journal.accept(lines)
        for one in committed:
            if isinstance(one.change, _LEFT_OUT):
                log.error("subject.left_out", subject=one.change.subject, trouble=one.change.trouble)

    def _tell(self, committed: Sequence[Committed], event_id: str) -> None:
        """All of a step that stands is told together: nobody hears half of it."""
        telling = requests_for(self.cluster, committed)
        if not telling.is_empty:
            self._outboxes.accept(telling, event_id)

    async def _decide(self, event: Event) -> dict[int, list[Change]]:
        """All steps of a decision; the event loop may breathe between two slices, belief does not change."""
        steps: dict[int, list[Change]] = {}
        seed = self._entropy.getrandbits(64)
        slices = decide(self.cluster, event, self._now_ms(), seed, changes_per_slice=self._limits.changes_per_slice)
        for piece in slices:
            steps.setdefault(piece.step, []).extend(piece.changes)
            await asyncio.sleep(0)
        return steps

    def _read_again(self, unsettled: Sequence[Change], event_id: str) -> None:
        """What conflicted is dirty. A subject that never comes to stand is left out: others must be served."""
        self._conflicts.update({change.subject for change in unsettled})
        limit = self._limits.conflicts_per_subject
        self._mark_dirty(change for change in unsettled if self._conflicts[change.subject] <= limit)
        hopeless = {
            one.subject for one in unsettled if self._conflicts[one.subject] > self._limits.conflicts_per_subject
        }
        trouble = "its znodes kept refusing what was decided"
        parked = [Committed(SubjectParked(one, trouble)) for one in sorted(hopeless) if one not in self.cluster.parked]
        if parked:
            self._stand(event_id, parked)

    def _mark_dirty(self, changes: Iterable[Change]) -> None:
        """Their znodes are read in the next turn, and what they need is decided from what is there."""
        for change in changes:
            self._inbox.mark_dirty(write.path for write in writes_for(self.cluster, change))

    async def _answer(self, request: Request) -> None:
        request.event_id = self._id_of(self._events + 1)
        stood, is_settled = await self.settle(request.event)
        request.attempts += 1
        if is_settled:
            request.answer(reply_for(self.cluster, request.event, stood))
        elif request.attempts <= self._limits.resends_after_conflict:
            self._inbox.put_back(request)
        else:
            detail = "others kept changing the same znodes; read the topic to see what stands"
            request.answer(Reply(detail=detail, is_unknown=True))
        await self._follow_up(stood)  # answered first: the answer is about what was asked

    @property
    def _event_id(self) -> str:
        """Of the event in hand, or settled last."""
        return self._id_of(self._events)

    def _id_of(self, number: int) -> str:
        return f"{self.cluster.controller_epoch}-{number}"
