"""Reassignments: begun, redirected, cancelled, waiting, ended; asked for by the API and by Kafka's node."""

from __future__ import annotations

import pytest

from controller.core.changes.cluster import Committed, TopicWritten
from controller.core.changes.duties import DeletionQueued
from controller.core.codes import Code
from controller.core.decide.reassignment_plan import redirected
from controller.core.events import AlterPartitionAsked, ReassignAsked
from controller.core.formats import encode_state
from controller.core.model import NO_LEADER, Assignment, Partition, Replicas
from controller.core.project.znodes import state_path
from tests.builders import a_leadership, a_proposal, settle, topic_id_of
from tests.core.reassign_support import Field, stops_of

MOVING = Partition((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))


@pytest.mark.parametrize(
    ("before", "target", "after"),
    [
        (Partition((1, 2, 3)), (4, 5, 6), Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
        (MOVING, (7, 8, 9), Assignment((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3))),
        (MOVING, (1, 2, 3), Assignment((1, 2, 3))),
        (MOVING, (4, 5, 6), Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
        (Partition((1, 2, 3)), (3, 1, 2), Assignment((3, 1, 2))),
        (Partition((1, 2, 3)), (3, 4), Assignment((3, 4, 1, 2), (4,), (1, 2))),
        (Partition((1, 2)), (1, 2, 3), Assignment((1, 2, 3), (3,))),
        (Partition((1, 2, 3)), (2,), Assignment((2, 1, 3), (), (1, 3))),
    ],
)
def test_the_arithmetic_is_kafkas(before: Partition, target: Replicas, after: Assignment) -> None:
    assert redirected(before, target) == after


def test_the_way_of_a_partition_is_kafkas() -> None:
    """Replicas, leader and ISR as the reference has them; the leader epoch rises once where Kafka raises it thrice."""
    field = Field(orders=[[1, 2, 3]])
    ways = [field.history()]
    field.move(4, 5, 6)
    ways.append(field.history())
    field.sync(1, 2, 3, 4, 5)
    ways.append(field.history())
    field.sync(1, 2, 3, 4, 5, 6)
    ways.append(field.history())
    assert ways == [
        ((1, 2, 3), 1, (1, 2, 3), 0),
        ((4, 5, 6, 1, 2, 3), 1, (1, 2, 3), 1),
        ((4, 5, 6, 1, 2, 3), 1, (1, 2, 3, 4, 5), 1),
        ((4, 5, 6), 4, (4, 5, 6), 2),
    ]
    assert field.cluster.reassigning == set()


def test_assignment_and_leadership_are_one_transaction() -> None:
    field = Field(orders=[[1, 2], [2, 1]])
    begun = field.happens(ReassignAsked({("orders", 0): (3, 4), ("orders", 1): (4, 3)}))
    [change] = begun.of(TopicWritten)
    assert [len(step) for step in begun.steps] == [1]
    assert change.touched == (0, 1)
    assert [state.partition for state in change.states] == [0, 1]
    assert [write.path for write in begun.writes[0]] == [
        "/brokers/topics/orders/partitions/0/state",
        "/brokers/topics/orders/partitions/1/state",
        "/brokers/topics/orders",
    ]


def test_everybody_concerned_is_told_and_replicas_being_added_are_new_until_they_are_in_sync() -> None:
    field = Field(orders=[[1, 2]])
    [telling] = field.move(3, 2).tellings
    assert set(telling.leaderships) == {1, 2, 3}
    new = (topic_id_of("orders"), 0, 3)
    assert telling.new_replicas == {new}
    field.new_term()
    bounced = field.kill(2)
    assert [telling.new_replicas for telling in bounced.tellings] == [{new}]


def test_replicas_that_are_left_are_told_to_delete_once_the_topic_znode_stands() -> None:
    field = Field(orders=[[1, 2]])
    assert stops_of(field.move(3, 2)) == {}
    assert stops_of(field.sync(1, 2, 3)) == {1: {("orders", 0, 2)}}


@pytest.mark.parametrize(
    ("target", "way"),
    [
        ((2, 1, 3), ((2, 1, 3), 1, (1, 2, 3), 1)),  # the leader stays
        ((2, 3), ((2, 3), 2, (2, 3), 1)),
        ((1,), ((1,), 1, (1,), 1)),
    ],
)
def test_a_reassignment_to_replicas_in_sync_is_over_at_once(target: Replicas, way: tuple[object, ...]) -> None:
    field = Field(orders=[[1, 2, 3]])
    field.move(*target)
    assert field.history() == way
    assert not field.cluster.reassigning


def test_a_removal_waits_until_the_staying_replicas_are_in_sync() -> None:
    field = Field(orders=[[1, 2, 3]])
    field.kill(3)
    field.move(3)
    assert field.partition() == Partition(
        (3, 1, 2), (), (1, 2), field.state(), field.partition().version, field.partition().zxid
    )
    field.start(3)
    field.sync()
    assert field.history()[:3] == ((3,), 3, (3,))


def test_one_replica_for_another_costs_two_leader_epochs() -> None:
    """Kafka's suite expects 3: it begins, elects, and shrinks the ISR in three writes."""
    field = Field(orders=[[1]])
    field.move(2)
    assert field.history() == ((2, 1), 1, (1,), 1)
    field.sync()
    assert field.history() == ((2,), 2, (2,), 2)


@pytest.mark.parametrize(
    ("key", "target", "code"),
    [
        (("orders", 0), (), Code.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0), (1, 1), Code.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0), (-1, 2), Code.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0), (1, 77), Code.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0), (1, 6), Code.INVALID_REPLICA_ASSIGNMENT),  # known, not live
        (("orders", 9), (1, 2), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (("nothing", 0), (1, 2), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (("nothing", 0), None, Code.UNKNOWN_TOPIC_OR_PARTITION),
        (("garbage", 0), (2, 3), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (("leaving", 0), (2, 3), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 0), None, Code.NO_REASSIGNMENT_IN_PROGRESS),
        (("orders", 0), (1, 2), Code.NONE),
    ],
)
def test_each_partition_that_cannot_be_moved_is_refused_alone(
    key: tuple[str, int], target: Replicas | None, code: Code
) -> None:
    field = Field(orders=[[1, 2], [1, 2]], garbage=[[1, 2]], leaving=[[1, 2]])
    field.kill(6)
    field.cluster.unreadable["garbage", None] = ("not a topic", 1)
    field.cluster.apply([Committed(DeletionQueued("leaving", abandon_offline=False))])
    settled = field.happens(ReassignAsked({key: target, ("orders", 1): (3, 4)}))
    [refused] = settled.refusals
    assert (refused.code, refused.subject, refused.partition) == (code, f"topic {key[0]}", key[1])
    assert refused.detail
    assert field.cluster.reassigning == {("orders", 1)}
    assert field.history()[0] == (1, 2)


