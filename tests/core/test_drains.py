"""Controlled shutdown and drains: one decision for all leaderships, nothing made offline, and kept until it ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import Drain
from controller.core.changes.cluster import Change, Committed, StateDecided
from controller.core.changes.duties import (
    DeletionQueued,
    DrainEnded,
    DrainGranted,
    FailedDirsFound,
    RepeatedTo,
)
from controller.core.codes import Code
from controller.core.decide.drains import remaining
from controller.core.elections import drained
from controller.core.events import (
    AlterPartitionAsked,
    CreateTopicAsked,
    DrainAsked,
    TermStarted,
    TimePassed,
    UndrainAsked,
)
from controller.core.model import NO_LEADER, RECOVERING
from controller.core.project.requests import Stop, requests_for
from controller.core.states import ReplicaStatus
from controller.loop.inbox import ShutdownReply
from controller.loop.replies import reply_for
from controller.wire.bodies import RemainingPartition
from tests.builders import (
    EPOCH,
    Settled,
    a_broker,
    a_cluster,
    a_leadership,
    a_proposal,
    brokers,
    brokers_seen,
    settle,
    state_of,
    steps_of,
    zookeeper_of,
)
from tests.support.znodes import generic

SHUTDOWN = DrainAsked(1, 11, is_shutdown=True)
BY_HAND = DrainAsked(1)


def believing(cluster: Cluster, *changes: Change) -> Cluster:
    cluster.apply(Committed(change, 1, 101) for change in changes)
    return cluster


def codes(settled: Settled) -> list[Code]:
    return [one.code for one in settled.refusals]


def left(cluster: Cluster, broker_id: int = 1) -> list[str]:
    return [str(one) for one in remaining(cluster, broker_id)]


# ---------------------------------------------------------------------- granting


def test_a_drain_is_written_down_first_and_then_all_leaderships_move_in_one_step() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]] * 3, users=[[1, 3], [2, 3]])
    steps = steps_of(cluster, BY_HAND)
    assert steps[0] == [DrainGranted(1, 11, is_shutdown=False)]
    moved = [f"{one.topic}-{one.partition}" for one in steps[1] if isinstance(one, StateDecided)]
    assert moved == ["orders-0", "orders-1", "orders-2", "users-0"]
    assert len(steps) == 2


@pytest.mark.parametrize(("event", "by"), [(SHUTDOWN, "shutdown"), (BY_HAND, "hand")])
def test_the_grant_names_the_registration_and_how_it_came(event: DrainAsked, by: str) -> None:
    cluster = a_cluster(orders=[[1, 2]])
    zookeeper = zookeeper_of(cluster)
    settle(cluster, event, zookeeper)
    assert generic(zookeeper.nodes["/klamm/draining/1"].data) == {"broker_epoch": 11, "by": by}
    assert cluster.duties.drains == {1: Drain(11, by == "shutdown")}


def test_asked_again_a_granted_drain_stays_and_writes_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, SHUTDOWN)
    assert steps_of(cluster, SHUTDOWN) == []


def test_a_drain_by_hand_becomes_a_shutdown_and_never_the_other_way_round() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, BY_HAND)
    assert state_of(cluster, "orders").isr == (1, 2, 3), "by hand it only stops leading"
    settle(cluster, SHUTDOWN)
    assert state_of(cluster, "orders").isr == (2, 3)
    settle(cluster, BY_HAND)
    assert cluster.duties.drains == {1: Drain(11, is_shutdown=True)}


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (DrainAsked(9, 19, is_shutdown=True), Code.BROKER_NOT_AVAILABLE),
        (DrainAsked(1, 10, is_shutdown=True), Code.STALE_BROKER_EPOCH),
        (DrainAsked(1, 0, is_shutdown=True), Code.STALE_BROKER_EPOCH),
        (DrainAsked(-1), Code.BROKER_NOT_AVAILABLE),
    ],
)
def test_a_broker_not_registered_with_that_epoch_is_refused_and_nothing_moves(event: DrainAsked, code: Code) -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settled = settle(cluster, event)
    assert (codes(settled), settled.writes, cluster.duties.drains) == ([code], [[]], {})


# ---------------------------------------------------------------------- the partitions that move


def test_by_shutdown_it_leaves_every_isr_led_by_itself_or_others() -> None:
    cluster = a_cluster(orders=[[1, 2, 3], [2, 1, 3]])
    assert settle(cluster, SHUTDOWN).states == {
        "orders-0": a_leadership(2, [2, 3], 1),
        "orders-1": a_leadership(2, [2, 3], 1),
    }


def test_by_hand_only_its_leaderships_move() -> None:
    cluster = a_cluster(orders=[[1, 2, 3], [2, 1, 3]])
    settled = settle(cluster, BY_HAND)
    assert settled.states == {"orders-0": a_leadership(2, [1, 2, 3], 1)}
    assert [one.reason for one in settled.of_states()] == ["broker 1 drains"]


def test_the_draining_broker_is_told_that_it_leads_no_more() -> None:
    """KAFKA-7482."""
    cluster = a_cluster(orders=[[1, 2, 3]])
    granted, moved = settle(cluster, SHUTDOWN).tellings
    assert [one.state for one in granted.brokers] == ["draining", "live", "live"]
    assert set(moved.leaderships) == {1, 2, 3}
    assert moved.live_ids == {1, 2, 3}, "it can be followed as long as it leads (KAFKA-705, KAFKA-999)"


def test_a_replica_stopped_at_shutdown_is_offline_and_its_broker_is_told_of_it_no_more() -> None:
    states = {"orders-1": a_leadership(2, [2, 1, 3]), "orders-2": a_leadership(2, [2, 3])}
    cluster = a_cluster(orders=[[1, 2, 3], [1, 2, 3], [1, 2, 3], [1]], states=states)
    _, moved = settle(cluster, SHUTDOWN).tellings
    [stops] = moved.stops[1].values()
    assert stops == {0: Stop(1, delete=False), 1: Stop(1, delete=False), 2: Stop(0, delete=False)}
    assert list(moved.stops) == [1]
    assert [list(rows) for rows in moved.leaderships[1].values()] == [[0]], "the new leader of the one that it led"
    kept = [cluster.states.of_replica("orders", number, 1) for number in range(4)]
    assert kept == [ReplicaStatus.OFFLINE] * 3 + [ReplicaStatus.ONLINE]
    [elected] = settle(cluster, brokers_seen(1, 3)).tellings
    assert list(elected.leaderships) == [3]
    assert steps_of(cluster, SHUTDOWN) == []
    settle(cluster, brokers_seen(3))
    settle(cluster, brokers_seen(1, 3))
    assert {cluster.states.of_replica("orders", number, 1) for number in range(4)} == {ReplicaStatus.ONLINE}


def test_a_stopped_replica_may_have_to_lead_again_and_then_it_is_online() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(2, [2])})
    cluster.unclean_default = True
    settle(cluster, SHUTDOWN)
    assert cluster.states.of_replica("orders", 0, 1) is ReplicaStatus.OFFLINE
    [elected] = settle(cluster, brokers_seen(1)).tellings
    assert state_of(cluster, "orders").leader == 1
    assert cluster.states.of_replica("orders", 0, 1) is ReplicaStatus.ONLINE
    assert list(elected.leaderships) == [1]


def test_a_shutdown_that_cannot_be_written_down_stops_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    _, moves = steps_of(cluster, SHUTDOWN)
    committed = [Committed(change, 1, 101) for change in moves]
    made = cluster.apply(committed)
    assert [one.broker_id for one in made] == [None]
    assert requests_for(cluster, committed).stops == {}


def test_a_broker_that_shuts_down_and_is_told_everything_anew_follows_again_until_it_is_stopped() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    settle(cluster, SHUTDOWN)
    believing(cluster, RepeatedTo(1, ()))
    assert cluster.states.of_replica("orders", 0, 1) is ReplicaStatus.ONLINE
    [telling] = settle(cluster, TimePassed()).tellings
    assert list(telling.stops) == [1]
    assert cluster.states.of_replica("orders", 0, 1) is ReplicaStatus.OFFLINE


@pytest.mark.parametrize("event", [SHUTDOWN, BY_HAND])
def test_partitions_without_another_candidate_stay_and_the_answer_names_them(event: DrainAsked) -> None:
    states = {"orders-0": a_leadership(1, [1]), "orders-1": a_leadership(1, [1, 2])}
    cluster = a_cluster(orders=[[1, 2], [1, 2], [1]], live=(1, 3), states=states)
    settled = settle(cluster, event)
    assert settled.states == {}
    assert left(cluster) == ["orders-0", "orders-1"], "no other broker can take a partition with a single replica"
    reply = reply_for(cluster, SHUTDOWN, settled.committed)
    assert isinstance(reply, ShutdownReply)
    assert list(reply.remaining) == [RemainingPartition("orders", 0), RemainingPartition("orders", 1)]


def test_a_leadership_that_could_not_move_moves_when_asked_again() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1])})
    settle(cluster, SHUTDOWN)
    assert left(cluster) == ["orders-0"]
    proposal = a_proposal(cluster, "orders", 0, 1, 2)
    settle(cluster, AlterPartitionAsked(1, 11, [proposal]))
    settle(cluster, SHUTDOWN)
    assert left(cluster) == []
    assert state_of(cluster, "orders") == a_leadership(2, [2], 1)


def test_topics_on_their_way_out_are_neither_moved_nor_waited_for() -> None:
    """KAFKA-2937, KAFKA-6753."""
    cluster = believing(a_cluster(orders=[[1, 2]], users=[[1, 2]]), DeletionQueued("orders", False))
    assert set(settle(cluster, SHUTDOWN).states) == {"users-0"}
    assert left(cluster) == []


def test_partitions_never_led_do_not_stop_a_drain() -> None:
    cluster = a_cluster(orders=[[1, 2], [1, 2]], states={"orders-0": None})
    assert set(settle(cluster, SHUTDOWN).states) == {"orders-1"}


def test_a_replica_on_a_bad_directory_takes_no_leadership_over() -> None:
    cluster = believing(a_cluster(orders=[[1, 2, 3]]), FailedDirsFound(2, 12, frozenset({("orders", 0)})))
    assert settle(cluster, BY_HAND).states["orders-0"].leader == 3


def test_brokers_that_drain_one_after_the_other_do_not_hand_leaderships_to_each_other() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, BY_HAND)
    settle(cluster, DrainAsked(2))
    assert state_of(cluster, "orders").leader == 3
    assert settle(cluster, DrainAsked(3)).states == {}
    assert left(cluster, 3) == ["orders-0"]


def test_two_shutdowns_leave_the_isr_together() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, DrainAsked(2, 12, is_shutdown=True))
    settle(cluster, SHUTDOWN)
    assert state_of(cluster, "orders") == a_leadership(3, [3], 2)


def test_a_move_keeps_the_recovery_state() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1, 2], recovery=RECOVERING)})
    assert settle(cluster, BY_HAND).states["orders-0"].recovery == RECOVERING


@given(st.data())
def test_a_drain_never_makes_a_partition_offline_and_leaves_a_leader_only_where_it_must(data: st.DataObject) -> None:
    """S27."""
    ids = st.integers(1, 4)
    replicas = tuple(data.draw(st.lists(ids, min_size=1, unique=True)))
    isr = tuple(data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    online = data.draw(st.frozensets(ids))
    leaders = [one for one in isr if one in online] or [NO_LEADER]
    state = a_leadership(data.draw(st.sampled_from(leaders)), isr, 3)
    leaving = data.draw(st.frozensets(ids))
    draining = data.draw(st.frozensets(ids)) | leaving
    after = drained(replicas, state, online, EPOCH, draining=draining, leaving=leaving)
    assert after is None or after.leader_epoch == 4
    others = [one for one in isr if one in online and one not in draining]
    if after is None:
        assert not others or (state.leader in others and not set(isr) & leaving)
        return
    assert after.leader in others
    assert after.isr == tuple(one for one in isr if one not in leaving)
    assert drained(replicas, after, online, EPOCH, draining=draining, leaving=leaving) is None


# ---------------------------------------------------------------------- while it drains


def test_a_draining_broker_is_elected_only_without_another_candidate() -> None:
    """S15."""
    cluster = believing(a_cluster(orders=[[3, 1, 2], [3, 1]]), DrainGranted(1, 11, is_shutdown=False))
    settled = settle(cluster, brokers_seen(1, 2))
    assert {name: state.leader for name, state in settled.states.items()} == {"orders-0": 2, "orders-1": 1}


@pytest.mark.parametrize(("is_shutdown", "isr"), [(True, (2, 3)), (False, (1, 2, 3))])
def test_a_new_partition_is_not_led_by_a_draining_broker(is_shutdown: bool, isr: tuple[int, ...]) -> None:
    cluster = believing(a_cluster(), DrainGranted(1, 11, is_shutdown))
    settle(cluster, CreateTopicAsked("orders", assignment={0: (1, 2, 3)}))
    settle(cluster, CreateTopicAsked("alone", assignment={0: (1,)}))
    assert state_of(cluster, "orders") == a_leadership(2, isr)
    assert state_of(cluster, "alone") == a_leadership(1, [1])


def test_an_isr_does_not_grow_by_a_broker_that_leaves() -> None:
    """KIP-841."""
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, SHUTDOWN)
    asked = AlterPartitionAsked(2, 12, [a_proposal(cluster, "orders", 0, 2, 3, 1)])
    assert codes(settle(cluster, asked)) == [Code.INELIGIBLE_REPLICA]
    assert state_of(cluster, "orders").isr == (2, 3)


def test_a_broker_that_leaves_and_could_not_be_spared_may_stay_in_the_isr() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1])})
    settle(cluster, SHUTDOWN)
    assert codes(settle(cluster, AlterPartitionAsked(1, 11, [a_proposal(cluster, "orders", 0, 1, 2)]))) == []


def test_an_isr_grows_by_a_broker_that_was_drained_by_hand() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(2, [2])})
    settle(cluster, BY_HAND)
    assert codes(settle(cluster, AlterPartitionAsked(2, 12, [a_proposal(cluster, "orders", 0, 2, 1)]))) == []


# ---------------------------------------------------------------------- its end


@pytest.mark.parametrize("seen", [(2, 3), (a_broker(1, epoch=99), 2, 3)])
def test_a_drain_ends_with_its_registration(seen: tuple[Any, ...]) -> None:
    cluster = a_cluster(orders=[[2, 1, 3]])
    zookeeper = zookeeper_of(cluster)
    settle(cluster, SHUTDOWN, zookeeper)
    settled = settle(cluster, brokers_seen(*seen), zookeeper)
    assert len(settled.of(DrainEnded)) == 1
    assert cluster.duties.drains == {}
    assert "/klamm/draining/1" not in zookeeper.nodes


def test_undrain_ends_a_drain_by_hand_and_all_are_told() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    zookeeper = zookeeper_of(cluster)
    settle(cluster, BY_HAND, zookeeper)
    settled = settle(cluster, UndrainAsked(1), zookeeper)
    assert (cluster.duties.drains, "/klamm/draining/1" in zookeeper.nodes) == ({}, False)
    assert [one.state for one in settled.tellings[-1].brokers] == ["live", "live", "live"]
    assert [(line.source, line.target, line.reason) for line in settled.lines] == [("draining", "live", "undrained")]


def test_undrain_of_a_broker_that_does_not_drain_is_no_failure_and_changes_nothing() -> None:
    settled = settle(a_cluster(), UndrainAsked(1))
    assert (codes(settled), settled.writes) == ([Code.NONE], [[]])


def test_a_shutdown_cannot_be_undrained() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    settle(cluster, SHUTDOWN)
    assert codes(settle(cluster, UndrainAsked(1))) == [Code.INVALID_REQUEST]
    assert cluster.leaving_ids == {1}


def test_a_new_term_forgets_a_drain_of_an_earlier_incarnation() -> None:
    cluster = a_cluster(live=(), orders=[[1, 2]])
    zookeeper = zookeeper_of(cluster)
    zookeeper.put("/klamm/draining/1", b'{"broker_epoch":5,"by":"shutdown"}')
    settled = settle(cluster, TermStarted(brokers(1, 2), 200, stale_ids=frozenset({1})), zookeeper)
    assert len(settled.of(DrainEnded)) == 1
    assert "/klamm/draining/1" not in zookeeper.nodes
    assert settled.conflicts == []
