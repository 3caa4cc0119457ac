"""Moves that Kafka's state machines do not know: those a line says were done, and those a controller refused. A bug
of a controller, or a log put together from two clusters, shows here first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from sparkjobs.rules.moves import OF_MANY, bits_of, numbers_in
from sparkjobs.rules.state_machines import LEGAL, OLDER, UNKNOWN, known_as
from sparkjobs.tables.gold import IllegalTransition
from sparkjobs.tables.silver import SilverEvent

EVENTS: Final = frozenset({"partition_changed", "partition_change_failed", "replica_changed", "replica_change_failed"})

#: pairs that are no finding
KNOWN: Final = LEGAL | OLDER.keys()
_REFUSAL: Final = "IllegalStateException"


def is_illegal(event: SilverEvent) -> bool:
    """A line that does not say where it came from cannot be judged."""
    if event.event in ("partition_change_failed", "replica_change_failed"):
        return _REFUSAL in (event.trace or "")
    if event.event not in EVENTS or event.from_state is None or event.to_state is None:
        return False
    return known_as(event.from_state, event.to_state) == UNKNOWN


def illegal_transitions_of(events: Iterable[SilverEvent]) -> Iterator[IllegalTransition]:
    """Of events of any partition, in any order."""
    for event in events:
        if is_illegal(event):
            yield IllegalTransition(
                cluster=event.cluster,
                topic=str(event.topic),
                partition=-1 if event.partition is None else event.partition,
                at_ms=event.ts_adj,
                machine="replica" if event.event.startswith("replica") else "partition",
                replica=event.peer_broker,
                controller_epoch=event.controller_epoch,
                from_state=event.from_state,
                to_state=event.to_state,
                how="refused" if event.event.endswith("failed") else "done",
                file_id=event.file_id,
                line_no=event.line_no,
            )


def illegal_moves_of_many(lines: Iterable[SilverEvent]) -> Iterator[IllegalTransition]:
    """Of our lines about moves: a row for each topic that such a line names."""
    for event in lines:
        if event.event != OF_MANY or known_as(event.from_state, str(event.to_state)) != UNKNOWN:
            continue
        for text in event.partitions or ():
            topic, _, ranges = text.rpartition(" ")
            bits = bits_of(ranges)
            yield IllegalTransition(
                cluster=event.cluster,
                topic=topic,
                partition=next(numbers_in(bits)),
                at_ms=event.ts_adj,
                machine=event.machine or "partition",
                replica=event.peer_broker,
                controller_epoch=event.controller_epoch,
                from_state=event.from_state,
                to_state=event.to_state,
                how="done",
                partitions=bits.bit_count(),
                file_id=event.file_id,
                line_no=event.line_no,
            )
