"""What would happen if brokers died: decided by the same `decide`, counted, and thrown away. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from controller.core.changes import Change, StateDecided
from controller.core.cluster import Cluster
from controller.core.decide import decide
from controller.core.events import BrokersSeen
from controller.core.model import NO_LEADER, TopicPartition
from controller.core.znodes import writes_for


class LeaderMove(msgspec.Struct, frozen=True):
    """A partition that would get another leader."""

    topic: str
    partition: int
    source: int
    target: int
    isr: tuple[int, ...]


class WhatIf(msgspec.Struct, frozen=True):
    """What the controller would do, and what would be left."""

    kill: list[int]
    moves: list[LeaderMove]
    #: partitions that nobody could lead any more
    offline: list[str]
    #: partitions that would be left with one in-sync replica: the next death takes them
    last_in_sync: list[str]
    state_writes: int
    transactions: int
    #: LeaderAndIsr and UpdateMetadata requests, at the least
    requests: int
    unclean_elections: int


def what_if(
    cluster: Cluster, kill_ids: frozenset[int], now_ms: int, seed: int, *, writes_per_transaction: int = 500
) -> WhatIf:
    left = {broker_id: broker for broker_id, broker in cluster.brokers.items() if broker_id not in kill_ids}
    changes = list(_changes(cluster, BrokersSeen(left, 0), now_ms, seed))
    decided = [change for change in changes if isinstance(change, StateDecided)]
    writes = sum(len(writes_for(cluster, change)) for change in changes)
    told_ids = {
        broker_id
        for change in decided
        if (known := cluster.partition(change.topic, change.partition)) is not None
        for broker_id in known.replicas
        if broker_id in left
    }
    return WhatIf(
        kill=sorted(kill_ids),
        moves=[move for change in decided if (move := _move(cluster, change)) is not None],
        offline=[_name(change) for change in decided if change.state.leader == NO_LEADER],
        last_in_sync=[
            _name(change) for change in decided if change.state.leader != NO_LEADER and len(change.state.isr) == 1
        ],
        state_writes=len(decided),
        transactions=-(-writes // writes_per_transaction),
        requests=len(told_ids) + len(left) * _metadata_updates(cluster, kill_ids & cluster.live_ids),
        unclean_elections=sum("unclean election" in change.reason for change in decided),
    )


def _metadata_updates(cluster: Cluster, killed_ids: frozenset[int]) -> int:
    """For each broker that is left: who is live, and the partitions that have a replica less."""
    if not killed_ids:
        return 0
    led = (
        cluster.topics[topic].partitions[number].state is not None
        for topic, numbers in cluster.hosted_by(killed_ids).items()
        if not cluster.duties.is_leaving(topic)
        for number in numbers
    )
    return 1 + any(led)


def _changes(cluster: Cluster, event: BrokersSeen, now_ms: int, seed: int) -> Iterator[Change]:
    for piece in decide(cluster, event, now_ms, seed):
        yield from piece.changes


def _move(cluster: Cluster, change: StateDecided) -> LeaderMove | None:
    known = cluster.partition(change.topic, change.partition)
    if known is None or known.state is None or change.state.leader in (NO_LEADER, known.state.leader):
        return None
    return LeaderMove(change.topic, change.partition, known.state.leader, change.state.leader, change.state.isr)


def _name(change: StateDecided) -> str:
    return str(TopicPartition(change.topic, change.partition))
