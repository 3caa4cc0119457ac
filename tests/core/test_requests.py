"""Requests to brokers after each step: metadata to all, leaderships to the replicas, everything to a new broker."""

from __future__ import annotations

from controller.core.belief.cluster import Cluster
from controller.core.events import AlterPartitionAsked, CreateTopicAsked, StatesSeen, TermStarted, TopicsSeen
from controller.core.model import NO_LEADER
from controller.core.project.requests import (
    Rows,
    Telling,
    known_brokers,
    requests_for,
)
from tests.builders import (
    LOADED,
    a_broker,
    a_cluster,
    a_leadership,
    a_proposal,
    a_state_fact,
    a_topic_fact,
    brokers,
    brokers_seen,
    settle,
    topic_id_of,
    zookeeper_of,
)

ORDERS = ("orders", topic_id_of("orders"))


def names(rows: Rows | None) -> set[str]:
    return {f"{topic}-{number}" for (topic, _), numbers in (rows or {}).items() for number in numbers}


def led(telling: Telling) -> dict[int, set[str]]:
    return {broker_id: names(rows) for broker_id, rows in telling.leaderships.items()}


def test_nothing_committed_is_nothing_to_tell() -> None:
    assert requests_for(a_cluster(orders=[[1]]), []).is_empty


def test_a_dead_leader_is_told_to_the_other_replicas_and_its_metadata_to_all() -> None:
    cluster = a_cluster(orders=[[1, 2, 3], [2, 3]], live=(1, 2, 3, 4))
    [telling] = settle(cluster, brokers_seen(2, 3, 4)).tellings
    assert led(telling) == {2: {"orders-0"}, 3: {"orders-0"}}
    assert names(telling.metadata) == {"orders-0"}
    assert telling.metadata[ORDERS][0] == cluster.partition("orders", 0)
    assert (telling.brokers_changed, telling.gone, telling.live_ids) == (True, [(1, 11)], frozenset({2, 3, 4}))
    assert (telling.joined, telling.everything, telling.new_replicas) == ([], None, frozenset())


def test_metadata_is_told_again_where_only_the_offline_replicas_changed() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1])})
    [telling] = settle(cluster, brokers_seen(1, 3)).tellings
    assert (names(telling.metadata), led(telling)) == ({"orders-0"}, {})


def test_a_broker_that_joins_is_told_everything_and_the_others_the_changes() -> None:
    states = {"orders-0": a_leadership(1, [1]), "orders-1": a_leadership(NO_LEADER, [2], 3)}
    cluster = a_cluster(orders=[[1, 2], [2, 1], [3, 1], [2]], live=(1, 3), states={**states, "orders-3": None})
    [telling, noted] = settle(cluster, brokers_seen(1, 2, 3)).tellings
    assert noted.is_empty
    assert telling.joined == [a_broker(2)]
    assert names(telling.everything) == {"orders-0", "orders-1", "orders-2", "orders-3"}
    assert names(telling.metadata) == {"orders-0", "orders-1", "orders-3"}
    assert led(telling) == {1: {"orders-1"}}
    assert 2 not in telling.leaderships


def test_a_bounced_broker_is_over_and_joins_in_one_telling() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    [telling, _] = settle(cluster, brokers_seen(a_broker(1, epoch=99), 2, 3)).tellings
    assert (telling.gone, telling.joined) == ([(1, 11)], [a_broker(1, epoch=99)])
    assert names(telling.everything) == {"orders-0"}
    assert led(telling) == {2: {"orders-0"}}


def test_a_changed_registration_is_told_to_all_without_partitions() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    [telling, _] = settle(cluster, brokers_seen(a_broker(1, port=9), 2, 3)).tellings
    assert (telling.brokers_changed, telling.metadata, telling.joined, telling.gone) == (True, {}, [], [])


def test_membership_is_told_also_without_a_single_topic() -> None:
    [telling] = settle(a_cluster(), brokers_seen(1, 2)).tellings
    assert telling.brokers_changed
    assert not telling.is_empty


def test_a_term_tells_everybody_everything_in_its_last_step() -> None:
    cluster = a_cluster(orders=[[1, 2]], live=())
    cluster.unreadable["garbage", None] = ("no JSON", LOADED)
    first, last = settle(cluster, TermStarted(brokers(2, 3), LOADED)).tellings
    assert first.is_empty
    assert last.joined == [a_broker(2), a_broker(3)]
    assert names(last.everything) == {"orders-0"}
    assert (last.metadata, last.leaderships) == ({}, {})


def test_a_new_partition_is_new_on_each_of_its_live_replicas() -> None:
    cluster = a_cluster(live=(1, 2, 3))
    cluster_with_one_gone = settle(cluster, brokers_seen(1, 2))
    assert cluster_with_one_gone.tellings
    _, telling = settle(cluster, CreateTopicAsked("orders", assignment={0: (1, 2), 1: (2, 3)})).tellings
    topic_id = cluster.topics["orders"].topic_id
    assert telling.new_replicas == {(topic_id, 0, 1), (topic_id, 0, 2), (topic_id, 1, 2)}
    assert led(telling) == {1: {"orders-0"}, 2: {"orders-0", "orders-1"}}
    assert names(telling.metadata) == {"orders-0", "orders-1"}


