"""Moves that several kinds of change make. A change makes its moves (`move`) while it is decided, on trial, and once
when it stands, before it is believed.

A change says where partitions and replicas go, and on which way; where they come from is kept. So a move that no table
has is found out before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from controller.core.belief.kept_states import Mover, dropped_key
from controller.core.bitset import bits_of, numbers_of
from controller.core.causes import Cause
from controller.core.model import Assignment, Partition, Replicas
from controller.core.states import PartitionStatus, ReplicaStatus

if TYPE_CHECKING:
    from controller.core.belief.cluster import Cluster

_P, _R = PartitionStatus, ReplicaStatus

#: how a replica that no broker has to be told of any more ends, from each state
_END: Final[Mapping[ReplicaStatus, tuple[ReplicaStatus, ...]]] = {
    _R.NEW: (_R.OFFLINE, _R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.ONLINE: (_R.OFFLINE, _R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.OFFLINE: (_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.DELETION_INELIGIBLE: (_R.OFFLINE, _R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.DELETION_STARTED: (_R.DELETION_SUCCESSFUL, _R.NON_EXISTENT),
    _R.DELETION_SUCCESSFUL: (_R.NON_EXISTENT,),
}


def resumed(cluster: Cluster, topic: str, offline: int, broker_id: int, cause: Cause, mover: Mover) -> None:
    """Replicas that their broker stopped as it began to shut down, and that it is told to lead or to follow again."""
    failed = cluster.duties.failed_dirs.get(broker_id, frozenset())
    numbers = [number for number in numbers_of(offline) if (topic, number) not in failed] if offline else ()
    if numbers and broker_id in cluster.live_ids and ":" not in topic and not cluster.duties.is_leaving(topic):
        mover.replica_move(broker_id, topic, bits_of(numbers), _R.OFFLINE, _R.ONLINE, cause)


def in_sync(topic: str, number: int, isr: Replicas, cause: Cause, mover: Mover) -> None:
    """A replica is new until it is in sync."""
    for broker_id in isr:
        if mover.states.of_replica(topic, number, broker_id) is _R.NEW:
            mover.decided(broker_id, topic, number, _R.NEW, _R.ONLINE, cause)


def led_by(broker_id: int, partitions: Mapping[int, Partition], numbers: Iterable[int]) -> list[int]:
    known = partitions.get
    return [
        number
        for number in numbers
        if (one := known(number)) is not None and one.state is not None and one.state.leader == broker_id
    ]


def assigned(
    cluster: Cluster,
    topic: str,
    before: Mapping[int, Partition],
    assignment: Mapping[int, Assignment],
    cause: Cause,
    mover: Mover,
) -> None:
    """Partitions and replicas that were not there are new; a replica whose broker is not live goes offline at once, as
    do all replicas of a topic that is being deleted."""
    is_leaving = cluster.duties.is_leaving(topic)
    new = [number for number in assignment if number not in before]
    if new:
        mover.partition_move(topic, bits_of(new), _P.NON_EXISTENT, _P.NEW, cause)
        if is_leaving:
            mover.partition_move(topic, bits_of(new), _P.NEW, _P.OFFLINE, cause)
    by_broker: dict[int, list[int]] = {}
    for number, wanted in assignment.items():
        known = before.get(number)
        for broker_id in wanted.replicas:
            if known is None or broker_id not in known.replicas:
                by_broker.setdefault(broker_id, []).append(number)
    known_topic = cluster.topics.get(topic)
    key = dropped_key(topic, "" if known_topic is None else known_topic.topic_id or "")
    for broker_id, numbers in by_broker.items():
        bits = bits_of(numbers)
        for source, held in list(mover.states.replicas_of(broker_id, key).items()):
            if some := held & bits:
                bits &= ~some
                _taken_back(cluster, broker_id, topic, key, some, source, cause, mover)
        if not bits:
            continue
        mover.replica_move(broker_id, topic, bits, _R.NON_EXISTENT, _R.NEW, cause)
        if is_leaving or broker_id not in cluster.live_ids:
            mover.replica_move(broker_id, topic, bits, _R.NEW, _R.OFFLINE, cause)


def _taken_back(
    cluster: Cluster,
    broker_id: int,
    topic: str,
    key: str,
    bits: int,
    source: ReplicaStatus,
    cause: Cause,
    mover: Mover,
) -> None:
    """Replicas that were dropped and are assigned again before their broker said that it deleted them."""
    if source is _R.DELETION_STARTED:
        mover.replica_move(broker_id, key, bits, source, _R.DELETION_INELIGIBLE, cause)
        source = _R.DELETION_INELIGIBLE
    target = _R.ONLINE if broker_id in cluster.live_ids else _R.OFFLINE
    mover.replica_move(broker_id, key, bits, source, target, cause, to=topic)


def ended(broker_id: int, topic: str, bits: int, cause: Cause, mover: Mover) -> None:
    """Replicas that are in no assignment any more, from any state."""
    rest = bits
    for source, held in list(mover.states.replicas_of(broker_id, topic).items()):
        if some := held & rest:
            rest &= ~some
            _walk(broker_id, topic, some, source, cause, mover)
    if rest:
        _walk(broker_id, topic, rest, _R.ONLINE, cause, mover)


def _walk(broker_id: int, topic: str, bits: int, source: ReplicaStatus, cause: Cause, mover: Mover) -> None:
    for target in _END[source]:
        mover.replica_move(broker_id, topic, bits, source, target, cause)
        source = target


def forgotten(cluster: Cluster, topic: str, cause: Cause, mover: Mover) -> None:
    """All of a topic, with its znode."""
    known = cluster.topics.get(topic)
    if known is None:
        return
    mover.partitions(topic, bits_of(known.partitions), _P.OFFLINE, _P.NON_EXISTENT, cause=cause)
    for broker_id, bits in replicas_by_broker(known.partitions).items():
        ended(broker_id, topic, bits, cause, mover)
    key = dropped_key(topic, known.topic_id or "")
    for broker_id in list(cluster.states.replicas):
        for source, held in list(mover.states.replicas_of(broker_id, key).items()):
            if held:
                _walk(broker_id, key, held, source, cause, mover)


def replicas_by_broker(partitions: Mapping[int, Partition]) -> dict[int, int]:
    numbers: dict[int, list[int]] = {}
    for number, one in partitions.items():
        for broker_id in one.replicas:
            numbers.setdefault(broker_id, []).append(number)
    return {broker_id: bits_of(some) for broker_id, some in numbers.items()}
