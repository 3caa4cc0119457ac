"""Operations that were requested for topics and partitions: reassignments, deletions and elections of the first
replica.

An operation that ended has its outcome. One whose end is not in the logs has its last line. In our own logs an election
has no line but the leader's change, which gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparkjobs.rules.facts import Facts
from sparkjobs.tables.gold import Operation, StuckOp
from sparkjobs.tables.silver import SilverEvent

EVENTS: Final = frozenset(
    {
        "reassignment_started",
        "reassignment_step",
        "reassignment_done",
        "reassignment_failed",
        "topic_deletion_started",
        "topic_deletion_halted",
        "topic_deleted",
        "topic_changed",
        "preferred_election_done",
    }
)
PREFERRED: Final = "preferred election"
_BEGINS: Final = {"reassignment_started": "reassignment", "topic_deletion_started": "deletion"}
_ENDS: Final = {"reassignment_done": "reassignment", "reassignment_failed": "reassignment", "topic_deleted": "deletion"}
_STEPS: Final = {"reassignment_step": "reassignment", "topic_deletion_halted": "deletion"}
#: since 2.4 the end of a reassignment is a last write of its assignment
_WRITTEN: Final = "assignment written"
#: our own words for the same
_OUR_TOPICS: Final = {
    "deleting": "topic_deletion_started",
    "waiting": "topic_deletion_halted",
    "deleted": "topic_deleted",
}
#: the end of a reassignment is told in up to three lines
_SAME_END_MS: Final = 10_000

_Key = tuple[str, int | None]  # kind, partition


@dataclass(slots=True)
class _Op:
    steps: list[SilverEvent]
    ends: list[SilverEvent] = field(default_factory=list)


@dataclass(slots=True)
class _TopicHistory:
    """Goes through a topic's lines in order of time."""

    running: dict[_Key, _Op] = field(default_factory=dict)
    ended: list[tuple[_Key, _Op]] = field(default_factory=list)
    last: dict[_Key, _Op] = field(default_factory=dict)

    def see(self, name: str, event: SilverEvent) -> None:
        """Takes an event. A new start of a running operation continues it."""
        if name in _BEGINS:
            key = (_BEGINS[name], event.partition)
            self.running.setdefault(key, _Op([])).steps.append(event)
        elif name in _STEPS and (op := self.running.get((_STEPS[name], event.partition))) is not None:
            op.steps.append(event)
        elif name in _ENDS:
            self._end((_ENDS[name], event.partition), event)
            if name == "topic_deleted":
                for key in list(self.running):
                    self._end(key, event)  # the deletion of a topic also ends its reassignments
        elif name == "preferred_election_done":
            self.ended.append(((PREFERRED, event.partition), _Op([event], [event])))

    def _end(self, key: _Key, event: SilverEvent) -> None:
        op, before = self.running.pop(key, None), self.last.get(key)
        if op is None and before is not None and event.ts_adj - before.ends[-1].ts_adj <= _SAME_END_MS:
            before.ends.append(event)
            return
        op = _Op([event]) if op is None else op  # one that only changes the order of replicas has no start
        op.ends.append(event)
        self.last[key] = op
        self.ended.append((key, op))


def _walked(events: Sequence[SilverEvent]) -> _TopicHistory:
    walk = _TopicHistory()
    for event in sorted(events, key=lambda event: (event.ts_adj, event.event_id)):
        walk.see(_name_of(event), event)
    return walk


def _name_of(event: SilverEvent) -> str:
    """In Kafka's words."""
    if event.event == "topic_changed":
        return _OUR_TOPICS.get(event.to_state or "", "")
    if event.event == "reassignment_step" and event.reason == _WRITTEN:
        # a reassignment ends when no replica is being added or removed; at INFO its beginning has no line of its own
        return "reassignment_started" if event.added or event.removed else "reassignment_done"
    return event.event


def operations_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[Operation]:
    """Returns the operations of one topic, with all its partitions, that ended. `events` may be in any order."""
    for (kind, partition), op in _walked(events).ended:
        first, last = op.steps[0], op.ends[-1]
        is_failed = any(event.event == "reassignment_failed" for event in op.ends)
        is_dropped = kind == "reassignment" and _name_of(last) == "topic_deleted"
        yield Operation(
            cluster=facts.cluster,
            kind=kind,
            topic=str(first.topic),
            partition=partition,
            started_ms=first.ts_adj,
            ended_ms=last.ts_adj,
            outcome="failed" if is_failed else "dropped" if is_dropped else "done",
            why=next((step.reason for step in reversed(op.steps) if _name_of(step) == "topic_deletion_halted"), None),
            file_id=first.file_id,
            line_no=first.line_no,
        )


def elections_asked(facts: Facts) -> Iterator[Operation]:
    """Returns the requested elections of first replicas. Each request is for many partitions."""
    for one in facts.asked:
        yield Operation(
            cluster=facts.cluster,
            kind=PREFERRED,
            started_ms=one.at_ms,
            ended_ms=one.at_ms,
            outcome="asked",
            why=one.why,
            file_id=one.file_id,
            line_no=one.line_no,
        )


def stuck_ops_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[StuckOp]:
    """Returns the operations of one topic, with all its partitions, that did not end. `events` may be in any order."""
    for (kind, partition), op in _walked(events).running.items():
        first, last = op.steps[0], op.steps[-1]
        yield StuckOp(
            cluster=first.cluster,
            kind=kind,
            topic=str(first.topic),
            partition=partition,
            started_ms=first.ts_adj,
            last_step_ms=last.ts_adj,
            last_step=last.reason or last.event.replace("_", " "),
            age_ms=facts.last_ms - first.ts_adj,
            file_id=first.file_id,
            line_no=first.line_no,
        )
