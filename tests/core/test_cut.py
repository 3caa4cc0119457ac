"""A controller that dies in the middle of a decision: its successor comes to the same end from every partial write.

Each event is cut everywhere: the first k steps stand, and any subset of the next one (all subsets of a small step, a
sample by fixed seed of a large one). A fresh term starts from there. For a fact the end is that of the uncut decision,
leader epochs included. A fact that a successor cannot know - a question never answered, a bounce between two terms -
may have its effect or not, partition by partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from random import Random
from typing import NamedTuple

import pytest

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import (
    Change,
    Committed,
    StateDecided,
    TopicWritten,
)
from controller.core.events import AlterPartitionAsked, CreateTopicAsked, Event
from controller.core.formats import encode_topic
from controller.core.model import Assignment, Replicas
from controller.core.project.znodes import (
    broker_path,
    state_path,
    topic_path,
)
from tests.builders import EPOCH, a_broker, a_proposal, believed, commit, settle, steps_of
from tests.core.model_zookeeper import ModelZooKeeper

SMALL = 5
SAMPLES = 24
ORDERS: dict[int, Replicas] = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 2), 4: (1,), 5: (5, 1)}
PAYMENTS: dict[int, Replicas] = {0: (2, 1), 1: (1, 4)}

#: partition -> leader, ISR, leader epoch
End = dict[str, tuple[int, tuple[int, ...], int] | None]


class Scene(NamedTuple):
    """A cluster in the middle of a term, and the next event."""

    zookeeper: ModelZooKeeper
    cluster: Cluster
    event: Event


def topic_data(assignment: dict[int, Replicas], topic_id: str = "") -> bytes:
    return encode_topic(topic_id, {number: Assignment(replicas) for number, replicas in assignment.items()})


def prepare() -> tuple[ModelZooKeeper, Cluster]:
    """Five brokers of which the fourth was never there; two topics, all led."""
    zookeeper = ModelZooKeeper()
    for broker_id in (1, 2, 3, 5):
        zookeeper.register(a_broker(broker_id))
    zookeeper.put(topic_path("orders"), topic_data(ORDERS, "o" * 22))
    zookeeper.put(topic_path("payments"), topic_data(PAYMENTS, "p" * 22))
    cluster, event = zookeeper.new_term(EPOCH)
    settle(cluster, event, zookeeper)
    return zookeeper, cluster


def brokers_go(*broker_ids: int) -> Scene:
    zookeeper, cluster = prepare()
    for broker_id in broker_ids:
        zookeeper.remove(broker_path(broker_id))
    return Scene(zookeeper, cluster, zookeeper.brokers_seen())


def brokers_come() -> Scene:
    zookeeper, cluster, event = brokers_go(1, 5)
    settle(cluster, event, zookeeper)
    for broker_id in (1, 4):
        zookeeper.register(a_broker(broker_id))
    return Scene(zookeeper, cluster, zookeeper.brokers_seen())


def one_goes_while_another_comes() -> Scene:
    zookeeper, cluster, _ = brokers_go(2)
    zookeeper.register(a_broker(4))
    return Scene(zookeeper, cluster, zookeeper.brokers_seen())


def bounce() -> Scene:
    zookeeper, cluster = prepare()
    zookeeper.register(a_broker(1))
    return Scene(zookeeper, cluster, zookeeper.brokers_seen())


def topics_appear() -> Scene:
    zookeeper, cluster = prepare()
    zookeeper.put(topic_path("users"), topic_data({0: (1, 2), 1: (4,), 2: (3,)}))
    zookeeper.put(topic_path("views"), topic_data({0: (2,)}, "v" * 22))
    return Scene(zookeeper, cluster, zookeeper.topics_seen())


def partitions_are_added() -> Scene:
    zookeeper, cluster = prepare()
    zookeeper.put(topic_path("payments"), topic_data({**PAYMENTS, 2: (3, 5), 3: (4,), 4: (4, 5)}, "p" * 22))
    return Scene(zookeeper, cluster, zookeeper.topics_seen())


def topic_is_made_anew() -> Scene:
    zookeeper, cluster = prepare()
    zookeeper.remove(topic_path("payments"))
    zookeeper.put(topic_path("payments"), topic_data({0: (5,), 1: (3, 2)}))
    return Scene(zookeeper, cluster, zookeeper.topics_seen())


def others_write_states() -> Scene:
    zookeeper, cluster = prepare()
    states = {0: (4, [4, 2]), 1: (2, [2]), 3: (-1, [1, 2])}
    for number, (leader, isr) in states.items():
        data = f'{{"controller_epoch":1,"leader":{leader},"version":1,"leader_epoch":9,"isr":{isr}}}'
        zookeeper.put(state_path("orders", number), data.encode())
    return Scene(zookeeper, cluster, zookeeper.states_seen(*(("orders", number) for number in states)))


def a_term_starts() -> Scene:
    """Its predecessor died, and so did broker 1; a topic without an id and without leaders has appeared."""
    zookeeper, _, _ = brokers_go(1)
    zookeeper.put(topic_path("users"), topic_data({0: (1, 2), 1: (4,), 2: (3,)}))
    cluster, event = zookeeper.new_term(EPOCH + 1)
    return Scene(zookeeper, cluster, event)


def a_topic_is_asked_for() -> Scene:
    zookeeper, cluster = prepare()
    return Scene(zookeeper, cluster, CreateTopicAsked("users", partitions=5, replication_factor=2))


def a_leader_asks() -> Scene:
    zookeeper, cluster = prepare()
    proposals = [
        a_proposal(cluster, "orders", 0, 1),
        a_proposal(cluster, "orders", 3, 1),
        a_proposal(cluster, "payments", 1, 1),
    ]
    return Scene(zookeeper, cluster, AlterPartitionAsked(1, cluster.brokers[1].epoch, proposals))


FACTS: list[Callable[[], Scene]] = [
    lambda: brokers_go(1),
    lambda: brokers_go(1, 3),
    lambda: brokers_go(1, 2, 3, 5),
    brokers_come,
    one_goes_while_another_comes,
    topics_appear,
    partitions_are_added,
    topic_is_made_anew,
    others_write_states,
    a_term_starts,
]
FACT_NAMES = ["goes", "two_go", "all_go", "come", "goes_and_comes", "appear", "added", "made_anew", "others", "term"]


def subsets(changes: list[Change]) -> Iterator[tuple[Change, ...]]:
    if len(changes) <= SMALL:
        for size in range(len(changes) + 1):
            yield from combinations(changes, size)
        return
    draw = Random(len(changes))
    yield ()
    for _ in range(SAMPLES):
        yield tuple(change for change in changes if draw.random() < 0.5)


def cuts(make: Callable[[], Scene]) -> Iterator[ModelZooKeeper]:
    """Yields ZooKeeper's content after each way in which the decision may have been cut short; the last is uncut."""
    scene = make()
    steps = steps_of(scene.cluster, scene.event)
    for step in steps:
        writing = [change for change in step if change.writes(scene.cluster)]
        for subset in subsets(writing):
            zookeeper = scene.zookeeper.copy()
            commit_whole(scene.cluster, zookeeper, subset)
            yield zookeeper
        scene.cluster.apply(commit_whole(scene.cluster, scene.zookeeper, step))
    yield scene.zookeeper


