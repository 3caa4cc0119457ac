"""Reassignments and deletions that began and whose end is not in the logs, with the last thing heard of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sparkjobs.answers.facts import Facts
from sparkjobs.gold import StuckOp
from sparkjobs.schemas import SilverEvent

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
    }
)
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


def stuck_ops_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[StuckOp]:
    """Of one topic, with all its partitions; `events` in any order. A new start of the same thing goes on with it."""
    running: dict[tuple[str, int | None], list[SilverEvent]] = {}
    for event in sorted(events, key=lambda event: (event.ts_adj, event.event_id)):
        name = _OUR_TOPICS.get(event.to_state or "", "") if event.event == "topic_changed" else event.event
        if event.event == "reassignment_step" and event.reason == _WRITTEN:
            # nothing being added or removed any more is its end; what begins it has no line of its own at INFO
            name = "reassignment_started" if event.added or event.removed else "reassignment_done"
        if name in _BEGINS:
            running.setdefault((_BEGINS[name], event.partition), []).append(event)
        elif name in _STEPS and (_STEPS[name], event.partition) in running:
            running[_STEPS[name], event.partition].append(event)
        elif name in _ENDS:
            running.pop((_ENDS[name], event.partition), None)
            if name == "topic_deleted":
                running.clear()  # a reassignment of what is deleted is over too
    for (kind, partition), steps in running.items():
        first, last = steps[0], steps[-1]
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