def test_asking_for_the_same_again_is_no_mistake() -> None:
    field = Field(orders=[[1, 2]])
    assert field.asked({("orders", 0): (3, 4)}) == []
    assert field.asked({("orders", 0): (3, 4)}) == [Code.NONE]
    assert field.state().leader_epoch == 1


def test_the_latest_request_wins() -> None:
    field = Field(orders=[[1, 2, 3]])
    field.move(4, 5)
    field.sync(1, 2, 3, 4)
    redirected_now = field.move(5, 6)
    assert field.history() == ((5, 6, 1, 2, 3), 1, (1, 2, 3), 2)
    assert stops_of(redirected_now) == {4: {("orders", 0, 2)}}
    field.sync()
    assert field.history()[:3] == ((5, 6), 5, (5, 6))


def test_a_cancelled_reassignment_goes_back_to_where_it_came_from() -> None:
    field = Field(orders=[[1, 2]])
    field.move(3, 4)
    field.sync(1, 2, 3)
    cancelled = field.cancel()
    assert field.history() == ((1, 2), 1, (1, 2), 2)
    assert stops_of(cancelled) == {3: {("orders", 0, 2)}, 4: {("orders", 0, 2)}}
    assert field.asked({("orders", 0): None}) == [Code.NO_REASSIGNMENT_IN_PROGRESS]


def test_a_leader_that_is_dropped_hands_over_in_the_same_write() -> None:
    field = Field(orders=[[1, 2]])
    field.move(3, 4)
    field.sync(1, 2, 3)
    field.kill(1)
    assert field.state().leader == 3
    field.cancel()
    assert field.history() == ((1, 2), 2, (2,), 3)


