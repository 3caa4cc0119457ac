"""The two state machines, as tables: every legal move and what it may cost. A pair that is missing is a bug.

Rules for editors:

1. Every rule about which move is legal lives in this file. `decide` tries each move before anything is written.
2. States are kept (`belief/kept_states.py`) and changed by moves only (`belief/moves.py`). A property holds them
   against what can be derived from leaderships and registrations.
3. What a change writes is one write, whatever its moves: a leader's death is Online, Offline, Online with one step of
   the leader epoch. The tables are Kafka's own; two of their rows we never make (`NEVER_MADE`).

`make tables` prints both tables into `docs/state-machines.md`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec


class PartitionStatus(Enum):
    """States of a partition; the values are the names Kafka prints."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"

    __hash__ = object.__hash__  # Enum's own is Python, and tables are asked for each partition


class ReplicaStatus(Enum):
    """States of a replica; the values are the names Kafka prints."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"

    __hash__ = object.__hash__


class Cost(msgspec.Struct, frozen=True):
    """What a move costs: znodes written, and requests told (to whom is said in `core/project/requests.py`)."""

    writes: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()


Status = PartitionStatus | ReplicaStatus


class IllegalMoveError(Exception):
    """A handler wanted a move that no table has: a bug, which parks the subject it concerns."""


_P, _R = PartitionStatus, ReplicaStatus
_LISR, _UM, _SR = "LeaderAndIsr", "UpdateMetadata", "StopReplica"
_STATE = Cost(writes=("state",), requests=(_LISR, _UM))

PARTITION_MOVES: dict[tuple[PartitionStatus, PartitionStatus], Cost] = {
    (_P.NON_EXISTENT, _P.NEW): Cost(),
    (_P.NEW, _P.ONLINE): Cost(writes=("partitions", "partitions/P", "state"), requests=(_LISR, _UM)),
    (_P.NEW, _P.OFFLINE): Cost(),
    (_P.ONLINE, _P.ONLINE): _STATE,
    (_P.ONLINE, _P.OFFLINE): _STATE,
    (_P.OFFLINE, _P.ONLINE): _STATE,
    (_P.OFFLINE, _P.OFFLINE): _STATE,
    (_P.OFFLINE, _P.NON_EXISTENT): Cost(writes=("delete state",), requests=(_UM,)),
}

REPLICA_MOVES: dict[tuple[ReplicaStatus, ReplicaStatus], Cost] = {
    (_R.NON_EXISTENT, _R.NEW): Cost(requests=(_LISR, _UM)),
    (_R.NEW, _R.ONLINE): Cost(),
    (_R.ONLINE, _R.ONLINE): Cost(requests=(_LISR, _UM)),
    (_R.OFFLINE, _R.ONLINE): Cost(requests=(_LISR, _UM)),
    (_R.DELETION_INELIGIBLE, _R.ONLINE): Cost(requests=(_LISR, _UM)),
    (_R.NEW, _R.OFFLINE): Cost(requests=(_UM, _SR)),
    (_R.ONLINE, _R.OFFLINE): Cost(writes=("state",), requests=(_LISR, _UM, _SR)),
    (_R.OFFLINE, _R.OFFLINE): Cost(requests=(_UM, _SR)),
    (_R.DELETION_INELIGIBLE, _R.OFFLINE): Cost(requests=(_UM, _SR)),
    (_R.OFFLINE, _R.DELETION_STARTED): Cost(requests=(_SR,)),
    (_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL): Cost(),
    (_R.DELETION_STARTED, _R.DELETION_INELIGIBLE): Cost(),
    (_R.OFFLINE, _R.DELETION_INELIGIBLE): Cost(),
    (_R.DELETION_SUCCESSFUL, _R.NON_EXISTENT): Cost(writes=("delete topic or rewrite its assignment",)),
}


#: Kafka's own rows for replicas that stay in their state while brokers are told of them again; here that is no move
NEVER_MADE: Final = frozenset({(_R.ONLINE, _R.ONLINE), (_R.OFFLINE, _R.OFFLINE)})


def partition_move(source: PartitionStatus, target: PartitionStatus) -> Cost:
    """The cost of a legal move of a partition."""
    try:
        return PARTITION_MOVES[source, target]
    except KeyError:
        raise IllegalMoveError(f"no partition moves from {source.value} to {target.value}") from None


def replica_move(source: ReplicaStatus, target: ReplicaStatus) -> Cost:
    """The cost of a legal move of a replica."""
    try:
        return REPLICA_MOVES[source, target]
    except KeyError:
        raise IllegalMoveError(f"no replica moves from {source.value} to {target.value}") from None


def is_legal(source: Status, target: Status) -> bool:
    """Whether the table of its machine has a move."""
    return (source, target) in PARTITION_MOVES or (source, target) in REPLICA_MOVES
