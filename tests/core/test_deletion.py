"""Deleting topics: how it is asked for, by request and by marker, and how it begins and ends."""

from __future__ import annotations

from itertools import permutations

import pytest

from controller.core.changes.cluster import StateDecided, TopicCreated, TopicGone
from controller.core.changes.duties import (
    DeletionMarked,
    DeletionQueued,
    MarkerDropped,
    ReplicasMoved,
)
from controller.core.codes import Code
from controller.core.decide.deletion import STARTED
from controller.core.events import AlterPartitionAsked, DeletionsSeen, StopReplicaAnswered
from controller.core.formats import encode_topic
from controller.core.model import Assignment
from controller.core.project.znodes import marker_path, topic_path
from tests.builders import a_proposal
from tests.core.deleting import ORDERS, moved, shape, the_topic

# ---------------------------------------------------------------------- asking


def test_a_deletion_is_durable_first_then_believed_then_started() -> None:
    settled = the_topic().ask("orders")
    assert settled.steps == [
        [DeletionMarked("orders", abandon_offline=False)],
        [DeletionQueued("orders", abandon_offline=False)],
        [ReplicasMoved("orders", ((0, 1), (0, 2), (1, 2), (1, 3)), (STARTED,))],
    ]


def test_all_brokers_forget_the_topic_and_its_hosts_delete_it_whatever_the_epoch() -> None:
    world = the_topic(1, 2, 3, 4)
    topic_id = world.cluster.topics["orders"].topic_id
    _, forget, start = world.ask("orders").tellings
    assert forget.removed == {("orders", topic_id): (0, 1)}
    assert forget.live_ids == {1, 2, 3, 4}
    assert set(forget.stops) == {1, 2, 3}, "it is stopped first"
    assert set(start.stops) == {1, 2, 3}
    assert world.awaited == {1: {(topic_id, 0)}, 2: {(topic_id, 0), (topic_id, 1)}, 3: {(topic_id, 1)}}


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_the_last_answer_in_any_order_erases_partitions_then_the_rest(order: tuple[int, ...]) -> None:
    world = the_topic()
    world.ask("orders")
    for broker_id in order[:-1]:
        assert shape(world.answer(broker_id)) == [["ReplicasMoved"]]
        assert world.left_of("orders")
    settled = world.answer(order[-1])
    assert shape(settled) == [["ReplicasMoved"], ["PartitionErased"], ["TopicErased"]]
    assert [write.path for write in settled.writes[-1]][-1] == marker_path("orders")
    assert world.left_of("orders") == []
    assert (world.cluster.topics, world.cluster.duties.deletions, world.cluster.hosted) == ({}, {}, {})


def test_an_unknown_topic_is_refused() -> None:
    [refused] = the_topic().ask("users").refusals
    assert refused.code is Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_makes_no_sense_is_refused() -> None:
    world = the_topic()
    world.zookeeper.put(topic_path("users"), b"{")
    world.happens(world.zookeeper.topics_seen())
    [refused] = world.ask("users").refusals
    assert (refused.code, refused.detail) == (Code.UNKNOWN_TOPIC_OR_PARTITION, "topic users: its znode is malformed")


def test_with_deletion_disabled_asking_is_refused_and_nothing_changes() -> None:
    world = the_topic(delete_enabled=False)
    settled = world.ask("orders")
    assert [one.code for one in settled.refusals] == [Code.TOPIC_DELETION_DISABLED]
    assert settled.writes == [[]]


def test_asking_again_changes_nothing_and_is_no_mistake() -> None:
    world = the_topic()
    world.ask("orders")
    settled = world.ask("orders")
    assert [one.code for one in settled.refusals] == [Code.NONE]
    assert len(settled.changes) == 1


def test_asking_again_without_the_dead_changes_the_marker_and_completes() -> None:
    world = the_topic(1, 2)
    world.ask("orders")
    world.answer(1)
    world.answer(2)
    settled = world.ask("orders", abandon=True)
    assert shape(settled) == [
        ["DeletionMarked"],
        ["ReplicasMoved", "DeletionWaits"],
        ["PartitionErased"],
        ["TopicErased"],
    ]


def test_creating_the_name_again_is_refused_until_the_deletion_is_over() -> None:
    world = the_topic()
    old_id = world.cluster.topics["orders"].topic_id
    world.ask("orders")
    [refused] = world.create("orders", ORDERS).refusals
    assert (refused.code, refused.detail) == (Code.TOPIC_ALREADY_EXISTS, "topic orders is being deleted")
    world.finish(1, 2, 3)
    [created] = world.create("orders", ORDERS).of(TopicCreated)
    assert created.topic_id != old_id


