"""Moves that Kafka's state machines do not know: those a line says were done, and those a controller refused.

The tables are those of all versions together. A bug of a controller, or a log put together from two clusters, shows
here first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from sparkjobs.tables.gold import IllegalTransition
from sparkjobs.tables.silver import SilverEvent

EVENTS: Final = frozenset({"partition_changed", "partition_change_failed", "replica_changed", "replica_change_failed"})

#: target: the states it may be entered from
PARTITION: Final = {
    "NewPartition": ("NonExistentPartition",),
    "OnlinePartition": ("NewPartition", "OnlinePartition", "OfflinePartition"),
    "OfflinePartition": ("NewPartition", "OnlinePartition", "OfflinePartition"),
    "NonExistentPartition": ("OfflinePartition",),
}
_ALIVE: Final = ("NewReplica", "OnlineReplica", "OfflineReplica", "ReplicaDeletionIneligible")
REPLICA: Final = {
    "NewReplica": ("NonExistentReplica",),
    "OnlineReplica": _ALIVE,
    "OfflineReplica": _ALIVE,
    "ReplicaDeletionStarted": ("OfflineReplica",),
    "ReplicaDeletionSuccessful": ("ReplicaDeletionStarted",),
    "ReplicaDeletionIneligible": ("ReplicaDeletionStarted", "OfflineReplica"),
    "NonExistentReplica": ("ReplicaDeletionSuccessful",),
}
LEGAL: Final = frozenset(
    (source, target) for table in (PARTITION, REPLICA) for target, sources in table.items() for source in sources
)
_REFUSAL: Final = "IllegalStateException"


def is_illegal(event: SilverEvent) -> bool:
    """A line that does not say where it came from cannot be judged."""
    if event.event in ("partition_change_failed", "replica_change_failed"):
        return _REFUSAL in (event.trace or "")
    known = event.from_state is not None and event.to_state is not None
    return event.event in EVENTS and known and (event.from_state, event.to_state) not in LEGAL


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
