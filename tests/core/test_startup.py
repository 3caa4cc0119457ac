"""How a term starts: everything loaded is looked at once, with the brokers that were read last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause
from controller.core.changes.cluster import (
    BrokerLive,
    BrokerMissing,
    StateDecided,
    StateFound,
    SubjectParked,
    TopicWritten,
)
from controller.core.changes.duties import StateMembers, TermFound
from controller.core.decide.startup import found_states
from controller.core.events import StateFact, TermStarted
from controller.core.model import NO_LEADER, Broker
from controller.core.states import PartitionStatus
from tests.builders import (
    EPOCH,
    LOADED,
    a_broker,
    a_cluster,
    a_leadership,
    a_state_fact,
    a_topic_fact,
    brokers,
    brokers_seen,
    knowing,
    settle,
    snapshot,
    state_of,
    steps_of,
    topic_id_of,
    zookeeper_of,
)

P = PartitionStatus


def start(*live: int | Broker, found: Iterable[StateFact] = ()) -> TermStarted:
    return TermStarted(brokers(*live), LOADED, list(found))


def loaded(**given: Any) -> Cluster:
    """A cluster as it is before its term starts: no broker is believed yet."""
    return a_cluster(**{"live": (), **given})


def test_a_healthy_cluster_costs_no_write() -> None:
    cluster = loaded(orders=[[1, 2], [2, 1]])
    assert steps_of(cluster, start(2, 1)) == [
        [TermFound(2, 4, tuple(StateMembers(*one) for one in cluster.states.held()))],
        [
            BrokerLive(a_broker(1), "term started", Cause.TERM_STARTED),
            BrokerLive(a_broker(2), "term started", Cause.TERM_STARTED),
        ],
    ]


def test_a_term_logs_the_found_states_and_names_those_not_online() -> None:
    states = {"orders-0": a_leadership(NO_LEADER, [1]), "orders-1": None, "orders-2": a_leadership(2, [2, 3])}
    first = a_cluster(live=(2, 3), orders=[[1, 2], [2, 3], [2, 3]], states=states)
    zookeeper = zookeeper_of(first)
    for one in (2, 3):
        zookeeper.register(a_broker(one))
    cluster, event = zookeeper.new_term(EPOCH + 1)
    settled = settle(cluster, event, zookeeper)
    found = [line for line in settled.lines if line.kind == "found"]
    assert [(one.target, one.broker_id, one.count, one.partitions) for one in found] == [
        ("OnlinePartition", None, 1, None),
        ("NewPartition", None, 1, {"orders": "1"}),
        ("OfflinePartition", None, 1, {"orders": "0"}),
        ("OnlineReplica", None, 3, None),
        ("ReplicaDeletionIneligible", 1, 1, {"orders": "0"}),
        ("NewReplica", 2, 1, {"orders": "1"}),
        ("NewReplica", 3, 1, {"orders": "1"}),
    ]
    assert [one.part for one in found] == [1, 2, 3, 4, 5, 6, 7]
    came = [line for line in settled.lines if line.kind == "broker"]
    assert {(one.source, one.target, one.cause) for one in came} == {(None, "live", "term_started")}


def test_a_leader_that_died_during_the_load_is_replaced_in_one_write() -> None:
    """Kafka raises the leader epoch twice here: once for the dead replica, once for the election."""
    cluster = loaded(orders=[[1, 2, 3]], states={"orders-0": a_leadership(1, [1, 2, 3], 5, controller_epoch=6)})
    [missing, [first, *_]] = steps_of(cluster, start(2, 3))
    assert missing[1:] == [BrokerMissing(1, Cause.TERM_STARTED)]
    state = a_leadership(2, [2, 3], 6)
    assert first == StateDecided("orders", 0, state, P.OFFLINE, P.ONLINE, "term started", Cause.TERM_STARTED)


def test_a_dead_follower_leaves_the_isr_at_the_start() -> None:
    cluster = loaded(orders=[[1, 2]])
    assert settle(cluster, start(1)).states == {"orders-0": a_leadership(1, [1], 1)}


def test_every_state_is_loaded_whether_its_leader_lives_or_not() -> None:
    """M43: a partition whose leader is dead is led again when it comes, by a term that never saw it alive."""
    cluster = loaded(orders=[[1]], states={"orders-0": a_leadership(1, [1], 5)})
    assert settle(cluster, start(2)).states == {"orders-0": a_leadership(NO_LEADER, [1], 6)}
    assert settle(cluster, brokers_seen(1, 2)).states == {"orders-0": a_leadership(1, [1], 7)}


def test_a_partition_never_led_is_led_at_the_start() -> None:
    cluster = loaded(orders=[[1, 2]], states={"orders-0": None})
    [_, [first, *_]] = steps_of(cluster, start(2))
    assert first == StateDecided(
        "orders", 0, a_leadership(2, [2], 0), P.NEW, P.ONLINE, "term started", Cause.TERM_STARTED
    )


def test_a_missing_topic_id_is_written_before_anything_is_told_of_the_topic() -> None:
    cluster = loaded(orders=[[1]], payments=[[1]], ids={"orders": None})
    _, live = settle(cluster, start(1)).tellings
    assert live.questions == {1: {"orders": 1}}
    assert {name for name, _ in live.everything or {}} == {"payments"}
    settled = settle(cluster, knowing(cluster.brokers[1], orders=""))
    [one] = settled.of(TopicWritten)
    assert (one.name, len(one.topic_id)) == ("orders", 22)
    assert set(cluster.names_by_id.values()) == {"orders", "payments"}
    assert cluster.topics["payments"].topic_id == topic_id_of("payments")


def test_brokers_go_live_after_everything_was_decided() -> None:
    cluster = loaded(orders=[[1, 2]], states={"orders-0": a_leadership(3, [3, 2, 1], 0)})
    *_, step = steps_of(cluster, start(1, 2))
    assert [type(change) for change in step] == [StateDecided, BrokerLive, BrokerLive]


def test_a_second_term_finds_nothing_to_write() -> None:
    first = loaded(orders=[[1, 2, 3], [3, 4]], states={"orders-1": None})
    zookeeper = zookeeper_of(first)
    for one in (1, 2, 3):
        zookeeper.register(a_broker(one))
    settle(first, TermStarted(zookeeper.brokers(), zookeeper.zxid), zookeeper)
    second, event = zookeeper.new_term(EPOCH + 1)
    kinds = [TermFound] + [StateFound] * 2 + [BrokerMissing] + [BrokerLive] * 3
    assert [type(change) for change in settle(second, event, zookeeper).changes] == kinds


def test_a_term_without_brokers_leaves_everything_without_a_leader() -> None:
    cluster = loaded(orders=[[1, 2]])
    settle(cluster, start())
    assert state_of(cluster, "orders") == a_leadership(NO_LEADER, [1, 2], 1)


def test_what_makes_no_sense_is_left_alone_and_said_of_the_others() -> None:
    cluster = Cluster(controller_id=1, controller_epoch=EPOCH)
    facts = [a_topic_fact("garbage", trouble="nonsense"), a_topic_fact("orders", [1, 2], [1, 2])]
    states = [
        StateFact("orders", 0, None, 4, LOADED, trouble="not a state"),
        StateFact("orders", 1, a_leadership(1, [1, 2]), 0, LOADED),
    ]
    cluster.load(facts, states)
    assert set(cluster.unreadable) == {("garbage", None), ("orders", 0)}
    assert set(settle(cluster, start(2), zookeeper_of(cluster)).states) == {"orders-1"}


def test_the_last_decision_of_the_previous_controller_is_found() -> None:
    cluster = loaded(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1, 2], 4, controller_epoch=EPOCH - 1)})
    fact = a_state_fact("orders", 0, state_of(cluster, "orders"), 0)
    changes = [change for step in steps_of(cluster, start(1, 2, found=[fact])) for change in step]
    assert [change for change in changes if not isinstance(change, BrokerLive | TermFound)] == [
        StateFound("orders", 0, state_of(cluster, "orders"), 0, fact.zxid, "found", Cause.FOUND, P.ONLINE)
    ]


def test_what_is_found_is_recorded_before_anything_is_written_over_it() -> None:
    cluster = loaded(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1, 2], 4, controller_epoch=EPOCH - 1)})
    fact = a_state_fact("orders", 0, state_of(cluster, "orders"), 0)
    first, second = steps_of(cluster, start(2, found=[fact]))  # its leader is dead
    found = StateFound("orders", 0, state_of(cluster, "orders"), 0, fact.zxid, "found", Cause.FOUND, P.OFFLINE)
    assert found in first
    assert not any(isinstance(one, StateDecided) for one in first)
    assert [one.state.leader for one in second if isinstance(one, StateDecided)] == [2]


def test_found_are_states_of_the_previous_epoch_within_ten_seconds_of_its_newest() -> None:
    ages = {0: (6, 1_000), 1: (6, 10_999), 2: (6, 11_001), 3: (5, 11_000), 4: (7, 90_000)}
    facts = [
        a_state_fact("orders", number, a_leadership(1, [1], controller_epoch=epoch), mtime_ms=mtime_ms)
        for number, (epoch, mtime_ms) in ages.items()
    ]
    facts.append(a_state_fact("orders", 5, None))
    assert [fact.partition for fact in found_states(facts, EPOCH)] == [1, 2]
    assert found_states([], EPOCH) == []


def test_found_are_states_before_a_term_that_was_gone_before_it_had_loaded() -> None:
    """Simulated schedule 200252: one stopped with an answer lost, the next died once it had claimed."""
    fact = a_state_fact("orders", 0, a_leadership(1, [1], controller_epoch=EPOCH - 2), mtime_ms=1_000)
    assert found_states([fact], EPOCH) == [fact]
    assert found_states([fact], EPOCH, [EPOCH - 2]) == [fact]
    assert found_states([fact], EPOCH, [EPOCH - 2, EPOCH - 1]) == [], "the term between has found it"


def test_a_found_state_of_a_partition_that_no_topic_has_is_passed_over() -> None:
    cluster = loaded(orders=[[1]])
    assert not settle(cluster, start(1, found=[a_state_fact("orders", 9, a_leadership(1, [1]))])).of(StateFound)


def test_a_state_stamped_by_a_later_controller_is_not_overwritten() -> None:
    cluster = loaded(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1, 2], 4, controller_epoch=EPOCH + 3)})
    assert settle(cluster, start(2)).states == {}


def test_a_parked_topic_without_an_id_does_not_keep_the_others_from_being_told() -> None:
    cluster = loaded(orders=[[1]], payments=[[1]], ids={"orders": None})
    cluster.parked["topic orders"] = "a bug"
    settled = settle(cluster, start(1))
    assert settled.tellings[-1].everything is not None


def test_starting_twice_from_the_same_belief_decides_the_same_and_changes_none_of_it() -> None:
    cluster = loaded(orders=[[1, 2], [2, 1]], states={"orders-1": None}, ids={"orders": None})
    before = snapshot(cluster)
    decided = [steps_of(cluster, start(2), seed=seed) for seed in (3, 3)]
    assert decided[0] == decided[1]
    assert not any(isinstance(change, SubjectParked) for step in decided[0] for change in step)
    assert snapshot(cluster) == before
