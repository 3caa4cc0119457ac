"""The znode of a topic that is being reassigned: how much fits, and tools that rewrite it knowing less."""

from __future__ import annotations

import pytest

from controller.core.changes.cluster import TopicWritten
from controller.core.codes import Code
from controller.core.events import ReassignAsked
from controller.core.formats import encode_topic
from controller.core.model import Assignment, Replicas
from controller.core.project.znodes import topic_path
from tests.builders import topic_id_of
from tests.core.reassign_support import Field


def test_many_partitions_are_written_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.core.decide.reassignment_plan.STATES_PER_TRANSACTION", 2)
    field = Field(orders=[[1, 2]] * 5)
    begun = field.happens(ReassignAsked({("orders", number): (3, 2) for number in range(5)}))
    assert len(begun.steps) == 3
    assert [change.touched for change in begun.of(TopicWritten)] == [(0, 1), (2, 3), (4,)]
    assert {one.adding for one in field.cluster.topics["orders"].partitions.values()} == {(3,)}


def test_more_than_a_znode_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.core.decide.reassignment_plan.MAX_TOPIC_ZNODE_BYTES", 150)
    field = Field(orders=[[1, 2]] * 2)
    targets = {("orders", number): (3, 4) for number in range(2)}
    assert field.asked(targets) == [Code.INVALID_REPLICA_ASSIGNMENT] * 2


def v1(*replicas: Replicas) -> bytes:
    listed = ",".join(f'"{number}":{list(one)}' for number, one in enumerate(replicas))
    return b'{"version":1,"partitions":{%s}}' % listed.encode()


MOVED: Replicas = (3, 4, 1, 2)
WITH_ITS_ID = encode_topic(topic_id_of("orders"), {0: Assignment(MOVED)})


@pytest.mark.parametrize("rewritten", [v1(MOVED), v1((1, 2)), v1(MOVED, (5,)), WITH_ITS_ID])
def test_a_tool_that_knows_less_loses_neither_the_id_nor_the_reassignment(rewritten: bytes) -> None:
    field = Field(orders=[[1, 2]])
    field.move(3, 4)
    written = field.zookeeper.nodes[topic_path("orders")].data
    field.zookeeper.put(topic_path("orders"), rewritten)
    field.happens(field.zookeeper.topics_seen())
    fact = field.zookeeper.topic_fact("orders")
    assert fact.topic_id == topic_id_of("orders")
    assert fact.assignment[0] == Assignment((3, 4, 1, 2), (3, 4), (1, 2))
    if len(fact.assignment) == 1:
        assert field.zookeeper.nodes[topic_path("orders")].data == written
    else:
        assert field.state(1).leader == 5
    assert not field.happens(field.zookeeper.topics_seen()).changes
    field.sync()
    assert field.history()[:3] == ((3, 4), 3, (3, 4))


def test_replicas_that_another_writer_changes_are_passed_over() -> None:
    field = Field(orders=[[1, 2], [1, 2]])
    foreign = {0: Assignment((5, 6)), 1: Assignment((1, 2))}
    field.zookeeper.put(topic_path("orders"), encode_topic(topic_id_of("orders"), foreign))
    seen = field.happens(field.zookeeper.topics_seen())
    assert not seen.of(TopicWritten)
    assert field.history()[0] == (1, 2)