def test_a_late_answer_about_the_old_topic_says_nothing_about_the_new_one() -> None:
    world = the_topic()
    old_id = world.cluster.topics["orders"].topic_id or ""
    world.ask("orders")
    world.finish(1, 2, 3)
    world.create("orders", ORDERS)
    world.ask("orders")
    late = StopReplicaAnswered(1, world.cluster.brokers[1].epoch, frozenset({(old_id, 0)}))
    assert world.happens(late).changes == []


def test_a_topic_being_deleted_is_led_no_more_and_asked_about_no_more() -> None:
    world = the_topic()
    proposal = a_proposal(world.cluster, "orders", 0, 1)
    world.ask("orders")
    assert world.go(1).of(StateDecided) == []
    assert world.come(1).of(StateDecided) == []
    assert world.happens(world.zookeeper.states_seen(("orders", 0))).changes == []
    [refused] = world.happens(AlterPartitionAsked(1, world.cluster.brokers[1].epoch, [proposal])).refusals
    assert refused.code is Code.UNKNOWN_TOPIC_OR_PARTITION


# ---------------------------------------------------------------------- markers


def test_a_marker_begins_the_deletion() -> None:
    assert shape(the_topic().mark("orders")) == [["DeletionQueued"], ["ReplicasMoved"]]


def test_a_marker_seen_again_changes_nothing() -> None:
    world = the_topic()
    world.ask("orders")
    assert world.happens(world.zookeeper.deletions_seen()).changes == []


def test_a_marker_for_a_topic_that_does_not_exist_is_removed_and_the_others_go_on() -> None:
    world = the_topic()
    settled = world.mark("orders", "users")
    assert settled.of(MarkerDropped) == [MarkerDropped("users", "there is no such topic")]
    assert world.zookeeper.markers() == {"orders": False}
    assert world.awaited.keys() == {1, 2, 3}


def test_with_deletion_disabled_markers_go_and_topics_stay_as_they_were() -> None:
    world = the_topic(delete_enabled=False)
    assert world.mark("orders", "users").of(DeletionQueued) == []
    assert world.zookeeper.markers() == {}
    world.zookeeper.put(marker_path("orders"), b"")
    world.zookeeper.remove("/brokers/ids/1")
    settled = world.new_term()
    assert settled.states.keys() == {"orders-0"}
    assert [name for name, _ in settled.tellings[-1].everything or {}] == ["orders"]
    assert world.zookeeper.markers() == {}


@pytest.mark.parametrize("abandon", [True, False])
def test_a_marker_that_changes_its_mind_about_the_dead_is_taken_at_its_word(abandon: bool) -> None:
    world = the_topic(1, 2)
    world.mark("orders", abandon=not abandon)
    settled = world.mark("orders", abandon=abandon)
    assert world.deletion("orders").abandon_offline is abandon
    assert moved(settled) == ([("Successful", [(1, 3)])] if abandon else [])


def test_the_marker_of_a_deletion_that_began_is_written_again() -> None:
    """Brokers may have deleted already: a successor without the marker would lead a deleted topic."""
    world = the_topic()
    world.mark("orders", abandon=True)
    assert world.unmark("orders").changes == [DeletionMarked("orders", abandon_offline=True)]
    assert world.zookeeper.markers() == {"orders": True}


def test_a_marker_read_before_the_topic_was_made_was_about_its_predecessor() -> None:
    world = the_topic()
    seen = DeletionsSeen({"orders": False}, world.cluster.topics["orders"].czxid - 1)
    assert world.happens(seen).changes == []


def test_a_marker_for_a_topic_of_nonsense_waits_until_it_makes_sense() -> None:
    world = the_topic()
    world.zookeeper.put(topic_path("users"), b"{")
    world.happens(world.zookeeper.topics_seen())
    world.mark("users")
    assert world.deletion("users").waits_for == "its znode is malformed"
    assert moved(world.wait(1_000)) == []
    world.zookeeper.put(topic_path("users"), encode_topic("u" * 22, {0: Assignment((1,))}))
    world.happens(world.zookeeper.topics_seen())
    assert moved(world.wait(1_000)) == [("Started", [(0, 1)])]
    assert world.deletion("users").waits_for is None
    world.answer(1)
    assert world.left_of("users") == []


def test_the_marker_of_a_topic_removed_by_a_tool_does_not_delete_the_next_of_that_name() -> None:
    world = the_topic(1, 2)
    world.ask("orders")
    world.zookeeper.remove(topic_path("orders"))
    world.zookeeper.put(topic_path("orders"), encode_topic("o" * 22, {0: Assignment((1, 2))}))
    settled = world.happens(world.zookeeper.topics_seen())
    assert [type(one) for one in settled.changes if isinstance(one, TopicGone | MarkerDropped)] == [
        TopicGone,
        MarkerDropped,
    ]
    assert settled.states.keys() == {"orders-0"}
    assert (world.zookeeper.markers(), world.cluster.duties.deletions) == ({}, {})
