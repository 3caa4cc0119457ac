"""What people see of the state machines: how many are where, and the moves between, which must explain each other."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.core.changes import Change, Committed, TopicWritten
from controller.core.cluster import Cluster
from controller.core.decide import decide
from controller.core.events import CreateTopicAsked, DeleteTopicAsked, Event, StopReplicaAnswered
from controller.core.model import Assignment
from controller.core.moves import TABLES, Move, Status, moves_in, statuses_of, way
from controller.core.states import PartitionStatus, ReplicaStatus
from tests.builders import a_cluster, brokers_seen, commit, topic_id_of, zookeeper_of
from tests.core.model_zookeeper import ModelZooKeeper

P, R = PartitionStatus, ReplicaStatus


def counted(cluster: Cluster) -> Counter[Status]:
    return Counter(
        status
        for (topic, number), one in cluster.all_partitions()
        for status in statuses_of(cluster, topic, number, one)
    )


class Watched:
    """A cluster whose every commit is counted before it is believed, as the meters do."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.zookeeper: ModelZooKeeper = zookeeper_of(cluster)
        self.moves: Counter[Move] = Counter()

    def happens(self, event: Event) -> Counter[Move]:
        """Settle it; what moved must be legal, and explain how the counts changed."""
        before, moved = counted(self.cluster), Counter[Move]()
        steps: dict[int, list[Change]] = {}
        for piece in decide(self.cluster, event, 0, 1):
            steps.setdefault(piece.step, []).extend(piece.changes)
        for number in sorted(steps):
            committed = commit(self.cluster, self.zookeeper, steps[number], [])
            moved += moves_in(self.cluster, committed)
            self.cluster.apply(committed)
        assert set(moved) <= {move for table in TABLES.values() for move in table}
        expected = Counter(before)
        for (source, target), count in moved.items():
            expected[target] += count
            expected[source] -= count
        for status in (P.NON_EXISTENT, R.NON_EXISTENT):
            expected.pop(status, None)
        assert +expected == +counted(self.cluster), event
        return moved


def test_a_topic_that_is_made_moves_from_nothing_to_online() -> None:
    watched = Watched(a_cluster())
    moved = watched.happens(CreateTopicAsked("orders", partitions=2, replication_factor=3))
    assert moved == {
        (P.NON_EXISTENT, P.NEW): 2,
        (P.NEW, P.ONLINE): 2,
        (R.NON_EXISTENT, R.NEW): 6,
        (R.NEW, R.ONLINE): 6,
    }


def test_a_broker_that_dies_and_returns_takes_its_replicas_with_it() -> None:
    watched = Watched(a_cluster(orders=[[1, 2], [2, 3], [3]]))
    gone = watched.happens(brokers_seen(1, 2))
    assert gone[R.ONLINE, R.OFFLINE] == 2
    assert gone[P.ONLINE, P.OFFLINE] == 1
    assert gone[P.ONLINE, P.ONLINE] == 1
    back = watched.happens(brokers_seen(1, 2, 3))
    assert back[R.OFFLINE, R.ONLINE] == 2
    assert back[P.OFFLINE, P.ONLINE] == 1


def test_a_deletion_walks_every_replica_to_nothing() -> None:
    watched = Watched(a_cluster(orders=[[1, 2]]))
    begun = watched.happens(DeleteTopicAsked("orders"))
    assert begun[P.ONLINE, P.OFFLINE] == 1
    assert begun[R.OFFLINE, R.DELETION_STARTED] == 2
    for broker_id in (1, 2):
        epoch = watched.cluster.brokers[broker_id].epoch
        deleted = frozenset({(topic_id_of("orders"), 0)})
        ended = watched.happens(StopReplicaAnswered(broker_id, epoch, deleted))
    assert ended[R.DELETION_SUCCESSFUL, R.NON_EXISTENT] == 2
    assert ended[P.OFFLINE, P.NON_EXISTENT] == 1
    assert counted(watched.cluster) == Counter()


def test_a_replica_that_a_reassignment_drops_goes_the_whole_way() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    change = TopicWritten(
        "orders", topic_id_of("orders"), {0: Assignment((1, 2))}, "reassigned", (0,), ((0, 3),), is_reassignment=True
    )
    moved = moves_in(cluster, [Committed(change, 1, 200)])
    assert moved == dict.fromkeys(
        (
            (R.ONLINE, R.OFFLINE),
            (R.OFFLINE, R.DELETION_STARTED),
            (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
            (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
        ),
        1,
    )


@pytest.mark.parametrize("name", list(TABLES))
def test_from_every_state_every_other_can_be_reached(name: str) -> None:
    statuses = {status for move in TABLES[name] for status in move}
    for source in statuses:
        for target in statuses - {source}:
            steps = way(source, target)
            assert (steps[0][0], steps[-1][1]) == (source, target)
            assert set(steps) <= set(TABLES[name])