def test_a_partition_led_before_is_new_on_no_broker() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    [telling] = settle(cluster, brokers_seen(2, 3)).tellings
    assert telling.new_replicas == frozenset()


def test_a_partition_first_led_because_its_broker_joined_is_new_there() -> None:
    cluster = a_cluster(orders=[[1]], live=(2,), states={"orders-0": None})
    [telling, _] = settle(cluster, brokers_seen(1, 2)).tellings
    assert telling.new_replicas == {(ORDERS[1], 0, 1)}


def test_a_partition_first_led_by_a_new_term_is_new() -> None:
    cluster = a_cluster(orders=[[1, 2]], live=(), states={"orders-0": None})
    [found, telling] = settle(cluster, TermStarted(brokers(1, 2), LOADED)).tellings
    assert found.is_empty
    assert telling.new_replicas == {(ORDERS[1], 0, 1), (ORDERS[1], 0, 2)}


def test_a_state_made_again_is_new_on_no_broker() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    zookeeper = zookeeper_of(cluster)
    zookeeper.remove("/brokers/topics/orders/partitions/0")
    settled = settle(cluster, zookeeper.states_seen(("orders", 0)), zookeeper)
    assert settled.tellings[-1].new_replicas == frozenset()


def test_an_isr_change_by_the_leader_is_told_as_metadata_only() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    [telling] = settle(cluster, AlterPartitionAsked(1, 11, [a_proposal(cluster, "orders", 0, 1)])).tellings
    assert (names(telling.metadata), led(telling)) == ({"orders-0"}, {})
    assert telling.metadata[ORDERS][0].version == 1


def test_a_state_written_by_others_is_told_as_metadata_only() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    [telling] = settle(cluster, StatesSeen([a_state_fact("orders", 0, a_leadership(1, [1]))])).tellings
    assert (names(telling.metadata), led(telling)) == ({"orders-0"}, {})


def test_having_no_leader_is_told_to_the_replicas_that_are_left() -> None:
    """M56: they must stop following."""
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1])})
    [telling] = settle(cluster, brokers_seen(2, 3)).tellings
    state = telling.leaderships[2][ORDERS][0].state
    assert state == a_leadership(NO_LEADER, [1], 1)


def test_a_refusal_is_told_to_no_broker() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    [telling] = settle(cluster, AlterPartitionAsked(2, 12, [a_proposal(cluster, "orders", 0, 2)])).tellings
    assert telling.is_empty


def test_a_topic_that_is_gone_is_removed_from_metadata() -> None:
    cluster = a_cluster(orders=[[1], [2]])
    [telling] = settle(cluster, TopicsSeen([], LOADED + 20, frozenset())).tellings
    assert telling.removed == {ORDERS: (0, 1)}
    assert not telling.is_empty


def test_a_topic_made_anew_is_removed_under_its_old_id_and_told_under_its_new_one() -> None:
    cluster = a_cluster(orders=[[1]])
    fact = a_topic_fact("orders", [2], czxid=LOADED + 5, zxid=LOADED + 20, topic_id="y" * 22)
    zookeeper = zookeeper_of(cluster)
    zookeeper.remove("/brokers/topics/orders")
    first, last = settle(cluster, TopicsSeen([fact], LOADED + 20), zookeeper).tellings
    assert (first.removed, first.metadata) == ({ORDERS: (0,)}, {})
    assert set(last.metadata) == {("orders", "y" * 22)}
    assert last.leaderships[2].keys() == {("orders", "y" * 22)}


def test_a_broker_that_is_gone_stays_known() -> None:
    cluster: Cluster = a_cluster()
    settle(cluster, brokers_seen(1, 3))
    assert [(one.broker.broker_id, one.state) for one in known_brokers(cluster)] == [
        (1, "live"),
        (2, "gone"),
        (3, "live"),
    ]


def test_a_gone_broker_is_known_by_the_assignments_that_name_it_and_no_longer() -> None:
    cluster = a_cluster(orders=[[1, 9]], live=(1,))
    assert [(one.broker.broker_id, one.state) for one in known_brokers(cluster)] == [(1, "live"), (9, "gone")]
    settle(cluster, TopicsSeen([], LOADED + 20, frozenset()))
    assert [one.broker.broker_id for one in known_brokers(cluster)] == [1]


def test_a_topic_whose_id_was_written_back_is_told_to_all_again() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    zookeeper = zookeeper_of(cluster)
    zookeeper.put("/brokers/topics/orders", b'{"version":1,"partitions":{"0":[1,2]}}')
    telling = settle(cluster, zookeeper.topics_seen(), zookeeper).tellings[-1]
    assert led(telling) == {1: {"orders-0"}, 2: {"orders-0"}}
    assert (names(telling.metadata), telling.new_replicas) == ({"orders-0"}, frozenset())
