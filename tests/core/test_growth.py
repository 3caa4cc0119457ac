"""Topics that grow: placed as Kafka places, or as asked; existing partitions are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.changes.cluster import (
    Committed,
    Refused,
    StateDecided,
    TopicWritten,
)
from controller.core.changes.duties import DeletionQueued
from controller.core.codes import Code
from controller.core.events import GrowTopicAsked, ReassignAsked
from controller.core.model import Assignment
from tests.builders import a_broker, a_cluster, a_leadership, settle, state_of, steps_of, topic_id_of, zookeeper_of


def grow(count: int, name: str = "orders", **given: Any) -> GrowTopicAsked:
    return GrowTopicAsked(name, count, **given)


def test_the_znode_is_written_whole_and_then_the_new_partitions_are_led() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(2, [2], 9)})
    [written], led = steps_of(cluster, grow(3, assignment={1: (2, 3), 2: (3, 1)}))
    assert isinstance(written, TopicWritten)
    assert written.assignment == {0: Assignment((1, 2)), 1: Assignment((2, 3)), 2: Assignment((3, 1))}
    assert (written.topic_id, written.touched) == (topic_id_of("orders"), (1, 2))
    assert [(one.partition, one.state) for one in led if isinstance(one, StateDecided)] == [
        (1, a_leadership(2, [2, 3])),
        (2, a_leadership(3, [3, 1])),
    ]
    settled = settle(cluster, grow(3, assignment={1: (2, 3), 2: (3, 1)}))
    assert not settled.conflicts
    assert state_of(cluster, "orders") == a_leadership(2, [2], 9)
    new = {(topic_id_of("orders"), number, one) for number, ids in ((1, (2, 3)), (2, (3, 1))) for one in ids}
    assert settled.tellings[1].new_replicas == new


def test_new_partitions_are_placed_where_kafka_places_them() -> None:
    """The reference's golden vector: brokers 0 to 4, three partitions there, two more."""
    cluster = a_cluster(live=range(5), orders=[[0, 1, 2], [1, 2, 3], [2, 3, 4]])
    settle(cluster, grow(5))
    grown = cluster.topics["orders"].partitions
    assert (grown[3].replicas, grown[4].replicas) == ((3, 4, 0), (4, 0, 1))


def test_placement_starts_at_the_first_broker_not_below_the_first_replica_of_partition_0() -> None:
    cluster = a_cluster(live=(1, 3, 5), orders=[[2]])
    settle(cluster, grow(4))
    assert [one.replicas for one in cluster.topics["orders"].partitions.values()] == [(2,), (5,), (1,), (3,)]
    cluster = a_cluster(live=(1, 3, 5), orders=[[9]])
    settle(cluster, grow(3))
    assert [one.replicas for one in cluster.topics["orders"].partitions.values()] == [(9,), (3,), (5,)]


def test_racks_are_respected() -> None:
    live = [a_broker(one, rack=rack) for one, rack in enumerate("aabb", start=1)]
    cluster = a_cluster(live=live, orders=[[1, 3]])
    settle(cluster, grow(8))
    for partition in cluster.topics["orders"].partitions.values():
        assert {(one - 1) // 2 for one in partition.replicas} == {0, 1}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (grow(2, "nothing"), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (grow(2, "garbage"), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (grow(2, "leaving"), Code.INVALID_TOPIC_EXCEPTION),
        (grow(1), Code.INVALID_PARTITIONS),
        (grow(-1), Code.INVALID_PARTITIONS),
        (grow(300_000), Code.INVALID_PARTITIONS),
        (grow(100_000), Code.INVALID_PARTITIONS),
        (grow(2, assignment={1: (1, 2)}), Code.INVALID_PARTITIONS),
        (grow(3, "gaps"), Code.INVALID_PARTITIONS),
        (grow(2, "empty"), Code.INVALID_PARTITIONS),
        (grow(2, "empty", assignment={0: (1,), 1: (2,)}), Code.INVALID_PARTITIONS),
        (grow(2, "wide"), Code.INVALID_REPLICATION_FACTOR),
        (grow(4, assignment={2: (1, 2)}), Code.INVALID_REPLICA_ASSIGNMENT),
        (grow(3, assignment={1: (1, 2), 2: (1, 2)}), Code.INVALID_REPLICA_ASSIGNMENT),
        (grow(3, assignment={2: (1,)}), Code.INVALID_REPLICA_ASSIGNMENT),
        (grow(3, assignment={2: (1, 1)}), Code.INVALID_REPLICA_ASSIGNMENT),
        (grow(3, assignment={2: (-1, 1)}), Code.INVALID_REPLICA_ASSIGNMENT),
        (grow(3, assignment={2: (1, 77)}), Code.INVALID_REPLICA_ASSIGNMENT),
        (grow(3, assignment={2: ()}), Code.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_invalid_growth_is_refused_with_kafkas_code_and_changes_nothing(asked: GrowTopicAsked, code: Code) -> None:
    cluster = a_cluster(
        orders=[[1, 2], [2, 1]], garbage=[[1]], leaving=[[1]], gaps=[[1], [1]], wide=[[1, 2, 3, 4]], empty=[]
    )
    cluster.unreadable["garbage", None] = ("not a topic", 1)
    cluster.apply([Committed(DeletionQueued("leaving", abandon_offline=False))])
    del cluster.topics["gaps"].partitions[0]
    [[refused]] = steps_of(cluster, asked)
    assert isinstance(refused, Refused)
    assert refused.code is code
    assert refused.detail


def test_a_topic_that_is_being_reassigned_does_not_grow() -> None:
    cluster = a_cluster(orders=[[1], [1]])
    settle(cluster, ReassignAsked({("orders", 1): (2,)}))
    assert [one.code for one in settle(cluster, grow(3), zookeeper_of(cluster)).refusals] == [
        Code.REASSIGNMENT_IN_PROGRESS
    ]


def test_asking_for_the_present_count_is_no_mistake() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 1]])
    for asked in (grow(2), grow(2, assignment={1: (2, 1)})):
        assert [one.code for one in settle(cluster, asked).refusals] == [Code.NONE]


def test_partitions_for_brokers_that_are_away_wait_for_them() -> None:
    cluster = a_cluster(orders=[[1]])
    cluster.gone[7] = a_broker(7)
    settled = settle(cluster, grow(2, assignment={1: (7,)}))
    assert not settled.refusals
    assert cluster.topics["orders"].partitions[1].state is None


def test_a_topic_that_another_tool_rewrote_meanwhile_is_a_conflict() -> None:
    cluster = a_cluster(orders=[[1]])
    zookeeper = zookeeper_of(cluster)
    zookeeper.put("/brokers/topics/orders", zookeeper.nodes["/brokers/topics/orders"].data)
    settled = settle(cluster, grow(2), zookeeper)
    assert [type(one) for one in settled.conflicts] == [TopicWritten]
    assert len(cluster.topics["orders"].partitions) == 1
