"""The loop: the single writer, one event at a time.

see, decide, commit, believe, record, tell, answer: the order is written once, in `_settle`. No broker is told a state
that ZooKeeper has not accepted, and only standing changes are believed: a large step piece by piece as it lands, while
ZooKeeper writes the rest of it; it is told as a whole. A change that did not stand is read again in the next turn and
decided anew; a request keeps its place in line and its reply. A write that ZooKeeper refuses is left out alone,
reported, and tried again after a pause for as long as the term lasts.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from random import Random
from typing import Protocol

import msgspec
import structlog

from controller.base.config import Limits
from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import (
    Change,
    Committed,
    RefusalEnded,
    Refused,
    StateDecided,
    SubjectParked,
    TopicGone,
    Unreadable,
    WriteRefused,
)
from controller.core.changes.duties import OperatorErrorReported, TopicErased
from controller.core.decide.broker_refusals import read_first
from controller.core.decide.configs import is_known
from controller.core.decide.dispatch import decide
from controller.core.decide.reassignment import due_after
from controller.core.decide.refused_writes import answers_for
from controller.core.events import (
    AlterPartitionAsked,
    ConfigAsked,
    DrainAsked,
    Event,
    ReassignAsked,
    RequestEvent,
    TimePassed,
    UndrainAsked,
)
from controller.core.model import PartitionKey
from controller.core.project.lines import Line, Stamp, grouped_lines, lines_for, move_lines
from controller.core.project.refusals import BAD_VERSION, trouble_of
from controller.core.project.requests import Telling, requests_for
from controller.core.project.znodes import DRAINING, config_path
from controller.loop.inbox import Inbox, Reply, Request
from controller.loop.planned_writes import RefusedWrite
from controller.loop.reader import Reader
from controller.loop.replies import reply_for
from controller.loop.retries import Retries
from controller.loop.store import Store
from controller.statelog.metrics import Meters

log = structlog.get_logger()

_LEFT_OUT = (SubjectParked, Unreadable, OperatorErrorReported)


class Teller(Protocol):
    """The outboxes, as the loop knows them."""

    def accept(self, telling: Telling, event_id: str) -> None: ...


class Recorder(Protocol):
    """The journal, as the loop knows it."""

    def accept(self, lines: Sequence[Line]) -> None: ...


class EventResult(msgspec.Struct):
    """How an event fared."""

    stood: list[Committed] = []
    #: requested changes that ZooKeeper refuses
    refused: list[Refused] = []
    #: some of it met another writer, and is read again in the next turn
    is_conflicted: bool = False
    #: all of it stands
    is_whole: bool = True


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
        wall_ms: Callable[[], int],
        clock: Callable[[], float],
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
        self._wall_ms = wall_ms
        self._clock = clock
        self._entropy = entropy
        self._on_phase = on_phase
        self._events = 0
        self._decided_ms = 0.0
        #: by subject and the znode that was to be written
        self._conflicts: Counter[tuple[str, str]] = Counter()
        self._retries = Retries(limits, clock)
        #: reassignments that were due, and whose decision did not stand
        self._overdue: frozenset[PartitionKey] = frozenset()
        #: of which event lines about moves were written last, and how many
        self._parts = ("", 0)

    async def run(self) -> None:
        """Turn after turn, until the term ends."""
        while True:
            turn = await self._inbox.take()
            # with the clock, by which all that is not decided by reading is decided again, too
            due = self._retries.due() if any(isinstance(fact, TimePassed) for fact in turn.facts) else []
            dirty = {*turn.dirty, *read_first(self.cluster, turn.facts, self._clock_ms), *self._paths_of(due)}
            asked = None if turn.request is None else turn.request.event
            if isinstance(asked, UndrainAsked):
                dirty.update(self._reader.unread.below(DRAINING))  # a drain that is not known cannot be ended
            elif isinstance(asked, ConfigAsked) and is_known(self.cluster, asked):
                dirty.add(config_path(asked.kind, asked.entity))  # a tool may have changed it without announcing it
            for event in (*await self._reader.see_surely(dirty), *turn.facts):
                await self.settle_whole(event)
            overdue, self._overdue = self._overdue, frozenset()
            await self._follow_up((), overdue)  # their znodes were read again, and may say nothing new
            self._forget_unwanted(due)
            if turn.request is not None:
                await self._answer(turn.request)

    async def settle_whole(self, event: Event) -> None:
        """An event, and the reassignments that it makes due: each of these is an event of its own."""
        settled = await self.settle(event)
        await self._follow_up(settled.stood)

    async def _follow_up(self, stood: Sequence[Committed], overdue: Iterable[PartitionKey] = ()) -> None:
        due = due_after(self.cluster, stood, overdue)
        while due is not None:
            settled = await self.settle(due)
            if not settled.is_whole:
                self._overdue |= due.partitions
            due = due_after(self.cluster, settled.stood)

    async def settle(self, event: Event) -> EventResult:
        """Decide one event and make it stand, step by step."""
        started = time.perf_counter()
        with self._meters.handling(event):
            settled = await self._settle(event)
        if settled.stood or settled.is_conflicted:
            took_ms = round((time.perf_counter() - started) * 1_000, 1)
            log.info(
                "event.settled", kind=type(event).__name__, event_id=self._event_id, changes=len(settled.stood),
                newest_zxid=max((one.zxid for one in settled.stood), default=0), is_settled=settled.is_whole,
                took_ms=took_ms, decided_ms=self._decided_ms,
            )  # fmt: skip
        return settled

    async def _settle(self, event: Event) -> EventResult:
        self._events += 1
        event_id = self._event_id
        started = time.perf_counter()
        steps = await self._decide(event)
        self._decided_ms = round((time.perf_counter() - started) * 1_000, 1)
        self._on_phase("decided")
        settled = EventResult()
        dropped: set[str] = set()
        for number in sorted(steps):
            is_asked = isinstance(event, ReassignAsked) or (_has_caller(event) and number == 0)
            changes, held = self._without_held(steps[number], event, is_asked=is_asked)
            if dropped:  # a partition that was never led is led when its topic is read again
                left = (change for change in changes if change.subject in dropped)
                self._mark_dirty(one for one in left if not (isinstance(one, StateDecided) and one.is_first))
                changes = [change for change in changes if change.subject not in dropped]
            result = await self._store.commit(self.cluster, changes, partial(self._stand, event_id))
            self._on_phase("committed")
            self._tell(result.committed, event_id)
            settled.stood += result.committed
            hopeless = self._read_again(result.unsettled)
            refused = self._refuse([*result.refused, *hopeless], event_id, is_asked=is_asked)
            self._end_refusals(result.committed, {one.target for one in refused}, event_id)
            if is_asked:
                settled.refused += [one for each in (*held, *refused) for one in answers_for(self.cluster, each)]
            # the later steps of a subject rest on this one; other subjects do not
            dropped |= {one.subject for one in (*result.unsettled, *held, *refused)}
            settled.is_conflicted |= len(hopeless) < len(result.unsettled)
            if _has_caller(event) and (settled.is_conflicted or (number == 0 and refused)):
                break  # all of a request is decided again, and nothing is done of one that is refused
        self._on_phase("told")
        settled.is_whole = not dropped
        return settled

    def _stand(self, event_id: str, committed: Sequence[Committed]) -> None:
        """Committed: believe and record, here and nowhere else. A large step comes in pieces, while ZooKeeper still
        writes the rest of it."""
        self._meters.committed(self.cluster, committed)
        moves = self.cluster.apply(committed)
        self._meters.moved(moves)
        stamp = Stamp(
            self._wall_ms(), self._cluster_id, self.cluster.controller_id, self.cluster.controller_epoch, event_id
        )
        if self._parts[0] != event_id:
            self._parts = (event_id, 0)
        lines = list(lines_for(self.cluster, committed, stamp))
        grouped = list(grouped_lines(committed, stamp, self._parts[1] + 1))
        grouped += move_lines(moves, stamp, self._parts[1] + len(grouped) + 1)
        self._parts = (event_id, self._parts[1] + len(grouped))
        lines += grouped
        for journal in self._journals:
            journal.accept(lines)
        for one in committed:
            if isinstance(one.change, _LEFT_OUT):
                log.error("subject.left_out", subject=one.change.subject, trouble=one.change.trouble)
        for move in moves:
            if not move.is_legal:
                log.error(
                    "move.illegal", source=move.source.value, target=move.target.value, topics=sorted(move.topics)
                )

    def _tell(self, committed: Sequence[Committed], event_id: str) -> None:
        """All of a step that stands is told together: no broker hears half of it."""
        telling = requests_for(self.cluster, committed)
        if not telling.is_empty:
            self._outboxes.accept(telling, event_id)

    async def _decide(self, event: Event) -> dict[int, list[Change]]:
        """Returns all steps of a decision; the event loop may breathe between two slices, belief does not change."""
        steps: dict[int, list[Change]] = {}
        seed = self._entropy.getrandbits(64)
        slices = decide(self.cluster, event, self._clock_ms, seed, changes_per_slice=self._limits.changes_per_slice)
        for piece in slices:
            steps.setdefault(piece.step, []).extend(piece.changes)
            await asyncio.sleep(0)
        return steps

    def _read_again(self, unsettled: Sequence[Change]) -> list[RefusedWrite]:
        """Nodes in conflict are dirty, and read in the next turn. A change that never comes to stand, because other
        writers are always faster, is as good as refused: it waits for a while, and others are served."""
        hopeless: list[RefusedWrite] = []
        for change in unsettled:
            target = change.target_path(self.cluster) or ""
            self._conflicts[change.subject, target] += 1
            if self._conflicts[change.subject, target] <= self._limits.conflicts_per_subject:
                self._mark_dirty([change])
            else:
                hopeless.append(RefusedWrite(change, "write", target, BAD_VERSION))
        return hopeless

    def _without_held(
        self, changes: list[Change], event: Event, *, is_asked: bool
    ) -> tuple[list[Change], list[WriteRefused]]:
        """Returns the changes that may be tried now, and those that ZooKeeper refused lately and that wait until they
        are due. A caller by hand may have mended it just now, and does not wait. Nor does a change of our own wait for
        a caller: nobody but the caller tries again what is held back for one."""
        is_by_hand = _has_caller(event) and not isinstance(event, AlterPartitionAsked)
        if not self.cluster.refused or is_by_hand:
            return changes, []
        subjects = {one.subject for one in self.cluster.refused.values()}
        free: list[Change] = []
        held: list[WriteRefused] = []
        for change in changes:
            target = change.target_path(self.cluster) if change.subject in subjects else None
            refused = None if target is None else self.cluster.refused.get(target)
            if refused is not None and (is_asked or not refused.is_asked) and self._retries.holds(refused.target):
                held.append(msgspec.structs.replace(refused, change=change))
            else:
                free.append(change)
        return free, held

    def _refuse(self, refused: Sequence[RefusedWrite], event_id: str, *, is_asked: bool) -> list[WriteRefused]:
        """Believe and log ZooKeeper's refusals, and when they are tried again. What the controller wants by itself
        stays its own, though a caller asks for it, too: the caller is told, and the controller tries it again."""
        noted: list[WriteRefused] = []
        believed: list[WriteRefused] = []
        for one in refused:
            target = one.change.target_path(self.cluster) or one.path
            attempts, pause_ms = self._retries.refused(target)
            before = self.cluster.refused.get(target)
            since_ms = self._wall_ms() if before is None else before.since_ms
            subject = one.change.subject
            found = WriteRefused(
                target, subject, one.change, one.verb, one.path, one.code, since_ms, pause_ms, attempts, one.below,
                is_asked,
            )  # fmt: skip
            log.warning(
                "write.refused", subject=subject, trouble=trouble_of(found), attempts=attempts, retry_ms=pause_ms
            )
            noted.append(found)
            if is_asked and before is not None and not before.is_asked:
                found = msgspec.structs.replace(before, attempts=attempts, retry_ms=pause_ms)
            believed.append(found)
        if believed:
            self._stand(event_id, [Committed(one) for one in believed])
        return noted

    def _end_refusals(self, committed: Sequence[Committed], refused: Collection[str], event_id: str) -> None:
        """A write that stands after all is refused no more; a topic that is gone needs no write any more."""
        if not self._conflicts and not self.cluster.refused:
            return
        subjects = {one.subject for one in self.cluster.refused.values()} | {subject for subject, _ in self._conflicts}
        for one in committed:
            subject = one.change.subject
            if subject not in subjects:
                continue
            target = one.change.target_path(self.cluster) or ""
            self._conflicts.pop((subject, target), None)
            if isinstance(one.change, TopicErased | TopicGone):
                for each in [each for each in self.cluster.refused.values() if each.subject == subject]:
                    self._end_refusal(each, "the topic is gone", event_id)
            elif target in self.cluster.refused and target not in refused:
                self._end_refusal(self.cluster.refused[target], "written", event_id)

    def _end_refusal(self, refused: WriteRefused, reason: str, event_id: str) -> None:
        self._retries.end(refused.target)
        self._stand(event_id, [Committed(RefusalEnded(refused.target, refused.subject, f"{refused.path}: {reason}"))])

    def _paths_of(self, due: Iterable[str]) -> set[str]:
        """Returns the znodes to be read again for the writes that are tried again."""
        found = [self.cluster.refused[target] for target in due if target in self.cluster.refused]
        changes = [one.change for one in found if not one.is_asked]
        return {write.path for change in changes for write in change.writes(self.cluster)}

    def _forget_unwanted(self, due: Iterable[str]) -> None:
        """A write that was due and tried by nothing is wanted no more."""
        for target in due:
            refused = self.cluster.refused.get(target)
            if refused is None:
                self._retries.end(target)
            elif self._retries.is_unwanted(target, is_asked=refused.is_asked):
                self._end_refusal(refused, "nothing has to be written there any more", self._event_id)

    def _mark_dirty(self, changes: Iterable[Change]) -> None:
        """Their znodes are read in the next turn, and the next decision rests on their content."""
        for change in changes:
            self._inbox.mark_dirty(write.path for write in change.writes(self.cluster))

    async def _answer(self, request: Request) -> None:
        request.event_id = self._id_of(self._events + 1)
        settled = await self.settle(request.event)
        request.attempts += 1
        if not settled.is_conflicted:
            outcome = [*settled.stood, *map(Committed, settled.refused)]
            request.answer(reply_for(self.cluster, request.event, outcome))
        elif request.attempts <= self._limits.resends_after_conflict:
            self._inbox.put_back(request)
        else:
            detail = "others kept changing the same znodes; read the topic to see its state"
            request.answer(Reply(detail=detail, is_unknown=True))
        await self._follow_up(settled.stood)  # answered first: the answer is about the request alone

    @property
    def _clock_ms(self) -> int:
        """The term's clock, as decisions are given it."""
        return round(self._clock() * 1_000)

    @property
    def _event_id(self) -> str:
        """Of the event in hand, or settled last."""
        return self._id_of(self._events)

    def _id_of(self, number: int) -> str:
        return f"{self.cluster.controller_epoch}-{number}"


def _has_caller(event: Event) -> bool:
    """Returns whether a caller waits for the outcome. A drain that was read from its znode has none."""
    return isinstance(event, RequestEvent) and not (isinstance(event, DrainAsked) and event.is_found)
