"""Replicas that a reassignment dropped: told to delete until they have, over refusals and deaths."""

from __future__ import annotations

from controller.core.belief.kept_states import dropped_key
from controller.core.events import DeleteTopicAsked, ReassignAsked, TimePassed
from controller.core.states import ReplicaStatus
from tests.builders import Settled, a_broker, a_cluster, brokers_seen, settle, state_of, topic_id_of
from tests.core.test_state_counts import stopped

R = ReplicaStatus
KEY = dropped_key("orders", topic_id_of("orders"))


def told_to_stop(settled: Settled) -> dict[int, list[int]]:
    return {
        broker_id: sorted(number for numbers in stops.values() for number in numbers)
        for telling in settled.tellings
        for broker_id, stops in telling.stops.items()
    }


def test_a_repeated_telling_names_the_decision_that_dropped_it() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, ReassignAsked({("orders", 0): (1, 2)}))
    settle(cluster, brokers_seen(1, 3))  # a later leader epoch, of which the dropped replica hears nothing
    settle(cluster, stopped(cluster, 3, refused=True))
    [telling] = settle(cluster, TimePassed(), now_ms=1_000).tellings
    [stop] = [one[0] for one in telling.stops[3].values()]
    assert (stop.leader_epoch, stop.delete, state_of(cluster, "orders").leader_epoch) == (1, True, 2)


def ways(settled: Settled) -> list[tuple[str, str]]:
    return [(move.source.value, move.target.value) for move in settled.moves if move.broker_id == 3]


def test_a_refusal_is_told_again_after_a_pause_that_grows() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    assert told_to_stop(settle(cluster, ReassignAsked({("orders", 0): (1, 2)}))) == {3: [0]}
    for now_ms, pause_ms in ((0, 1_000), (1_000, 2_000), (3_000, 4_000)):
        refused = settle(cluster, stopped(cluster, 3, refused=True), now_ms=now_ms)
        assert ways(refused) == [("ReplicaDeletionStarted", "ReplicaDeletionIneligible")]
        assert told_to_stop(settle(cluster, TimePassed(), now_ms=now_ms + pause_ms - 1)) == {}
        again = settle(cluster, TimePassed(), now_ms=now_ms + pause_ms)
        assert told_to_stop(again) == {3: [0]}
        assert ways(again) == [
            ("ReplicaDeletionIneligible", "OfflineReplica"),
            ("OfflineReplica", "ReplicaDeletionStarted"),
        ]
    assert told_to_stop(settle(cluster, TimePassed(), now_ms=100_000)) == {}, "it has not answered yet"
    settle(cluster, stopped(cluster, 3))
    assert cluster.duties.dropped == {}


def test_a_broker_that_dies_meanwhile_is_told_again_when_it_is_back() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, ReassignAsked({("orders", 0): (1, 2)}))
    assert ("ReplicaDeletionStarted", "ReplicaDeletionIneligible") in ways(settle(cluster, brokers_seen(1, 2)))
    assert told_to_stop(settle(cluster, TimePassed())) == {}
    settle(cluster, brokers_seen(1, 2, a_broker(3, epoch=99)))
    assert told_to_stop(settle(cluster, TimePassed())) == {3: [0]}


def test_a_telling_dropped_for_a_dead_broker_waits_for_it() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]], live=(1, 2))
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, brokers_seen(1, 2))
    moved = ways(settle(cluster, ReassignAsked({("orders", 0): (1, 2)})))
    assert moved == [("OfflineReplica", "ReplicaDeletionIneligible")]
    settle(cluster, brokers_seen(1, 2, a_broker(3, epoch=99)))
    assert told_to_stop(settle(cluster, TimePassed())) == {3: [0]}


def test_assigned_again_before_it_was_deleted_it_is_told_of_no_more() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, ReassignAsked({("orders", 0): (1, 2)}))
    moved = ways(settle(cluster, ReassignAsked({("orders", 0): (1, 2, 3)})))
    assert moved == [
        ("ReplicaDeletionStarted", "ReplicaDeletionIneligible"),
        ("ReplicaDeletionIneligible", "OnlineReplica"),
    ]
    assert cluster.states.replicas_of(3, KEY) == {}
    assert told_to_stop(settle(cluster, TimePassed(), now_ms=100_000)) == {}


def test_they_end_with_their_topic() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, ReassignAsked({("orders", 0): (1, 2)}))
    settle(cluster, DeleteTopicAsked("orders"))
    for broker_id in (1, 2):
        settled = settle(cluster, stopped(cluster, broker_id))
    assert ("ReplicaDeletionSuccessful", "NonExistentReplica") in ways(settled)
    assert (cluster.states.replicas, cluster.states.partitions, cluster.duties.dropped) == ({}, {}, {})
