"""The conditions that hold a deletion and end it: each row of Kafka's table, retries, and doing without the dead."""

from __future__ import annotations

from controller.core.changes.cluster import StateDecided
from controller.core.changes.duties import (
    DeletionMarked,
    DeletionQueued,
    DeletionWaits,
    MarkerDropped,
    ReplicasMoved,
)
from controller.core.codes import Code
from controller.core.decide.deletion import STARTED, SUCCESSFUL
from controller.core.events import StopReplicaAnswered
from controller.core.formats import encode_topic
from controller.core.model import Assignment
from controller.core.project.znodes import topic_path
from tests.core.deleting import Deleting, moved, reassigned, shape, the_topic


def test_a_replica_whose_broker_is_gone_makes_the_topic_wait_until_it_returns() -> None:
    world = the_topic(1, 2)
    settled = world.ask("orders")
    assert moved(settled) == [("Started", [(0, 1), (0, 2), (1, 2)]), ("Ineligible", [(1, 3)])]
    assert settled.of(DeletionWaits) == [DeletionWaits("orders", "broker 3 is gone")]
    world.answer(1)
    world.answer(2)
    assert world.left_of("orders")
    settled = world.come(3)
    assert moved(settled) == [("Started", [(1, 3)])]
    assert settled.of(DeletionWaits) == [DeletionWaits("orders", None)]
    assert world.awaited.keys() == {3}
    world.answer(3)
    assert world.left_of("orders") == []


def test_a_broker_that_goes_before_it_answered_is_waited_for_and_asked_again() -> None:
    world = the_topic()
    world.ask("orders")
    world.answer(1)
    assert moved(world.go(2)) == [("Ineligible", [(0, 2), (1, 2)])]
    assert world.deletion("orders").waits_for == "broker 2 is gone"
    world.answer(3)
    assert moved(world.come(2)) == [("Started", [(0, 2), (1, 2)])]
    world.answer(2)
    assert world.left_of("orders") == []


def test_a_broker_that_goes_after_it_answered_is_not_waited_for() -> None:
    world = the_topic()
    world.ask("orders")
    world.answer(2)
    assert world.go(2).of(ReplicasMoved) == []
    assert world.deletion("orders").waits_for is None
    world.answer(1)
    world.answer(3)
    assert world.left_of("orders") == []


def test_a_broker_that_bounces_is_asked_again_by_its_new_incarnation_only() -> None:
    world = the_topic()
    world.ask("orders")
    old = world.cluster.brokers[2].epoch
    copies = frozenset(world.awaited[2])
    settled = world.come(2)
    assert moved(settled) == [("Started", [(0, 2), (1, 2)])]
    assert [bool(telling.stops) for telling in settled.tellings] == [False, True], "told once it is live"
    assert world.happens(StopReplicaAnswered(2, old, copies)).changes == []
    assert world.answer(2).of(ReplicasMoved) == [ReplicasMoved("orders", ((0, 2), (1, 2)), (SUCCESSFUL,))]


def test_a_refusal_is_tried_again_after_a_while() -> None:
    world = the_topic()
    world.ask("orders")
    settled = world.answer(2, refused=[1])
    assert moved(settled) == [("Successful", [(0, 2)]), ("Ineligible", [(1, 2)])]
    assert settled.of(DeletionWaits) == [DeletionWaits("orders", "broker 2 refused to delete orders-1", 1_000)]
    assert world.wait(999).changes == []
    settled = world.wait(1)
    assert moved(settled) == [("Started", [(1, 2)])]
    assert settled.of(DeletionWaits) == [DeletionWaits("orders", None)]
    for broker_id in (1, 2, 3):
        world.answer(broker_id)
    assert world.left_of("orders") == []


def test_an_answer_about_a_replica_not_asked_for_changes_nothing() -> None:
    world = the_topic()
    topic_id = world.cluster.topics["orders"].topic_id or ""
    unasked = StopReplicaAnswered(1, world.cluster.brokers[1].epoch, frozenset({(topic_id, 0), (topic_id, 7)}))
    assert world.happens(unasked).changes == []
    world.ask("orders")
    world.answer(1, refused=[0])
    assert world.happens(unasked).changes == []


def test_each_refusal_is_waited_for_twice_as_long_up_to_a_minute() -> None:
    world = the_topic()
    world.ask("orders")
    pauses = []
    for _ in range(9):
        [waits] = world.answer(1, refused=[0]).of(DeletionWaits)
        pauses.append(waits.retry_at_ms - world.now_ms)
        world.wait(pauses[-1])
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_refusals_of_several_brokers_are_tried_again_together() -> None:
    world = the_topic()
    world.ask("orders")
    world.answer(1, refused=[0])
    world.now_ms += 400
    [waits] = world.answer(3, refused=[1]).of(DeletionWaits)
    assert waits.reason == "broker 1 refused to delete orders-0; broker 3 refused to delete orders-1"
    assert (waits.retry_at_ms, world.deletion("orders").failures) == (1_000, 1)
    assert moved(world.wait(600)) == [("Started", [(0, 1), (1, 3)])]


