"""A deletion survives its controller: a new term replays it, wherever the old one was cut off; and it always ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Committed, StateDecided
from controller.core.changes.duties import PartitionErased, TopicErased
from controller.core.events import Event, StopReplicaAnswered
from controller.core.formats import encode_topic
from controller.core.model import Assignment
from controller.core.project.znodes import (
    marker_path,
    state_path,
    topic_path,
)
from tests.builders import Settled, knowing, snapshot, steps_of
from tests.core.deleting import LONGEST_PAUSE_MS, ORDERS, Deleting, moved, reassigned, shape, the_topic
from tests.core.model_zookeeper import ModelZooKeeper
from tests.core.test_cut import commit_whole, subsets


def test_a_new_term_replays_the_deletion_and_leads_nothing_of_it() -> None:
    """The topic is believed to be leaving before any broker is told everything; brokers are told to delete last."""
    world = the_topic()
    world.mark("orders", abandon=True)
    world.answer(1)
    world.zookeeper.remove("/brokers/ids/3")
    settled = world.new_term()
    found = ["TermFound", "StateFound", "DeletionQueued", "BrokerMissing"]
    assert shape(settled) == [found, ["BrokerLive"], ["ReplicasMoved"]]
    assert moved(settled) == [("Started", [(0, 1), (0, 2), (1, 2)]), ("Successful", [(1, 3)])]
    assert world.awaited.keys() == {1, 2}


def test_a_new_term_waits_for_the_dead_again() -> None:
    world = the_topic()
    world.ask("orders")
    world.zookeeper.remove("/brokers/ids/3")
    settled = world.new_term()
    assert moved(settled)[1:] == [("Ineligible", [(1, 3)])]
    assert world.deletion("orders").waits_for == "broker 3 is gone"


def test_half_of_a_topic_is_deleted_to_the_end() -> None:
    """M70: missing state and partition znodes are fine."""
    world = the_topic()
    world.zookeeper.put(marker_path("orders"), b"")
    world.zookeeper.remove(state_path("orders", 0))
    world.zookeeper.remove("/brokers/topics/orders/partitions/1")
    assert world.new_term().of(StateDecided) == []
    world.finish(1, 2, 3)
    assert world.left_of("orders") == []


def test_a_reassignment_holds_the_deletion_over_a_failover() -> None:
    world = the_topic(1, 2, 3, 4)
    reassigned(world, "orders", Assignment((1, 2, 4), adding=(4,)))
    world.mark("orders", abandon=True)
    world.zookeeper.remove("/brokers/ids/1")
    settled = world.new_term()
    assert world.deletion("orders").waits_for == "reassignment in progress"
    assert world.deletion("orders").abandon_offline
    assert settled.states["orders-0"].leader == 2


def test_a_topic_without_an_id_gets_it_before_it_is_deleted() -> None:
    world = the_topic()
    world.zookeeper.put(topic_path("users"), encode_topic("", {0: Assignment((1,))}))
    world.zookeeper.put(marker_path("users"), b"")
    assert moved(world.new_term()) == []
    assert moved(world.wait(1)) == []
    assert moved(world.happens(knowing(world.cluster.brokers[1], users=""))) == []
    assert moved(world.wait(1)) == [("Started", [(0, 1)])]


def test_deciding_leaves_belief_untouched() -> None:
    world = the_topic(1, 2)
    world.ask("orders")
    for event in (world.zookeeper.deletions_seen(), world.zookeeper.brokers_seen()):
        before = snapshot(world.cluster)
        steps_of(world.cluster, event)
        assert snapshot(world.cluster) == before


def test_an_erasure_that_met_a_conflict_is_done_when_time_passes() -> None:
    world = the_topic()
    world.ask("orders")
    world.answer(1)
    world.answer(2)
    copies = frozenset(world.awaited.pop(3))
    answered = StopReplicaAnswered(3, world.cluster.brokers[3].epoch, copies)
    believed, *dropped = steps_of(world.cluster, answered)
    assert len(dropped) == 2
    world.cluster.apply(map(Committed, believed))
    world.deleted |= {(3, *one) for one in copies}
    settled = world.wait(1)
    assert settled.of(PartitionErased) == [PartitionErased("orders", 0), PartitionErased("orders", 1)]
    assert len(settled.of(TopicErased)) == 1


# ---------------------------------------------------------------------- cut everywhere


class Cutting(Deleting):
    """Keeps ZooKeeper's content after each way in which a decision may be cut short, once `cuts` is a list."""

    cuts: list[ModelZooKeeper] | None = None

    def happens(self, event: Event) -> Settled:
        if self.cuts is not None:
            self.cuts += cuts_of(deepcopy(self.cluster), self.zookeeper.copy(), event, self.now_ms)
        return super().happens(event)


def cuts_of(cluster: Cluster, zookeeper: ModelZooKeeper, event: Event, now_ms: int) -> Iterator[ModelZooKeeper]:
    for step in steps_of(cluster, event, now_ms=now_ms, seed=zookeeper.zxid):
        for subset in subsets([change for change in step if change.writes(cluster)]):
            cut = zookeeper.copy()
            commit_whole(cluster, cut, subset)
            yield cut
        cluster.apply(commit_whole(cluster, zookeeper, step))
    yield zookeeper