def commit_whole(cluster: Cluster, zookeeper: ModelZooKeeper, changes: Iterable[Change]) -> list[Committed]:
    conflicts: list[Change] = []
    committed = commit(cluster, zookeeper, changes, conflicts)
    assert not conflicts
    return committed


def end_of(zookeeper: ModelZooKeeper) -> End:
    """Returns the end that a fresh term reaches; one more fresh term has nothing to write."""
    epoch = EPOCH + 2
    cluster, event = zookeeper.new_term(epoch)
    assert not settle(cluster, event, zookeeper).conflicts
    again, event = zookeeper.new_term(epoch + 1)
    settled = settle(again, event, zookeeper)
    assert settled.of(StateDecided) + settled.of(TopicWritten) == []
    return {
        name: None if one.state is None else (one.state.leader, one.state.isr, one.state.leader_epoch)
        for name, one in believed(again).items()
    }


@pytest.mark.parametrize("make", FACTS, ids=FACT_NAMES)
def test_wherever_a_decision_about_a_fact_is_cut_the_successor_comes_to_the_same_end(
    make: Callable[[], Scene],
) -> None:
    ends = [end_of(zookeeper) for zookeeper in cuts(make)]
    assert len(ends) > 2
    for end in ends:
        assert end == ends[-1]


def test_a_topic_asked_for_is_there_with_all_its_leaders_or_not_at_all() -> None:
    ends = [end_of(zookeeper) for zookeeper in cuts(a_topic_is_asked_for)]
    without = {name: one for name, one in ends[-1].items() if not name.startswith("users")}
    assert ends[0] == without
    assert ends.count(without) == 1
    assert all(end in (without, ends[-1]) for end in ends)


@pytest.mark.parametrize("make", [a_leader_asks, bounce])
def test_an_unknowable_fact_has_its_effect_or_not_partition_by_partition(make: Callable[[], Scene]) -> None:
    ends = [end_of(zookeeper) for zookeeper in cuts(make)]
    assert ends[0] != ends[-1]
    for end in ends:
        assert end.keys() == ends[-1].keys()
        assert all(one in (ends[0][name], ends[-1][name]) for name, one in end.items())


def test_a_failover_in_the_middle_costs_no_second_leader_epoch() -> None:
    """Kafka raises it twice for a partition whose leader is dead when the term starts."""
    before = {name: one.state for name, one in believed(prepare()[1]).items()}
    for zookeeper in cuts(lambda: brokers_go(1)):
        for name, one in end_of(zookeeper).items():
            was = before[name]
            if one is not None and was is not None:
                assert one[2] - was.leader_epoch == (1 if 1 in was.isr else 0), name
