"""The two state machines, as tables: every legal move, the writes that it may make, and the brokers that it may tell. A
pair that is missing is a bug.

Rules for editors:

1. Every rule about which move is legal lives in this file. `decide` tries each move before anything is written.
2. States are kept (`belief/kept_states.py`) and changed by moves only (`belief/moves.py`). A property holds them
   against what can be derived from leaderships and registrations.
3. A change's writes are one write, whatever its moves: a leader's death is Online, Offline, Online with one step of
   the leader epoch. The moves are Kafka's own; two of them we never make (`NEVER_MADE`).
4. The change says its writes, its tellings and their receivers (`core/project`); they stay inside the row of the move
   that carries it: the last one of the partition, else those of its replicas, else a row of `WITHOUT_A_MOVE`.
   `tests/core/rows.py` holds the stories and each simulated run to that, and no row says more than they show.

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


class Item(Enum):
    """The parts of a write, and the requests that may tell of it."""

    TOPIC = "topic"
    PARTITIONS = "partitions"
    PARTITION = "partitions/P"
    STATE = "state"
    ERASE_STATE = "delete state"
    ERASE_PARTITION = "delete partitions/P"
    ERASE_PARTITIONS = "delete partitions"
    ERASE_TOPIC = "delete topic"
    LEADER_AND_ISR = "LeaderAndIsr"
    UPDATE_METADATA = "UpdateMetadata"
    STOP = "StopReplica"
    DELETE = "StopReplica with delete"

    __hash__ = object.__hash__


class Receivers(Enum):
    """Of the live brokers, those that a request goes to."""

    ALL = "all"
    REPLICAS = "replicas"
    OTHERS = "the other replicas"
    OWN = "its broker"
    COMING = "the broker that comes"


class Tells(msgspec.Struct, frozen=True):
    """A request about the partition, and its receivers."""

    item: Item
    to: Receivers


class Cost(msgspec.Struct, frozen=True):
    """The writes and tellings that a move may make. A move leaves out those that it does not need."""

    writes: tuple[Item, ...] = ()
    tells: tuple[Tells, ...] = ()


class TellingWithoutMove(Enum):
    """Writes and tellings of a partition while neither it nor a replica of it moves; or, of the ISR that its leader
    asked for, with any moves."""

    ISR_ASKED = "an ISR that its leader asked for"
    LED_ON = "a leadership that goes on: a smaller ISR, a higher leader epoch"
    FOUND = "a state of another writer, or of the term before"
    BROKER_COMES = "a broker that comes or goes"
    TOLD_AGAIN = "a state that a broker refused, or is asked about"
    TOLD_ANEW = "a topic that has its id at last"
    REASSIGNED = "an assignment in another order"
    FORGOTTEN = "a topic that is deleted already, or had another id"
    ERASED = "the znodes of a topic that is deleted, before the last of them goes"


Status = PartitionStatus | ReplicaStatus


class IllegalMoveError(Exception):
    """A handler wanted a move that no table has: a bug, which parks the subject it concerns."""


_P, _R, _I = PartitionStatus, ReplicaStatus, Item
_LISR, _UM = Tells(_I.LEADER_AND_ISR, Receivers.REPLICAS), Tells(_I.UPDATE_METADATA, Receivers.ALL)
_LISR_OTHERS, _LISR_OWN = Tells(_I.LEADER_AND_ISR, Receivers.OTHERS), Tells(_I.LEADER_AND_ISR, Receivers.OWN)
_STOP, _DELETE = Tells(_I.STOP, Receivers.OWN), Tells(_I.DELETE, Receivers.OWN)
_STATE = Cost(writes=(_I.STATE,), tells=(_LISR, _UM))

PARTITION_MOVES: dict[tuple[PartitionStatus, PartitionStatus], Cost] = {
    (_P.NON_EXISTENT, _P.NEW): Cost(),
    (_P.NEW, _P.ONLINE): Cost(writes=(_I.PARTITIONS, _I.PARTITION, _I.STATE), tells=(_LISR, _UM)),
    (_P.NEW, _P.OFFLINE): Cost(writes=(_I.PARTITIONS, _I.PARTITION, _I.STATE), tells=(_LISR, _UM)),
    (_P.ONLINE, _P.ONLINE): _STATE,
    (_P.ONLINE, _P.OFFLINE): Cost(tells=(_UM,)),
    (_P.OFFLINE, _P.ONLINE): _STATE,
    (_P.OFFLINE, _P.OFFLINE): _STATE,
    (_P.OFFLINE, _P.NON_EXISTENT): Cost(writes=(_I.ERASE_PARTITIONS,), tells=(_UM,)),
}

REPLICA_MOVES: dict[tuple[ReplicaStatus, ReplicaStatus], Cost] = {
    (_R.NON_EXISTENT, _R.NEW): Cost(writes=(_I.TOPIC, _I.STATE), tells=(_LISR, _UM)),
    (_R.NEW, _R.ONLINE): Cost(),
    (_R.ONLINE, _R.ONLINE): Cost(),
    (_R.OFFLINE, _R.ONLINE): Cost(tells=(_LISR_OWN, _UM)),
    (_R.DELETION_INELIGIBLE, _R.ONLINE): Cost(writes=(_I.TOPIC, _I.STATE), tells=(_LISR, _UM)),
    (_R.NEW, _R.OFFLINE): Cost(tells=(_UM, _STOP)),
    (_R.ONLINE, _R.OFFLINE): Cost(writes=(_I.STATE,), tells=(_LISR_OTHERS, _UM, _STOP)),
    (_R.OFFLINE, _R.OFFLINE): Cost(),
    (_R.DELETION_INELIGIBLE, _R.OFFLINE): Cost(writes=(_I.TOPIC, _I.STATE), tells=(_LISR_OTHERS, _UM)),
    (_R.OFFLINE, _R.DELETION_STARTED): Cost(writes=(_I.TOPIC, _I.STATE), tells=(_LISR_OTHERS, _UM, _DELETE)),
    (_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL): Cost(),
    (_R.DELETION_STARTED, _R.DELETION_INELIGIBLE): Cost(),
    (_R.OFFLINE, _R.DELETION_INELIGIBLE): Cost(writes=(_I.TOPIC, _I.STATE), tells=(_LISR_OTHERS, _UM)),
    (_R.DELETION_SUCCESSFUL, _R.NON_EXISTENT): Cost(writes=(_I.ERASE_TOPIC,)),
}

#: rows without a move
WITHOUT_A_MOVE: dict[TellingWithoutMove, Cost] = {
    TellingWithoutMove.ISR_ASKED: Cost(writes=(_I.STATE,), tells=(_UM,)),
    TellingWithoutMove.LED_ON: _STATE,
    TellingWithoutMove.FOUND: Cost(tells=(_LISR, _UM)),
    TellingWithoutMove.BROKER_COMES: Cost(tells=(Tells(_I.LEADER_AND_ISR, Receivers.COMING), _UM)),
    TellingWithoutMove.TOLD_AGAIN: Cost(tells=(_LISR,)),
    TellingWithoutMove.TOLD_ANEW: Cost(writes=(_I.TOPIC,), tells=(_LISR, _UM)),
    TellingWithoutMove.REASSIGNED: Cost(writes=(_I.TOPIC,)),
    TellingWithoutMove.FORGOTTEN: Cost(tells=(_UM,)),
    TellingWithoutMove.ERASED: Cost(writes=(_I.ERASE_STATE, _I.ERASE_PARTITION)),
}


#: Kafka's own rows for replicas that stay in their state while brokers are told of them again; here that is no move
NEVER_MADE: Final = frozenset({(_R.ONLINE, _R.ONLINE), (_R.OFFLINE, _R.OFFLINE)})


def is_legal(source: Status, target: Status) -> bool:
    """Returns whether the table of its machine has a move."""
    return (source, target) in PARTITION_MOVES or (source, target) in REPLICA_MOVES