def test_a_broker_that_refused_and_bounces_is_asked_again_at_once() -> None:
    world = the_topic()
    world.ask("orders")
    world.answer(3, refused=[1])
    settled = world.come(3)
    assert moved(settled) == [("Started", [(1, 3)])]
    assert settled.of(DeletionWaits) == [DeletionWaits("orders", None)]


def test_a_broker_that_refused_and_goes_is_waited_for_like_the_others() -> None:
    world = the_topic()
    world.ask("orders")
    world.answer(3, refused=[1])
    [waits] = world.go(3).of(DeletionWaits)
    assert waits == DeletionWaits("orders", "broker 3 is gone")
    assert world.wait(60_000).changes == []


def test_the_awaited_brokers_are_named_in_full_and_briefly() -> None:
    world = Deleting(1, 2, 3, 4, orders=[[1, 2, 3]] * 5)
    world.go(2, 3)
    world.ask("orders")
    world.answer(1, refused=range(5))
    refused = "broker 1 refused to delete orders-0, orders-1, orders-2 and 2 more"
    assert world.deletion("orders").waits_for == f"brokers 2, 3 are gone; {refused}"


def test_a_reassignment_that_runs_holds_the_deletion_until_it_is_over() -> None:
    world = the_topic(1, 2, 3, 4)
    reassigned(world, "orders", Assignment((1, 2, 4), adding=(4,)))
    assert world.ask("orders").steps == [
        [DeletionMarked("orders", abandon_offline=False)],
        [
            DeletionQueued("orders", abandon_offline=False, is_held=True),
            DeletionWaits("orders", "reassignment in progress"),
        ],
    ]
    assert world.wait(60_000).changes == []
    reassigned(world, "orders", Assignment((1, 2)))
    assert world.wait(1).steps == [
        [DeletionQueued("orders", abandon_offline=False)],
        [ReplicasMoved("orders", ((0, 1), (0, 2), (1, 2), (1, 3)), (STARTED,)), DeletionWaits("orders", None)],
    ]


def test_while_it_is_held_a_topic_is_led_and_told_of_and_may_be_kept_after_all() -> None:
    world = the_topic(1, 2, 3, 4)
    reassigned(world, "orders", Assignment((1, 2, 4), adding=(4,)))
    assert world.mark("orders", abandon=True).tellings[0].is_empty
    assert world.go(1).states["orders-0"].leader == 2
    assert world.ask("orders").refusals[0].code is Code.NONE
    world.mark("orders", abandon=False)
    assert not world.deletion("orders").abandon_offline
    assert world.unmark("orders").of(MarkerDropped) == [MarkerDropped("orders", "it was taken back before it began")]
    assert world.cluster.duties.deletions == {}


def test_partitions_that_a_tool_adds_meanwhile_are_deleted_too() -> None:
    world = the_topic()
    world.ask("orders")
    topic_id = world.cluster.topics["orders"].topic_id or ""
    world.zookeeper.put(topic_path("orders"), encode_topic(topic_id, {n: Assignment((1, 2)) for n in range(3)}))
    assert world.happens(world.zookeeper.topics_seen()).of(StateDecided) == []
    world.answer(1)
    world.finish(1, 2, 3)
    assert world.left_of("orders") == []


# ---------------------------------------------------------------------- without the dead


def test_without_the_dead_a_deletion_completes_and_a_returning_broker_is_told_nothing() -> None:
    world = the_topic(1, 2)
    settled = world.ask("orders", abandon=True)
    assert moved(settled) == [("Started", [(0, 1), (0, 2), (1, 2)]), ("Successful", [(1, 3)])]
    assert settled.of(DeletionWaits) == []
    world.answer(1)
    world.answer(2)
    assert world.left_of("orders") == []
    world.come(3)
    assert world.awaited == {}


def test_a_broker_that_dies_in_the_middle_is_abandoned_like_the_others() -> None:
    world = the_topic()
    world.mark("orders", abandon=True)
    world.answer(1)
    world.answer(3)
    assert shape(world.go(2)) == [["BrokerGone"], ["ReplicasMoved"], ["PartitionErased"], ["TopicErased"]]
    assert world.left_of("orders") == []


def test_a_topic_of_which_everybody_is_dead_is_gone_at_once() -> None:
    world = the_topic()
    world.go(1, 2, 3)
    assert shape(world.ask("orders", abandon=True))[-1] == ["TopicErased"]
    assert world.left_of("orders") == []


def test_the_dead_are_abandoned_but_refusals_are_not() -> None:
    world = the_topic(1, 2)
    world.ask("orders", abandon=True)
    world.answer(1, refused=[0])
    world.answer(2)
    assert world.deletion("orders").waits_for == "broker 1 refused to delete orders-0"
