"""The cost of a decision about one topic, in steps: nothing for the topics that exist already."""

from __future__ import annotations

import pytest

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Refused, TopicCreated
from controller.core.codes import Code
from controller.core.decide.dispatch import decide
from controller.core.events import CreateTopicAsked, TopicFact
from controller.core.model import Assignment, Broker
from tests.bench.world import topic_id_of
from tests.steps import counted

SIZES = (1_000, 10_000, 40_000)


def a_cluster(topics: int) -> Cluster:
    cluster = Cluster(controller_id=1, controller_epoch=2)
    names = [f"topic.{number}" for number in range(topics)]
    one = {0: Assignment((1, 2, 3))}
    cluster.load([TopicFact(name, 0, 5, 5, topic_id_of(name), one) for name in names], [])
    brokers = {broker_id: Broker(broker_id, broker_id, "h", 1, ()) for broker_id in (1, 2, 3)}
    cluster.brokers, cluster.live_ids = brokers, frozenset(brokers)
    return cluster


def test_a_topic_is_created_at_the_same_cost_however_many_there_are() -> None:
    counts = {}
    for size in SIZES:
        cluster = a_cluster(size)
        with counted() as steps:
            changes = [
                one for piece in decide(cluster, CreateTopicAsked("new.one", 1, 3), 0, 1) for one in piece.changes
            ]
        assert any(isinstance(one, TopicCreated) for one in changes)
        counts[size] = steps.count
    assert len(set(counts.values())) == 1, counts


@pytest.mark.parametrize("partitions", [62_000, 64_000])
def test_a_topic_too_large_for_zookeeper_is_refused_with_a_remedy(partitions: int) -> None:
    """With broker ids of one digit and three replicas; the configuration is written in the same transaction."""
    event = CreateTopicAsked("big", partitions, 3)
    (first, *_) = (one for piece in decide(a_cluster(0), event, 0, 1) for one in piece.changes)
    if partitions == 62_000:
        assert isinstance(first, TopicCreated)
        with_config = CreateTopicAsked(
            "big", partitions, 3, None, {"leader.replication.throttled.replicas": ",".join(["10:1"] * 18_000)}
        )
        (first, *_) = (one for piece in decide(a_cluster(0), with_config, 0, 1) for one in piece.changes)
    assert isinstance(first, Refused)
    assert first.code is Code.INVALID_PARTITIONS
    assert "ask for at most about" in first.detail
