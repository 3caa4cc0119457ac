"""`/admin/reassign_partitions`: taken, kept until all of it is done, removed; nonsense in it is reported once."""

from __future__ import annotations

import pytest

from controller.core.changes.duties import NodeRemoved, OperatorErrorReported, ReassignNodeWritten
from controller.core.events import ReassignAsked, ReassignNodeSeen
from controller.core.formats import encode
from controller.core.project.znodes import REASSIGN, broker_path
from tests.core.reassign_support import Field, node_seen


def node(**targets: list[int]) -> bytes:
    """`node(orders_0=[1, 2])`."""
    named = [(name.split("_"), replicas) for name, replicas in targets.items()]
    entries = [{"topic": topic, "partition": int(number), "replicas": one} for (topic, number), one in named]
    return encode({"version": 1, "partitions": entries})


def test_the_node_is_carried_out_and_stays_until_all_of_it_is_done() -> None:
    field = Field(orders=[[1, 2], [1, 2], [2, 1]])
    field.put_node(node(orders_0=[3, 4], orders_1=[4, 5], orders_2=[1, 2]))
    assert field.cluster.reassigning == {("orders", 0), ("orders", 1)}
    assert list(field.cluster.duties.reassign_targets) == [("orders", 0), ("orders", 1)]
    field.sync(at=1)
    assert node_seen(field.zookeeper) == ReassignNodeSeen({("orders", 0): (3, 4)}, 2)
    field.sync()
    assert not field.has_node
    assert field.cluster.duties.reassign_version is None
    assert [field.history(number)[0] for number in range(3)] == [(3, 4), (4, 5), (1, 2)]


def test_a_node_may_ask_for_brokers_that_are_away_and_waits_for_them() -> None:
    """Kafka's suite: the leader stays, the leader epoch is 1, the node remains; done when the target has started."""
    field = Field(orders=[[1]])
    field.kill(2)
    field.put_node(node(orders_0=[2]))
    assert field.history() == ((2, 1), 1, (1,), 1)
    assert field.has_node
    field.start(2)
    field.sync()
    assert field.history() == ((2,), 2, (2,), 2)
    assert not field.has_node


def test_a_node_may_ask_for_a_broker_that_joined_just_now_and_died_with_its_controller() -> None:
    """Nobody had time to look: the broker joins, the node names it, and both processes die."""
    field = Field(live=(1, 3), orders=[[1]])
    field.start(2)
    field.zookeeper.put(REASSIGN, node(orders_0=[2]))
    field.zookeeper.remove(broker_path(2))
    field.new_term()
    assert field.has_node
    assert field.history() == ((2, 1), 1, (1,), 1)
    field.start(2)
    field.sync()
    assert field.history() == ((2,), 2, (2,), 2)
    assert not field.has_node


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"partitions":[{"topic":"orders","partition":"0","replicas":["1"]}]}', b'{"partitions":7}'],
)
def test_a_node_of_nonsense_is_reported_once_and_removed(data: bytes) -> None:
    field = Field(orders=[[1, 2]])
    settled = field.put_node(data)
    assert len(settled.of(OperatorErrorReported)) == len(settled.of(NodeRemoved)) == 1
    assert not field.has_node
    assert field.see_node().changes == []
    field.put_node(node(orders_0=[3]))
    assert field.cluster.reassigning == {("orders", 0)}


def test_a_node_that_asks_for_nothing_is_removed() -> None:
    field = Field(orders=[[1, 2]])
    field.put_node(node())
    assert not field.has_node


@pytest.mark.parametrize(
    "entry",
    [
        {"orders_9": [1]},
        {"nothing_0": [1]},
        {"orders_1": []},
        {"orders_1": [1, 1]},
        {"orders_1": [-1]},
        {"orders_1": [77]},
    ],
)
def test_an_entry_that_cannot_be_taken_is_reported_and_dropped_and_the_others_are_carried_out(
    entry: dict[str, list[int]],
) -> None:
    field = Field(orders=[[1, 2], [1, 2]])
    settled = field.put_node(node(**entry, orders_0=[3]))
    assert len(settled.of(OperatorErrorReported)) == 1
    assert list(field.cluster.duties.reassign_targets) == [("orders", 0)]
    assert field.see_node().changes == []
    field.sync()
    assert not field.has_node


def test_a_later_request_takes_its_partition_out_of_the_node_in_the_same_decision() -> None:
    field = Field(orders=[[1, 2], [1, 2]])
    field.put_node(node(orders_0=[3], orders_1=[4]))
    asked = field.move(5)
    assert isinstance(asked.changes[0], ReassignNodeWritten)
    field.new_term()
    assert field.partition().adding == (5,)
    assert list(field.cluster.duties.reassign_targets) == [("orders", 1)]
    field.cancel(at=1)
    assert not field.has_node
    field.new_term()
    assert field.cluster.reassigning == {("orders", 0)}


def test_a_request_that_is_refused_leaves_the_node_alone() -> None:
    field = Field(orders=[[1, 2]])
    field.put_node(node(orders_0=[3]))
    assert field.asked({("orders", 0): (77,)})
    assert list(field.cluster.duties.reassign_targets) == [("orders", 0)]


def test_a_request_for_the_nodes_own_plan_leaves_the_node_until_it_is_done() -> None:
    field = Field(orders=[[1, 2]])
    field.put_node(node(orders_0=[3]))
    field.move(3)
    assert field.has_node
    field.sync()
    assert not field.has_node


def test_a_successor_carries_out_a_plan_that_the_last_term_did_not_begin() -> None:
    field = Field(orders=[[1, 2]])
    field.zookeeper.put(REASSIGN, node(orders_0=[3]))
    field.new_term()
    assert field.partition().adding == (3,)


def test_a_node_written_anew_overrides_the_running_reassignment() -> None:
    field = Field(orders=[[1, 2]])
    field.put_node(node(orders_0=[3]))
    field.put_node(node(orders_0=[4]))
    assert field.partition().adding == (4,)
    field.sync()
    assert not field.has_node


def test_a_node_that_a_tool_takes_away_ends_nothing() -> None:
    field = Field(orders=[[1, 2]])
    field.put_node(node(orders_0=[3]))
    field.zookeeper.remove(REASSIGN)
    field.see_node()
    assert field.cluster.duties.reassign_targets == {}
    field.sync()
    assert field.history()[0] == (3,)


def test_a_node_changed_behind_our_back_is_read_again() -> None:
    field = Field(orders=[[1, 2], [1, 2]])
    field.put_node(node(orders_0=[3], orders_1=[4]))
    field.zookeeper.put(REASSIGN, node(orders_0=[3], orders_1=[5]))  # not seen yet
    field.happens(ReassignAsked({("orders", 0): None}))
    assert field.partition(number=0).adding == ()
    assert field.partition(number=1).adding == (5,)
    assert list(field.cluster.duties.reassign_targets) == [("orders", 1)]


def test_a_topic_that_goes_leaves_the_node() -> None:
    field = Field(orders=[[1, 2]], payments=[[1, 2]])
    field.put_node(node(orders_0=[3], payments_0=[3]))
    field.zookeeper.remove("/brokers/topics/payments")
    field.happens(field.zookeeper.topics_seen())
    assert list(field.cluster.duties.reassign_targets) == [("orders", 0)]
