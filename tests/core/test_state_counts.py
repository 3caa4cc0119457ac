"""The counts of partitions and replicas in each state, and the moves between states, which must explain each other."""

from __future__ import annotations

from collections import Counter

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Change
from controller.core.decide.dispatch import decide
from controller.core.events import CreateTopicAsked, DeleteTopicAsked, Event, ReassignAsked, StopReplicaAnswered
from controller.core.project.state_counts import TABLES, Move, statuses_of
from controller.core.states import PartitionStatus, ReplicaStatus, Status
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
    """A cluster of which every move is counted."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.zookeeper: ModelZooKeeper = zookeeper_of(cluster)

    def happens(self, event: Event) -> Counter[Move]:
        """Settle an event. Each move must be legal, and the moves must explain how the counts changed."""
        before, moved = counted(self.cluster), Counter[Move]()
        steps: dict[int, list[Change]] = {}
        for piece in decide(self.cluster, event, 0, 1):
            steps.setdefault(piece.step, []).extend(piece.changes)
        for number in sorted(steps):
            for move in self.cluster.apply(commit(self.cluster, self.zookeeper, steps[number], [])):
                moved[move.source, move.target] += move.count
        assert set(moved) <= {move for table in TABLES.values() for move in table}
        expected = Counter(before)
        for (source, target), count in moved.items():
            expected[target] += count
            expected[source] -= count
        for status in (P.NON_EXISTENT, R.NON_EXISTENT):
            expected.pop(status, None)
        dropped = Counter(
            status
            for kept in self.cluster.states.replicas.values()
            for status, topics in kept.items()
            for key, bits in topics.items()
            if ":" in key
            for _ in range(bits.bit_count())
        )
        assert +expected == +counted(self.cluster) + dropped, event
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


def test_a_broker_that_dies_takes_its_partitions_offline_until_another_leads_them() -> None:
    watched = Watched(a_cluster(orders=[[1, 2], [2, 3], [3]]))
    assert watched.happens(brokers_seen(1, 3)) == {
        (R.ONLINE, R.OFFLINE): 2,
        (P.ONLINE, P.OFFLINE): 1,
        (P.OFFLINE, P.ONLINE): 1,
    }
    assert watched.happens(brokers_seen(1, 2, 3)) == {(R.OFFLINE, R.ONLINE): 2}


def test_a_partition_without_another_candidate_stays_offline_until_its_broker_returns() -> None:
    watched = Watched(a_cluster(orders=[[3]]))
    gone = watched.happens(brokers_seen(1, 2))
    assert gone == {(R.ONLINE, R.OFFLINE): 1, (P.ONLINE, P.OFFLINE): 1, (P.OFFLINE, P.OFFLINE): 1}
    assert watched.happens(brokers_seen(1, 2, 3)) == {(R.OFFLINE, R.ONLINE): 1, (P.OFFLINE, P.ONLINE): 1}


def test_a_deletion_walks_every_replica_to_nothing() -> None:
    watched = Watched(a_cluster(orders=[[1, 2]]))
    begun = watched.happens(DeleteTopicAsked("orders"))
    assert begun == {
        (P.ONLINE, P.OFFLINE): 1,
        (R.ONLINE, R.OFFLINE): 2,
        (R.OFFLINE, R.DELETION_STARTED): 2,
    }
    for broker_id in (1, 2):
        ended = watched.happens(stopped(watched.cluster, broker_id))
    assert ended == {
        (R.DELETION_STARTED, R.DELETION_SUCCESSFUL): 1,
        (R.DELETION_SUCCESSFUL, R.NON_EXISTENT): 2,
        (P.OFFLINE, P.NON_EXISTENT): 1,
    }
    assert counted(watched.cluster) == Counter()


def stopped(cluster: Cluster, broker_id: int, *, refused: bool = False) -> StopReplicaAnswered:
    replicas = frozenset({(topic_id_of("orders"), 0)})
    epoch = cluster.brokers[broker_id].epoch
    return StopReplicaAnswered(broker_id, epoch, replicas, replicas if refused else frozenset())


def test_a_replica_that_a_reassignment_drops_is_gone_once_its_broker_says_so() -> None:
    watched = Watched(a_cluster(orders=[[1, 2, 3]]))
    begun = watched.happens(ReassignAsked({("orders", 0): (1, 2)}))
    assert begun == {(R.ONLINE, R.OFFLINE): 1, (R.OFFLINE, R.DELETION_STARTED): 1}
    assert watched.happens(stopped(watched.cluster, 3)) == {
        (R.DELETION_STARTED, R.DELETION_SUCCESSFUL): 1,
        (R.DELETION_SUCCESSFUL, R.NON_EXISTENT): 1,
    }
    assert watched.cluster.states.replicas == {}
    assert watched.cluster.duties.dropped == {}


def test_a_replica_that_a_reassignment_adds_is_new_until_it_is_in_sync() -> None:
    watched = Watched(a_cluster(orders=[[1, 2]]))
    assert watched.happens(ReassignAsked({("orders", 0): (1, 2, 3)})) == {(R.NON_EXISTENT, R.NEW): 1}
    assert watched.cluster.states.of_replica("orders", 0, 3) is R.NEW