def test_a_cancel_is_refused_while_only_dropped_replicas_are_in_sync() -> None:
    """Also where unclean elections are allowed: a leader that lives is never given up for one with less data."""
    field = Field(orders=[[1, 2]])
    field.cluster.unclean_default = True
    field.kill(2)
    field.move(3, 4)
    field.sync(1, 3)
    field.kill(1)
    field.start(2)
    before = field.history()
    assert field.asked({("orders", 0): None}) == [Code.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert field.history() == before == ((3, 4, 1, 2), 3, (3,), 3)
    field.sync(3, 4)
    assert field.history()[:3] == ((3, 4), 3, (3, 4))


def test_a_partition_without_a_leader_can_be_cancelled_while_the_staying_replicas_have_all_data() -> None:
    field = Field(orders=[[1, 2]])
    field.move(3, 4)
    field.sync(1, 2, 3)
    field.kill(1, 2, 3)
    assert field.state().leader == NO_LEADER
    assert field.asked({("orders", 0): None}) == []
    assert field.history()[:3] == ((1, 2), NO_LEADER, (1, 2))
    field.start(2)
    assert field.state().leader == 2


def test_a_target_that_never_comes_can_be_seen_cancelled_and_replaced() -> None:
    field = Field(orders=[[1, 2]])
    field.move(3, 4)
    field.kill(4)
    field.sync(1, 2, 3)
    assert field.partition().adding == (3, 4)
    assert field.asked({("orders", 0): (3, 5)}) == []
    field.kill(5)
    assert field.asked({("orders", 0): None}) == []
    assert field.history()[:3] == ((1, 2), 1, (1, 2))


def test_a_target_in_sync_that_cannot_lead_waits_until_it_can() -> None:
    field = Field(orders=[[1]])
    field.move(2)
    with_all = a_leadership(NO_LEADER, [1, 2], 3, controller_epoch=field.epoch)
    field.kill(1, 2)
    field.zookeeper.put(state_path("orders", 0), encode_state(with_all))
    field.happens(field.zookeeper.states_seen(("orders", 0)))
    assert field.cluster.reassigning
    field.start(2)
    assert field.history()[:3] == ((2,), 2, (2,))


def test_a_successor_goes_on_where_the_last_one_stopped() -> None:
    field = Field(orders=[[1, 2]])
    field.move(3, 4)
    field.new_term()
    assert field.history() == ((3, 4, 1, 2), 1, (1, 2), 1)
    # granted, and the controller died before it could end the reassignment
    proposal = a_proposal(field.cluster, "orders", 0, 1, 2, 3, 4)
    settle(field.cluster, AlterPartitionAsked(1, field.cluster.brokers[1].epoch, [proposal]), field.zookeeper)
    field.new_term()
    assert field.history() == ((3, 4), 3, (3, 4), 2)


def test_a_successor_ends_a_reassignment_in_sync_long_ago() -> None:
    field = Field(orders=[[1]])
    field.move(2)
    proposal = a_proposal(field.cluster, "orders", 0, 1, 2)
    settle(field.cluster, AlterPartitionAsked(1, field.cluster.brokers[1].epoch, [proposal]), field.zookeeper)
    field.epoch += 1  # a term that ended before it did anything
    field.new_term()
    assert field.history() == ((2,), 2, (2,), 2)


def test_a_removed_replica_cannot_creep_back_into_the_isr() -> None:
    field = Field(orders=[[1, 2]])
    field.move(2, 3)
    late = a_proposal(field.cluster, "orders", 0, 1, 2, 3)
    field.sync(1, 2, 3)
    leader = field.state().leader
    epoch = field.cluster.brokers[leader].epoch
    again = a_proposal(field.cluster, "orders", 0, 1, 2, 3)
    codes = [
        one.code
        for proposal in (late, again)
        for one in field.happens(AlterPartitionAsked(leader, epoch, [proposal])).refusals
    ]
    assert codes == [Code.FENCED_LEADER_EPOCH, Code.INVALID_REQUEST]
    assert field.state().isr == (2, 3)


def test_a_partition_that_was_never_led_is_just_placed_anew() -> None:
    field = Field(live=(1, 2), orders=[[3], [1]])
    assert field.partition().state is None
    field.move(2)
    assert field.history() == ((2,), 2, (2,), 0)
