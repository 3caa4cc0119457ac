"""The effect of brokers' deaths: decided by the same `decide`, counted, and thrown away. Nothing is written.

The states that partitions and replicas would pass are counted from the moves of the decided changes, made on trial.
"""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.belief.kept_states import Mover, Moves, TriedStates
from controller.core.bitset import numbers_of
from controller.core.changes.cluster import StateDecided
from controller.core.decide.dispatch import CHANGES_PER_SLICE, decide
from controller.core.events import BrokersSeen
from controller.core.model import NO_LEADER, TopicPartition
from controller.core.states import PartitionStatus


class LeaderMove(msgspec.Struct, frozen=True):
    """A partition that would get another leader."""

    topic: str
    partition: int
    source: int
    target: int
    isr: tuple[int, ...]


class StateMoves(msgspec.Struct, frozen=True):
    """How many partitions, or replicas, would make a move."""

    machine: str  # partition or replica
    source: str
    target: str
    count: int


class WhatIf(msgspec.Struct, frozen=True):
    """The controller's decisions, and the state after them."""

    kill: list[int]
    moves: list[LeaderMove]
    #: partitions without a possible leader
    offline: list[str]
    #: partitions that would be left with one in-sync replica: the next death takes them
    last_in_sync: list[str]
    state_writes: int
    transactions: int
    #: LeaderAndIsr and UpdateMetadata requests, at the least
    requests: int
    unclean_elections: int
    #: every move that partitions and replicas would make
    state_moves: list[StateMoves] = []


def what_if(
    cluster: Cluster, kill_ids: frozenset[int], now_ms: int, seed: int, *, writes_per_transaction: int = 500
) -> WhatIf:
    pieces = what_if_in_pieces(cluster, kill_ids, now_ms, seed, writes_per_transaction=writes_per_transaction)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            whole: WhatIf = end.value
            return whole


def what_if_in_pieces(
    cluster: Cluster,
    kill_ids: frozenset[int],
    now_ms: int,
    seed: int,
    *,
    writes_per_transaction: int = 500,
    changes_per_piece: int = CHANGES_PER_SLICE,
) -> Generator[None, None, WhatIf]:
    """`what_if`, so that its caller can let others run in between; it rests on a belief that does not change."""
    left = {broker_id: broker for broker_id, broker in cluster.brokers.items() if broker_id not in kill_ids}
    moves, last_in_sync = [], []
    made = Moves()
    mover = Mover(TriedStates(cluster.states), made)
    told_ids: set[int] = set()
    states = writes = unclean = 0
    for piece in decide(cluster, BrokersSeen(left, 0), now_ms, seed, changes_per_slice=changes_per_piece):
        for change in piece.changes:
            if type(change) is not StateDecided:
                mover.settle()
            change.move(cluster, mover)
            writes += len(change.writes(cluster))
            if not isinstance(change, StateDecided):
                continue
            states += 1
            unclean += change.is_unclean
            known = cluster.partition(change.topic, change.partition)
            told_ids.update(broker_id for broker_id in (() if known is None else known.replicas) if broker_id in left)
            if (move := _move(cluster, change)) is not None:
                moves.append(move)
            if change.state.leader != NO_LEADER and len(change.state.isr) == 1:
                last_in_sync.append(str(TopicPartition(change.topic, change.partition)))
        yield
    mover.settle()
    return WhatIf(
        kill=sorted(kill_ids),
        moves=moves,
        offline=_offline(made, mover),
        last_in_sync=last_in_sync,
        state_writes=states,
        transactions=-(-writes // writes_per_transaction),
        requests=len(told_ids) + len(left) * _metadata_updates(cluster, kill_ids & cluster.live_ids),
        unclean_elections=unclean,
        state_moves=_counted(made),
    )


def _metadata_updates(cluster: Cluster, killed_ids: frozenset[int]) -> int:
    """For each remaining broker: the live brokers, and the partitions that have a replica less."""
    if not killed_ids:
        return 0
    led = (
        cluster.topics[topic].partitions[number].state is not None
        for topic, numbers in cluster.hosted_by(killed_ids).items()
        if not cluster.duties.is_leaving(topic)
        for number in numbers
    )
    return 1 + any(led)


def _move(cluster: Cluster, change: StateDecided) -> LeaderMove | None:
    known = cluster.partition(change.topic, change.partition)
    if known is None or known.state is None or change.state.leader in (NO_LEADER, known.state.leader):
        return None
    return LeaderMove(change.topic, change.partition, known.state.leader, change.state.leader, change.state.isr)


def _offline(made: Moves, mover: Mover) -> list[str]:
    """Returns the partitions that moved to OfflinePartition, from any state, and stayed there."""
    moved: dict[str, int] = {}
    for move in made.made:
        if move.target is PartitionStatus.OFFLINE:
            for topic, bits in move.topics.items():
                moved[topic] = moved.get(topic, 0) | bits
    stayed = (
        (topic, bits & mover.states.partitions_of(topic).get(PartitionStatus.OFFLINE, 0))
        for topic, bits in moved.items()
    )
    return [str(TopicPartition(topic, number)) for topic, bits in sorted(stayed) for number in numbers_of(bits)]


def _counted(made: Moves) -> list[StateMoves]:
    """In the order in which the first of each happens."""
    counts: dict[tuple[str, str, str], int] = {}
    for move in made.made:
        machine = "partition" if move.broker_id is None else "replica"
        key = (machine, move.source.value, move.target.value)
        counts[key] = counts.get(key, 0) + move.count
    return [StateMoves(*key, count) for key, count in counts.items()]
