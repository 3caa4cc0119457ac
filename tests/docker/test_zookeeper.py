"""The ensemble under a cluster: its leader killed, all of it down for longer than the brokers' session time-out."""

from __future__ import annotations

import time

import pytest

from tests.docker.cluster import SERVERS, SESSION_TIMEOUT_S, Cluster, NoAnswerError, until
from tests.docker.invariants import watched

pytestmark = pytest.mark.docker


def test_the_ensembles_leader_can_be_killed_and_no_term_ends(cluster: Cluster) -> None:
    """A new leader is elected within the brokers' session time-out: they reconnect, and no session is lost."""
    with watched(cluster):
        before = until(cluster.seat, "a broker holds the seat")
        leader = cluster.zookeeper_leader()
        cluster.kill(leader)
        until(lambda: cluster.seat() == before, "the seat is where it was")
        assert cluster.zookeeper_leader() != leader
        cluster.create_topic("after-the-leader")
        cluster.start(leader)
    assert cluster.seat() == before


def test_an_ensemble_that_is_down_for_longer_than_a_session_costs_nothing_but_time(cluster: Cluster) -> None:
    """No process writes or tells meanwhile; requests are refused as not done; then all goes on."""
    with watched(cluster) as watch:
        holder, _ = until(cluster.seat, "a broker holds the seat")
        told = cluster.told(holder)
        claims = {epoch: set(ids) for epoch, ids in watch.claimed.items()}
        cluster.kill(*SERVERS)
        down_at = time.monotonic()
        until(lambda: cluster.try_to_create("while-it-is-down") == 503, "a request is refused")
        while time.monotonic() - down_at < 2 * SESSION_TIMEOUT_S:
            for broker_id in cluster.broker_ids:
                assert cluster.told(broker_id) == told, "a broker's view changed without ZooKeeper"
            time.sleep(0.5)
        assert all(watch.claimed[epoch] <= ids for epoch, ids in claims.items()), "a claim was made without ZooKeeper"
        cluster.start(*SERVERS)
    assert ("while-it-is-down", 0) not in cluster.told(holder)


def test_a_broker_started_within_its_session_replaces_its_own_old_node(cluster: Cluster) -> None:
    """It does not wait for the time-out of the session it had, and its epoch says that it is another incarnation."""
    with watched(cluster):
        holder, _ = until(cluster.seat, "a broker holds the seat")
        broker_id = next(one for one in cluster.broker_ids if one != holder)
        before = cluster.registration(broker_id)
        assert before is not None
        cluster.kill(f"broker{broker_id}")
        delays = cluster.said(f"broker{broker_id}", "registration.delayed")
        cluster.start(f"broker{broker_id}")

        def is_back() -> bool:
            after = cluster.registration(broker_id)
            return after is not None and after[0] != before[0]

        until(is_back, "it is registered anew")
        after = cluster.registration(broker_id)
        assert after is not None
        assert (after[0] > before[0], after[1] != before[1]) == (True, True), "a later node, of another session"
        waited = cluster.said(f"broker{broker_id}", "registration.delayed") - delays
        assert waited == 0, "it waited for the end of its old session"


def test_a_paused_controller_changes_nothing_when_it_goes_on(cluster: Cluster) -> None:
    """A zombie: paused beyond the session time-out, succeeded, and let go again."""
    with watched(cluster):
        holder, epoch = until(cluster.seat, "a broker holds the seat")
        with cluster.paused(f"broker{holder}"):
            successor, _ = until(
                lambda: (seat := cluster.seat()) and seat[1] > epoch and seat, "another one takes over"
            )
            with pytest.raises(NoAnswerError):
                cluster.ask(holder, "/livez", timeout_s=1)
            cluster.create_topic("while-it-slept", by=successor, replication_factor=2)
        until(lambda: cluster.ask(holder, "/readyz")[0] == 200, "it takes part again")
    assert ("while-it-slept", 0) in cluster.told(holder)
