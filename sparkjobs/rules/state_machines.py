"""The two state machines of Kafka's controller, as data: states, the moves of Kafka 3.9, and what older Kafkas do.

These are the tables that our controller obeys, too (`docs/state-machines.md`); a test holds the two together, as the
jobs import nothing of it. A move that only older Kafkas make is listed apart: it is no finding, and no row of them.
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
#: who is in one of these is not there
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

#: moves that no table of today has: which Kafkas make them, and what they are
OLDER: Final[dict[Pair, str]] = {
    ("OfflineReplica", REPLICA_GONE): "0.8.0 knows no states of deletion: a replica that is dropped is just forgotten",
}
#: 0.8.0 prints the state after an election as the state before it: what it says, and what it may mean
MISPRINTED: Final[dict[Pair, frozenset[str]]] = {(ONLINE, ONLINE): frozenset({NEW, OFFLINE})}

#: of a move: the tables have it, only older Kafkas make it, or nobody knows it
IN_TABLE: Final = "table"
IN_OLDER: Final = "older"
UNKNOWN: Final = "unknown"


def known_as(source: str | None, target: str) -> str:
    """Who knows a move. One of which no line says the source may be any that leads there."""
    if (source, target) in LEGAL or (source is None and target in _FROM):
        return IN_TABLE
    return IN_OLDER if (source, target) in OLDER else UNKNOWN
