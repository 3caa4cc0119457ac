"""Topics that were seen, asked for, grown, re-created, without an id, or of nonsense."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from controller.core.causes import Cause
from controller.core.changes.cluster import (
    Refused,
    StateDecided,
    TopicCreated,
    TopicFound,
    TopicGone,
    TopicWritten,
    Unreadable,
)
from controller.core.changes.duties import (
    TopicAsked,
    TopicIdAnswered,
    TopicIdSought,
    TopicIdTaken,
)
from controller.core.codes import Code
from controller.core.decide.topic_ids import draw_topic_id
from controller.core.events import CreateTopicAsked, TopicsSeen
from controller.core.formats import encode_topic
from controller.core.model import Assignment
from controller.core.project.znodes import topic_path
from controller.core.states import PartitionStatus
from tests.builders import (
    LOADED,
    a_cluster,
    a_leadership,
    a_topic_fact,
    brokers_seen,
    knowing,
    settle,
    state_of,
    steps_of,
    topic_id_of,
    zookeeper_of,
)

LATER = LOADED + 20
P = PartitionStatus


def ask(name: str = "orders", **given: Any) -> CreateTopicAsked:
    return CreateTopicAsked(name, **given)


def seen(*facts: Any, names: set[str] | None = None, zxid: int = LATER) -> TopicsSeen:
    return TopicsSeen(facts, zxid, None if names is None else frozenset(names))


def test_a_topic_asked_for_by_assignment_is_written_and_then_led() -> None:
    created, led = steps_of(a_cluster(), ask(assignment={0: (1, 2), 1: (2, 3)}, configs={"retention.ms": "1"}))
    [topic] = created
    assert isinstance(topic, TopicCreated)
    assert (topic.assignment, topic.configs) == ({0: Assignment((1, 2)), 1: Assignment((2, 3))}, {"retention.ms": "1"})
    assert led == [
        StateDecided("orders", 0, a_leadership(1, [1, 2]), P.NEW, P.ONLINE, "partition created", Cause.TOPIC_CREATED),
        StateDecided("orders", 1, a_leadership(2, [2, 3]), P.NEW, P.ONLINE, "partition created", Cause.TOPIC_CREATED),
    ]


def test_a_topic_asked_for_by_counts_is_placed_by_the_seed() -> None:
    cluster = a_cluster()
    asked = ask(partitions=6, replication_factor=3)
    [[created], led] = steps_of(cluster, asked, seed=5)
    assert isinstance(created, TopicCreated)
    assert [len(one.replicas) for one in created.assignment.values()] == [3] * 6
    assert len(led) == 6
    assert steps_of(cluster, asked, seed=5)[0] == [created]
    assert steps_of(cluster, asked, seed=6)[0] != [created]


def test_a_partition_whose_first_replica_is_offline_is_led_by_the_next() -> None:
    cluster = a_cluster(live=(1, 2, 3))
    settle(cluster, brokers_seen(2, 3))
    settled = settle(cluster, ask(assignment={0: (1, 2), 1: (3, 1)}))
    assert settled.states == {"orders-0": a_leadership(2, [2]), "orders-1": a_leadership(3, [3])}


def test_a_partition_without_an_online_replica_waits_unled() -> None:
    cluster = a_cluster(live=(1, 2, 3))
    settle(cluster, brokers_seen(2, 3))
    assert settle(cluster, ask(assignment={0: (1,), 1: (2,)})).states == {"orders-1": a_leadership(2, [2])}
    assert cluster.topics["orders"].partitions[0].state is None
    assert settle(cluster, brokers_seen(1, 2, 3)).states == {"orders-0": a_leadership(1, [1])}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": "", "partitions": 1, "replication_factor": 1}, Code.INVALID_TOPIC_EXCEPTION),
        ({"name": "."}, Code.INVALID_TOPIC_EXCEPTION),
        ({"name": ".."}, Code.INVALID_TOPIC_EXCEPTION),
        ({"name": "a/b"}, Code.INVALID_TOPIC_EXCEPTION),
        ({"name": "a" * 250}, Code.INVALID_TOPIC_EXCEPTION),
        ({"name": "orders\n"}, Code.INVALID_TOPIC_EXCEPTION),
        ({"name": "pay_ments", "partitions": 1, "replication_factor": 1}, Code.INVALID_TOPIC_EXCEPTION),
        ({"name": "pay.ments", "partitions": 2, "replication_factor": 2}, Code.TOPIC_ALREADY_EXISTS),
        ({"name": "garbage", "partitions": 2, "replication_factor": 2}, Code.TOPIC_ALREADY_EXISTS),
        ({"partitions": 0, "replication_factor": 1}, Code.INVALID_PARTITIONS),
        ({"replication_factor": 1}, Code.INVALID_PARTITIONS),
        ({"partitions": 70_001, "replication_factor": 3}, Code.INVALID_PARTITIONS),
        ({"partitions": 1}, Code.INVALID_REPLICATION_FACTOR),
        ({"partitions": 1, "replication_factor": 4}, Code.INVALID_REPLICATION_FACTOR),
        ({"assignment": {}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {1: (1, 2)}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: ()}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: (1, 1)}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: (-1, 1)}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: (1, 2), 1: (1,)}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: (1, 77)}}, Code.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_invalid_topic_is_refused_with_kafkas_code_and_changes_nothing(given: dict[str, Any], code: Code) -> None:
    cluster = a_cluster(topics={"pay.ments": [[1]]})
    cluster.unreadable["garbage", None] = ("not a topic", 1)
    [[refused]] = steps_of(cluster, ask(**{"name": "orders", **given}))
    assert isinstance(refused, Refused)
    assert refused.code is code
    assert refused.detail


def test_an_explicit_assignment_that_no_znode_can_hold_is_refused() -> None:
    [[refused], *_] = steps_of(a_cluster(), ask(assignment=dict.fromkeys(range(70001), (1, 2, 3))))
    assert isinstance(refused, Refused)


def test_creating_an_equal_topic_again_is_no_mistake() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 3]])
    for asked in (ask(assignment={0: (1, 2), 1: (2, 3)}), ask(partitions=2, replication_factor=2)):
        assert [one.code for one in settle(cluster, asked).refusals] == [Code.NONE]
    for asked in (ask(assignment={0: (2, 1), 1: (2, 3)}), ask(partitions=3, replication_factor=2)):
        assert [one.code for one in settle(cluster, asked).refusals] == [Code.TOPIC_ALREADY_EXISTS]


def test_asking_twice_creates_once() -> None:
    cluster = a_cluster()
    zookeeper = zookeeper_of(cluster)
    asked = ask(partitions=3, replication_factor=2)
    assert len(settle(cluster, asked, zookeeper, seed=1).states) == 3
    [[again]] = steps_of(cluster, asked, seed=2)
    assert isinstance(again, Refused)
    assert again.code is Code.NONE


def test_a_create_that_meets_a_topic_of_another_tool_is_a_conflict() -> None:
    cluster = a_cluster()
    zookeeper = zookeeper_of(cluster)
    zookeeper.put("/brokers/topics/orders", b'{"version":1,"partitions":{"0":[1]}}')
    settled = settle(cluster, ask(partitions=1, replication_factor=1), zookeeper)
    assert [type(one) for one in settled.conflicts] == [TopicCreated]
    assert "orders" not in cluster.topics


def test_a_topic_seen_is_believed_and_then_led() -> None:
    fact = a_topic_fact("orders", [3, 1], [1, 2], zxid=LATER)
    found, led = steps_of(a_cluster(), seen(fact))
    assert found == [TopicFound(fact)]
    assert [change.state for change in led if isinstance(change, StateDecided)] == [
        a_leadership(3, [3, 1]),
        a_leadership(1, [1, 2]),
    ]


def test_a_topic_seen_without_an_id_gets_one_before_anything_is_told() -> None:
    cluster = a_cluster()
    zookeeper = zookeeper_of(cluster)
    zookeeper.put(topic_path("orders"), encode_topic("", {0: Assignment((1,))}))
    settled = settle(cluster, zookeeper.topics_seen(), zookeeper)
    assert [type(one) for one in settled.changes] == [TopicFound, TopicIdSought, TopicAsked]
    settled = settle(cluster, knowing(cluster.brokers[1], orders=""), zookeeper)
    assert [type(one) for one in settled.changes] == [TopicIdAnswered, TopicIdTaken, TopicWritten, StateDecided]
    assert settled.tellings[-1].new_replicas == {(cluster.topics["orders"].topic_id, 0, 1)}


def test_an_id_that_an_older_tool_dropped_is_written_back() -> None:
    cluster = a_cluster(orders=[[1]])
    fact = a_topic_fact("orders", [1], topic_id=None, version=5, zxid=LATER)
    [[_], [written]] = steps_of(cluster, seen(fact))
    assert isinstance(written, TopicWritten)
    assert written.topic_id == topic_id_of("orders")


def test_partitions_that_were_added_are_led_and_the_others_left_alone() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(2, [2], 9)})
    fact = a_topic_fact("orders", [1, 2], [3, 1], version=1, zxid=LATER)
    found, led = steps_of(cluster, seen(fact))
    assert found == [TopicFound(fact)]
    assert led == [
        StateDecided("orders", 1, a_leadership(3, [3, 1]), P.NEW, P.ONLINE, "partition created", Cause.TOPIC_FOUND)
    ]
    cluster = a_cluster(orders=[[1, 2]])
    zookeeper = zookeeper_of(cluster)
    assert not settle(cluster, seen(fact), zookeeper).conflicts
    assert cluster.hosted_by([3]) == {"orders": {1}}


def test_partitions_that_the_znode_lost_or_changed_stay_as_they_were() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 3]])
    settle(cluster, seen(a_topic_fact("orders", [3, 2], version=1, zxid=LATER)))
    assert [one.replicas for one in cluster.topics["orders"].partitions.values()] == [(1, 2), (2, 3)]
    assert cluster.topics["orders"].version == 1


def test_a_version_believed_already_says_nothing_new() -> None:
    assert steps_of(a_cluster(orders=[[1]]), seen(a_topic_fact("orders", [1], zxid=LATER))) == []


def test_a_fact_older_than_our_own_write_is_passed_over() -> None:
    cluster = a_cluster(orders=[[1]])
    assert steps_of(cluster, seen(a_topic_fact("orders", [2], version=9, zxid=LOADED - 1))) == []


def test_a_topic_that_is_gone_is_forgotten() -> None:
    cluster = a_cluster(orders=[[1, 2]], payments=[[2, 1]])
    settled = settle(cluster, seen(names={"payments"}))
    assert settled.changes == [TopicGone("orders", topic_id_of("orders"), (0,))]
    assert set(cluster.topics) == {"payments"}
    assert topic_id_of("orders") not in cluster.names_by_id
    assert cluster.hosted_by([1, 2]) == {"payments": {0}}


def test_topics_are_not_missed_when_the_list_was_not_read() -> None:
    assert steps_of(a_cluster(orders=[[1]]), seen(names=None)) == []


def test_a_topic_created_after_the_list_was_read_is_not_missed() -> None:
    cluster = a_cluster(orders=[[1]])
    assert steps_of(cluster, seen(names=set(), zxid=LOADED - 1)) == []


def test_a_topic_re_created_under_the_same_name_is_another_topic() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 1]], states={"orders-0": a_leadership(2, [2], 9)})
    zookeeper = zookeeper_of(cluster)
    zookeeper.remove("/brokers/topics/orders")
    zookeeper.put("/brokers/topics/orders", b'{"version":3,"partitions":{"0":[3]},"topic_id":"%s"}' % (b"y" * 22))
    settled = settle(cluster, zookeeper.topics_seen(), zookeeper)
    assert [type(one) for one in settled.changes] == [TopicGone, TopicFound, StateDecided]
    assert state_of(cluster, "orders") == a_leadership(3, [3])
    assert cluster.names_by_id == {"y" * 22: "orders"}
    assert cluster.hosted_by([1, 2, 3]) == {"orders": {0}}
    assert settle(cluster, zookeeper.topics_seen(), zookeeper).changes == []


def test_a_znode_of_nonsense_is_reported_once_and_the_others_are_served() -> None:
    cluster = a_cluster(orders=[[1]])
    nonsense = a_topic_fact("garbage", trouble="not a TopicZnode", topic_id=None)
    both = seen(nonsense, a_topic_fact("payments", [2], zxid=LATER), names={"garbage", "payments", "orders"})
    settled = settle(cluster, both)
    assert [type(one) for one in settled.changes] == [Unreadable, TopicFound, StateDecided]
    assert settle(cluster, both, zookeeper_of(cluster)).changes == []


def test_a_known_topic_whose_znode_turned_to_nonsense_keeps_its_leaders() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    settle(cluster, seen(a_topic_fact("orders", trouble="not a TopicZnode", version=1, zxid=LATER)))
    assert settle(cluster, brokers_seen(2, 3)).states == {"orders-0": a_leadership(2, [2], 1)}


def test_a_znode_that_makes_sense_again_is_believed() -> None:
    cluster = a_cluster()
    settle(cluster, seen(a_topic_fact("orders", trouble="nonsense", zxid=LATER)))
    settle(cluster, seen(a_topic_fact("orders", [1], version=1, zxid=LATER + 1)))
    assert cluster.unreadable == {}
    assert state_of(cluster, "orders").leader == 1


def test_a_znode_of_nonsense_that_is_gone_no_longer_blocks_its_name() -> None:
    cluster = a_cluster()
    settle(cluster, seen(a_topic_fact("orders", trouble="nonsense", zxid=LATER), names={"orders"}))
    settle(cluster, seen(names=set(), zxid=LATER + 1))
    assert settle(cluster, ask(partitions=1, replication_factor=1)).of(TopicCreated)


def test_the_id_of_a_topic_never_changes_while_it_lives() -> None:
    cluster = a_cluster(orders=[[1]])
    own_id = cluster.topics["orders"].topic_id
    rewritten = a_topic_fact("orders", [1], version=1, zxid=LATER, topic_id="z" * 22)
    restored = [
        change for step in steps_of(cluster, seen(rewritten)) for change in step if isinstance(change, TopicWritten)
    ]
    assert [change.topic_id for change in restored] == [own_id]


def test_topic_ids_look_like_kafkas() -> None:
    drawn = {draw_topic_id(Random(seed)) for seed in range(500)}
    assert len(drawn) == 500
    assert all(len(one) == 22 and not one.startswith("-") for one in drawn)
