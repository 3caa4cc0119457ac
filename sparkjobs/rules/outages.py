"""Which partitions had no leader, since when, until when, and how sure that is.

A start is `exact` when a controller says it: the move to offline (TRACE), or no leader left, found by a new controller
as it takes over. At Kafka's default level since 2.6 no line says it; it is then `inferred`: not before the lost
leader's last line, not after the first line that presumes it. In our own logs one write replaces a lost leader, so the
outage lies between that leader's last word and the write.

A controller that takes over looks at every partition. A partition that it leaves alone had a leader, so an outage that
only its predecessor had seen ends there. That also keeps the lines of a deposed controller from becoming an outage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparkjobs.rules.facts import (
    Facts,
    Loss,
    Term,
    how_it_went,
)
from sparkjobs.rules.partitions import (
    NO_LEADER,
    by_controllers,
    is_unclean,
)
from sparkjobs.rules.state_machines import GONE, NEW, OFFLINE, ONLINE
from sparkjobs.tables.gold import Outage
from sparkjobs.tables.silver import SilverEvent

EVENTS: Final = frozenset({"partition_changed", "partition_change_failed", "isr_changed", "unclean_elected"})
#: how our controller explains that it replaced a leader that had gone
_LOST_LEADER: Final = frozenset({"broker_gone", "broker_bounced", "term_started", "disk_failed"})


def outages_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[Outage]:
    """Of one partition; `events` in any order."""
    topic = str(events[0].topic) if events else ""
    walk = _OutageHistory(facts, topic, facts.deletions.get(topic, ()))
    for event in by_controllers(events, facts.terms):
        walk.see(event)
    yield from walk.finish()


def may_begin(event: SilverEvent) -> bool:
    """Returns whether this line can begin an outage, whatever the facts are. A partition without such a line has
    none."""
    return (
        OFFLINE in (event.from_state, event.to_state)
        or event.leader == NO_LEADER
        or (event.zxid is not None and event.cause in _LOST_LEADER)
    )


@dataclass(slots=True)
class _OpenOutage:
    """An outage that has not ended yet."""

    first: SilverEvent
    start_ms: int
    lo_ms: int
    hi_ms: int
    evidence: str
    leader_before: int | None
    loss: Loss | None
    attempts: int = 0
    may_be_a_deletion: bool = True  # nothing but the move to offline was seen yet
    is_unclean: bool = False


@dataclass(slots=True)
class _OutageHistory:
    """Goes through a partition's lines in order."""

    facts: Facts
    topic: str
    deletions: Sequence[int]  # when those of the topic began
    now: _OpenOutage | None = None
    leader: int | None = None
    before: SilverEvent | None = None  # the last that said a state
    epoch: int | None = None
    last_ms: int = -1
    led_ms: int | None = None  # the last line that names a living leader
    elected_ms: int | None = None  # the last line of an election
    is_gone: bool = False  # its controller's further lines about it belong to its deletion
    ended: list[Outage] = field(default_factory=list)

    def see(self, event: SilverEvent) -> None:
        """One line more."""
        if self.deletions:
            self._end_by_deletion(event.ts_adj)
        self.last_ms = event.ts_adj
        if event.cause != "found" and event.controller_epoch is not None and event.controller_epoch != self.epoch:
            self._take_over(event)
            self.epoch = event.controller_epoch
        if event.event == "unclean_elected":
            if self.now is not None:
                self.now.is_unclean = True
        elif event.event == "partition_change_failed":
            self._see_failure(event)
        elif event.event == "isr_changed":
            if event.leader == NO_LEADER:
                self._open(event)
            self.leader = self.leader if event.leader in (None, NO_LEADER) else event.leader
        elif event.to_state == OFFLINE:
            self._open(event)
            if self.now is not None and event.leader is not None:
                self.now.may_be_a_deletion = False
        elif event.to_state == ONLINE:
            self._see_online(event)
        elif event.to_state == NEW:
            self.is_gone = False
        elif event.to_state == GONE:
            self.is_gone = True
            if self.now is not None and self.now.may_be_a_deletion:
                self.now = None  # a deletion's way leads through offline
            self._end("deleted", event.ts_adj, "exact")
            self.leader, self.before = None, None
        if event.leader is not None and event.leader >= 0:
            self.led_ms = event.ts_adj
        self.before = self.before if event.isr is None else event

    def finish(self) -> list[Outage]:
        """Returns the outages, when there are no more lines."""
        self._end_by_deletion(self.facts.last_ms)
        self._end(None, None, None)
        return self.ended

    def _see_failure(self, event: SilverEvent) -> None:
        if event.from_state == OFFLINE:
            self._open(event)
        if self.now is not None:
            self.now.attempts += 1
            self.now.may_be_a_deletion = False

    def _see_online(self, event: SilverEvent) -> None:
        if (event.from_state == OFFLINE and event.cause != "found") or self._replaces_a_lost_leader(event):
            self._open(event)
        if self.now is not None:
            self.now.attempts += 1
            self.now.is_unclean |= is_unclean(event, self.before)
            self._end("elected", event.ts_adj, "exact", event)
        self.is_gone = False
        if event.leader is not None:
            self.leader = event.leader
        if event.cause != "found" and event.leader is not None and event.leader >= 0:
            self.elected_ms = event.ts_adj

    def _replaces_a_lost_leader(self, event: SilverEvent) -> bool:
        is_other = event.leader not in (None, NO_LEADER, self.leader) and self.leader not in (None, NO_LEADER)
        return is_other and event.zxid is not None and event.cause in _LOST_LEADER

    def _end_by_deletion(self, by_ms: int) -> None:
        """Ends an outage where its topic is deleted: its owner does not miss it. Later lines begin no outage."""
        for begun_ms in self.deletions:
            if self.last_ms < begun_ms <= by_ms and self.now is not None:
                self._end("deleted", max(begun_ms, self.now.start_ms), "exact")

    def _is_being_deleted(self, at_ms: int) -> bool:
        if not self.deletions:
            return False
        begun_ms = max((ms for ms in self.deletions if ms <= at_ms), default=None)
        if begun_ms is None:
            return False
        ended_ms = max((ms for ms in self.facts.deleted.get(self.topic, ()) if ms < at_ms), default=None)
        return ended_ms is None or ended_ms < begun_ms

    def _term(self, epoch: int | None) -> Term | None:
        for term in self.facts.terms:
            if term.controller_epoch == epoch:
                return term
        return None

    def _take_over(self, event: SilverEvent) -> None:
        """A new controller has looked at every partition. Does it say that this one is offline?"""
        if self.now is None or self.epoch is None:
            return
        first = self.facts.term_after(self.epoch)
        if first is None:
            return
        if event.zxid is not None:
            # our line does not list the partitions that stay offline, and a deposed controller cannot contradict it
            return
        says_so = OFFLINE in (event.from_state, event.to_state) or event.leader == NO_LEADER
        looked_ms = first.ready_ms or first.from_ms
        if event.controller_epoch == first.controller_epoch and says_so and event.ts_adj <= looked_ms:
            return
        if self.now.start_ms >= looked_ms:
            self.now = None  # seen only by a controller whose time was over
        self._end("found_online", looked_ms, "inferred")

    def _open(self, event: SilverEvent) -> None:
        if self.now is not None or self.is_gone or self._is_being_deleted(event.ts_adj):
            return
        at_ms, term = event.ts_adj, self._term(event.controller_epoch)
        is_takeover = term is not None and term.from_ms <= at_ms <= (term.ready_ms or term.from_ms)
        says_so = event.event == "partition_changed" and event.to_state == OFFLINE and event.cause != "found"
        err_ms = event.skew_err_ms or 0
        loss = self._loss_by(at_ms + err_ms)
        if says_so or (is_takeover and event.leader == NO_LEADER):
            self.now = _OpenOutage(event, at_ms, at_ms - err_ms, at_ms + err_ms, "exact", self.leader, loss)
            return
        heard_ms = None if loss is None else self.facts.last_heard_ms(loss)
        lo_ms = min(self.facts.first_ms if heard_ms is None else heard_ms, at_ms)
        start_ms = at_ms if loss is None else min(max(loss.detected_ms, lo_ms), at_ms)
        # two clocks are compared here, and each may be wrong
        lo_ms -= 0 if loss is None else self.facts.clock_err_ms.get(loss.broker) or 0
        if self.led_ms is not None and self.led_ms <= start_ms:
            lo_ms = max(lo_ms, self.led_ms - err_ms)
        self.now = _OpenOutage(event, start_ms, lo_ms, at_ms + err_ms, "inferred", self.leader, loss)

    def _loss_by(self, at_ms: int) -> Loss | None:
        """The last time its leader went; not if it came back, and led it again, after that."""
        loss = None if self.leader == NO_LEADER else self.facts.loss_of(self.leader, at_ms)
        if loss is None or self.led_ms is None:
            return loss
        if self.elected_ms is not None and self.elected_ms > loss.detected_ms:
            return None  # only a live broker is elected
        is_past = any(loss.detected_ms < ms <= self.led_ms for ms in self.facts.returns.get(loss.broker, ()))
        return None if is_past else loss

    def _end(self, how: str | None, end_ms: int | None, evidence: str | None, by: SilverEvent | None = None) -> None:
        """By an election, by a deletion, by a new controller that found it led; or not at all."""
        now, self.now = self.now, None
        if now is None:
            return
        first = now.first
        broker = None if now.leader_before == NO_LEADER else now.leader_before
        loss = now.loss
        outage = Outage(
            cluster=first.cluster,
            topic=self.topic,
            partition=-1 if first.partition is None else first.partition,
            start_ms=now.start_ms,
            end_ms=end_ms,
            start_lo_ms=now.lo_ms,
            start_hi_ms=now.hi_ms,
            evidence=now.evidence,
            end_evidence=evidence,
            ended_by=how,
            cause=self._cause(first, loss),
            first_broker=broker,
            leader_last_seen_ms=None if loss is None else self.facts.last_heard_ms(loss),
            leader=None if by is None else by.leader,
            leader_epoch=None if by is None else by.leader_epoch,
            controller_epoch=first.controller_epoch,
            election_attempts=now.attempts,
            unclean=now.is_unclean,
            open=how is None,
            unseen=self._unseen(first) if how is None else None,
            file_id=first.file_id,
            line_no=first.line_no,
        )
        self.ended.append(outage)

    def _unseen(self, first: SilverEvent) -> str | None:
        """Why an end of it could not have been seen, if that is so."""
        if not self.facts.is_end_told:
            return "controller"
        holders = {first.broker}
        holders |= {term.broker for term in self.facts.terms if term.controller_epoch > (first.controller_epoch or 0)}
        return None if holders <= self.facts.tell_deletions else "deletion"

    def _cause(self, first: SilverEvent, loss: Loss | None) -> str:
        if first.cause == "disk_failed":
            return "disk_failed"
        if loss is None:
            return "unknown"
        if how_it_went(loss, self.facts) == "stopped":
            return "broker_stopped"
        return "controller_lost" if loss.was_controller else "broker_lost"
