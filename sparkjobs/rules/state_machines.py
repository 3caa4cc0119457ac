"""The two state machines of Kafka's controller, as data: states, the moves of Kafka 3.9, and the moves of older Kafkas.

Our controller obeys these tables, too (`docs/state-machines.md`). A test holds the two together, as the jobs import no
module of the controller. A move that only older Kafkas make is listed apart: it is no finding, and no row of them.
"""

from __future__ import annotations

from typing import Final

PARTITION: Final = "partition"
REPLICA: Final = "replica"
OFFLINE: Final = "OfflinePartition"
ONLINE: Final = "OnlinePartition"
GONE: Final = "NonExistentPartition"
NEW: Final = "NewPartition"
REPLICA_GONE: Final = "NonExistentReplica"
#: a partition or replica in one of these states does not exist
NON_EXISTENT: Final = frozenset({GONE, REPLICA_GONE})

STATES: Final[dict[str, tuple[str, ...]]] = {
    PARTITION: (GONE, NEW, ONLINE, OFFLINE),
    REPLICA: (
        *(REPLICA_GONE, "NewReplica", "OnlineReplica", "OfflineReplica"),
        *("ReplicaDeletionStarted", "ReplicaDeletionSuccessful", "ReplicaDeletionIneligible"),
    ),
}
MACHINE_OF: Final = {state: machine for machine, states in STATES.items() for state in states}

Pair = tuple[str | None, str]

_ALIVE: Final = ("NewReplica", "OnlineReplica", "OfflineReplica", "ReplicaDeletionIneligible")
#: target: the states it may be entered from
_FROM: Final[dict[str, tuple[str, ...]]] = {
    NEW: (GONE,),
    ONLINE: (NEW, ONLINE, OFFLINE),
    OFFLINE: (NEW, ONLINE, OFFLINE),
    GONE: (OFFLINE,),
    "NewReplica": (REPLICA_GONE,),
    "OnlineReplica": _ALIVE,
    "OfflineReplica": _ALIVE,
    "ReplicaDeletionStarted": ("OfflineReplica",),
    "ReplicaDeletionSuccessful": ("ReplicaDeletionStarted",),
    "ReplicaDeletionIneligible": ("ReplicaDeletionStarted", "OfflineReplica"),
    REPLICA_GONE: ("ReplicaDeletionSuccessful",),
}
LEGAL: Final = frozenset((source, target) for target, sources in _FROM.items() for source in sources)

#: moves that no table of today has: which Kafkas make them, and their meaning
OLDER: Final[dict[Pair, str]] = {
    ("OfflineReplica", REPLICA_GONE): "0.8.0 knows no states of deletion: a replica that is dropped is just forgotten",
}
#: 0.8.0 prints the state after an election as the state before it: the printed state, and the states that it may mean
MISPRINTED: Final[dict[Pair, frozenset[str]]] = {(ONLINE, ONLINE): frozenset({NEW, OFFLINE})}

#: of a move: the tables have it, only older Kafkas make it, or it is unknown
IN_TABLE: Final = "table"
IN_OLDER: Final = "older"
UNKNOWN: Final = "unknown"


def known_as(source: str | None, target: str) -> str:
    """Returns which Kafkas know a move. Where no line gives the source, any state that leads to the target may be
    it."""
    if (source, target) in LEGAL or (source is None and target in _FROM):
        return IN_TABLE
    return IN_OLDER if (source, target) in OLDER else UNKNOWN
