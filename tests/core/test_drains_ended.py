"""Drains that are over: their end is tried again until it stands."""

from __future__ import annotations

from controller.core.causes import Cause
from controller.core.changes.cluster import BrokerGone, BrokerLive, Committed
from controller.core.changes.duties import DrainEnded
from controller.core.events import DrainAsked, TimePassed
from tests.builders import a_broker, a_cluster, settle, zookeeper_of


def test_the_end_of_a_drain_that_did_not_stand_is_tried_again() -> None:
    """Its request was lost; the broker came back, was told to drain still, and no ISR grew by it (SEED=42744827)."""
    cluster = a_cluster(orders=[[2, 1, 3]])
    zookeeper = zookeeper_of(cluster)
    settle(cluster, DrainAsked(1, 11, is_shutdown=True), zookeeper)
    back = (
        BrokerGone(1, 11, "registration gone", Cause.BROKER_GONE),
        BrokerLive(a_broker(1, epoch=99), "joined", Cause.BROKER_JOINED),
    )
    cluster.apply(Committed(change, 1, 101) for change in back)
    settled = settle(cluster, TimePassed(), zookeeper)
    assert len(settled.of(DrainEnded)) == 1
    assert (cluster.duties.drains, "/klamm/draining/1" in zookeeper.nodes) == ({}, False)