def by_request(world: Deleting) -> None:
    world.ask("orders")
    for broker_id in (2, 3, 1):
        world.answer(broker_id)


def by_marker_with_a_dead_broker(world: Deleting) -> None:
    world.go(3)
    world.mark("orders")
    world.answer(2)
    world.answer(1)
    world.come(3)
    world.answer(3)


def with_a_death_a_bounce_and_a_refusal(world: Deleting) -> None:
    world.ask("orders")
    world.go(2)
    world.come(1)
    world.answer(1, refused=range(2))
    world.wait(LONGEST_PAUSE_MS)
    world.come(2)
    for broker_id in (1, 2, 3):
        world.answer(broker_id)


def without_the_dead(world: Deleting) -> None:
    world.go(3)
    world.ask("orders")
    world.answer(1)
    world.answer(2)
    world.ask("orders", abandon=True)


@pytest.mark.parametrize(
    "story", [by_request, by_marker_with_a_dead_broker, with_a_death_a_bounce_and_a_refusal, without_the_dead]
)
def test_wherever_a_deletion_is_cut_the_successor_finishes_it(story: Callable[[Deleting], None]) -> None:
    """Nothing is left once the intent stands; without it nothing has changed."""
    world = Cutting(1, 2, 3, orders=[[1, 2], [2, 3], [3, 1], [1, 3], [2, 1]], users=[[1, 2]])
    world.cuts = []
    story(world)
    assert world.left_of("orders") == []
    untouched = 0
    for zookeeper in world.cuts:
        successor = Deleting()
        successor.zookeeper, successor.epoch, is_wanted = zookeeper, world.epoch, "orders" in zookeeper.markers()
        successor.new_term()
        successor.finish(1, 2, 3)
        assert successor.left_of("users")
        assert (zookeeper.markers(), successor.cluster.duties.deletions) == ({}, {})
        if is_wanted or "orders" not in successor.cluster.topics:
            assert successor.left_of("orders") == []
        else:
            states = [state_path("orders", number) for number in range(5)]
            assert set(states) <= set(successor.left_of("orders"))
            untouched += 1
    assert 0 < untouched < len(world.cuts) / 2


def test_the_name_can_be_used_again_wherever_the_deletion_was_cut() -> None:
    world = Cutting(1, 2, 3, orders=ORDERS)
    old_id = world.cluster.topics["orders"].topic_id
    world.cuts = []
    by_request(world)
    for zookeeper in world.cuts:
        successor = Deleting()
        successor.zookeeper, successor.epoch = zookeeper, world.epoch
        successor.new_term()
        successor.finish(1, 2, 3)
        if "orders" not in successor.cluster.topics:
            successor.create("orders", ORDERS)
            assert successor.cluster.topics["orders"].topic_id != old_id


# ---------------------------------------------------------------------- any schedule

NAMES = ("orders", "users")
EVERYBODY = (1, 2, 3, 4)


def act(world: Deleting, verb: str, a: int, b: int) -> None:
    broker_id, name = EVERYBODY[a % 4], NAMES[b % 2]
    is_live = broker_id in world.cluster.live_ids
    match verb:
        case "ask":
            world.ask(name, abandon=a % 4 == 3)
        case "mark":
            world.mark(name, abandon=a % 4 == 3)
        case "unmark":
            world.unmark(name)
        case "create":
            world.create(name, [[1 + a % 4, 1 + (a + 1) % 4]] * (1 + b % 3))
        case "grow" if name in world.cluster.topics:
            known = world.cluster.topics[name]
            replicas = [Assignment(one.replicas) for one in known.partitions.values()]
            wanted = dict(enumerate([*replicas, Assignment((broker_id,))]))
            world.zookeeper.put(topic_path(name), encode_topic(known.topic_id or "", wanted))
            world.happens(world.zookeeper.topics_seen())
        case "go" if is_live:
            world.go(broker_id)
        case "come":
            world.come(broker_id)
        case "answer" if is_live:
            world.answer(broker_id, refused=() if b % 3 else [0])
        case "wait":
            world.wait(500 * b)
        case "new term":
            world.new_term()


verbs = st.sampled_from(
    ["ask", "mark", "unmark", "create", "create", "grow", "go", "come", "answer", "answer", "wait", "new term"]
)


@given(st.lists(st.tuples(verbs, st.integers(0, 7), st.integers(0, 7)), max_size=40))
def test_every_deletion_ends_once_all_brokers_are_live_and_answer(deeds: list[tuple[str, int, int]]) -> None:
    world = Deleting(1, 2, 3, orders=ORDERS)
    for deed in deeds:
        act(world, *deed)
    wanted = {*world.zookeeper.markers(), *world.cluster.duties.deletions}
    world.finish(*EVERYBODY)
    assert world.cluster.duties.deletions == {}
    assert world.zookeeper.markers() == {}
    for name in wanted:
        assert world.left_of(name) == []
