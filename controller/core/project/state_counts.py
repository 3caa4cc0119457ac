"""How many partitions and replicas are in which state. For people to watch; no decision rests on this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from controller.core.belief.cluster import Cluster
from controller.core.model import Partition
from controller.core.states import PARTITION_MOVES, REPLICA_MOVES, Status

#: the keys by which moves are counted
Move = tuple[Status, Status]

TABLES: Mapping[str, Iterable[Move]] = {"partitions": tuple(PARTITION_MOVES), "replicas": tuple(REPLICA_MOVES)}


def statuses_of(cluster: Cluster, topic: str, number: int, partition: Partition) -> Iterator[Status]:
    """The state of a partition, then that of each of its replicas."""
    states = cluster.states
    yield states.of_partition(topic, number)
    for broker_id in partition.replicas:
        yield states.of_replica(topic, number, broker_id)
