"""How many partitions and replicas are in which state, and which moves a commit makes of them. For people to watch.

States are derived, as everywhere (`states.py`, rule 2); a move that a decision makes at once is counted as the
shortest way that the table knows, so the counts change by exactly the moves. No decision rests on this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from controller.core.admin import DeletionQueued, ReplicasMoved, TopicErased
from controller.core.changes import (
    BrokerGone,
    BrokerLive,
    Change,
    Committed,
    StateDecided,
    StateFound,
    TopicCreated,
    TopicFound,
    TopicWritten,
)
from controller.core.cluster import Cluster
from controller.core.elections import status_of
from controller.core.model import Assignment, Partition
from controller.core.states import PARTITION_MOVES, REPLICA_MOVES, PartitionStatus, ReplicaStatus

Status = PartitionStatus | ReplicaStatus
Move = tuple[Status, Status]

_P, _R = PartitionStatus, ReplicaStatus
TABLES: Mapping[str, Iterable[Move]] = {"partitions": tuple(PARTITION_MOVES), "replicas": tuple(REPLICA_MOVES)}


def statuses_of(cluster: Cluster, topic: str, number: int, partition: Partition) -> Iterator[Status]:
    """The state of a partition, then that of each of its replicas."""
    if cluster.duties.is_leaving(topic):
        yield _P.OFFLINE
        known = cluster.duties.deletions[topic].replicas
        yield from (known.get((number, broker_id), _R.OFFLINE) for broker_id in partition.replicas)
        return
    yield status_of(partition.state, cluster.live_ids)
    for broker_id in partition.replicas:
        is_live = broker_id in cluster.live_ids
        yield _R.OFFLINE if not is_live else _R.NEW if partition.state is None else _R.ONLINE


def moves_in(cluster: Cluster, committed: Iterable[Committed]) -> Counter[Move]:
    """What these changes move, counted before they are believed."""
    jumps: Counter[Move] = Counter()
    for one in committed:
        if isinstance(one.change, StateDecided):
            jumps[one.change.source, one.change.target] += 1
            if one.change.source is _P.NEW:
                jumps[_R.NEW, _R.ONLINE] += _live_replicas(cluster, one.change)
        elif not isinstance(one.change, StateFound):  # a term may begin with tens of thousands
            jumps.update(_jumps_of(cluster, one.change))
    found: Counter[Move] = Counter()
    for (source, target), count in jumps.items():
        for move in way(source, target):
            found[move] += count
    return found


def _jumps_of(cluster: Cluster, change: Change) -> Iterator[Move]:
    match change:
        case TopicCreated(name=name, assignment=assignment):
            yield from _assigned(cluster, name, assignment)
        case TopicFound(fact=fact):
            yield from _assigned(cluster, fact.name, fact.assignment)
        case TopicWritten(name=name, assignment=assignment, dropped=dropped, states=states):
            yield from ((one.source, one.target) for one in states)
            yield from _assigned(cluster, name, assignment)
            for _, broker_id in dropped:
                yield (_R.ONLINE if broker_id in cluster.live_ids else _R.OFFLINE), _R.NON_EXISTENT
        case BrokerGone(broker_id=broker_id):
            yield from _hosted(cluster, broker_id, _R.OFFLINE)
        case BrokerLive(broker=broker) if cluster.live_ids - {broker.broker_id}:  # at a term's start nobody moves
            yield from _hosted(cluster, broker.broker_id, _R.ONLINE)
        case DeletionQueued(topic=topic, is_held=False) if not cluster.duties.is_leaving(topic):
            for number, one in cluster.topics[topic].partitions.items():
                partition, *replicas = statuses_of(cluster, topic, number, one)
                yield from ((status, _P.OFFLINE) for status in (partition,) if status is not _P.OFFLINE)
                yield from ((status, _R.OFFLINE) for status in replicas if status is not _R.OFFLINE)
        case ReplicasMoved(topic=topic, replicas=replicas, target=target):
            known = cluster.duties.deletions[topic].replicas
            yield from ((known.get(replica, _R.OFFLINE), target) for replica in replicas)
        case TopicErased(topic=topic):
            for one in cluster.topics[topic].partitions.values() if topic in cluster.topics else ():
                yield _P.OFFLINE, _P.NON_EXISTENT
                yield from ((_R.DELETION_SUCCESSFUL, _R.NON_EXISTENT) for _ in one.replicas)
        case _:
            pass


def _assigned(cluster: Cluster, name: str, assignment: Mapping[int, Assignment]) -> Iterator[Move]:
    """Partitions and replicas that were not there."""
    known = cluster.topics[name].partitions if name in cluster.topics else {}
    for number, wanted in assignment.items():
        before = known.get(number)
        if before is None:
            yield _P.NON_EXISTENT, _P.NEW
        is_led = before is not None and before.state is not None
        for broker_id in wanted.replicas:
            if before is None or broker_id not in before.replicas:
                is_live = broker_id in cluster.live_ids
                yield _R.NON_EXISTENT, _R.OFFLINE if not is_live else _R.ONLINE if is_led else _R.NEW


def _live_replicas(cluster: Cluster, change: StateDecided) -> int:
    known = cluster.partition(change.topic, change.partition)
    return 0 if known is None else len(cluster.live_ids.intersection(known.replicas))


def _hosted(cluster: Cluster, broker_id: int, target: ReplicaStatus) -> Iterator[Move]:
    for topic, numbers in cluster.hosted.get(broker_id, {}).items():
        if cluster.duties.is_leaving(topic):
            continue  # its deletion moves them
        known = cluster.topics[topic].partitions
        for number in numbers:
            is_led = known[number].state is not None
            yield (_R.OFFLINE if target is _R.ONLINE else _R.ONLINE if is_led else _R.NEW), target


@cache
def way(source: Status, target: Status) -> tuple[Move, ...]:
    """The fewest moves of the table that lead there; a move that the table has is its own way."""
    table: Iterable[Move] = TABLES["partitions" if isinstance(source, PartitionStatus) else "replicas"]
    ways: dict[Status, tuple[Move, ...]] = {source: ()}
    if (source, target) in table:
        return ((source, target),)
    reached: list[Status] = [source]
    while reached and target not in ways:
        status = reached.pop(0)
        for move in table:
            if move[0] is status and move[1] not in ways:
                ways[move[1]] = (*ways[status], move)
                reached.append(move[1])
    return ways[target]
