"""Brokers that are gone stay known, over terms too, until an operator forgets them."""

from __future__ import annotations

from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import Duties
from controller.core.causes import Cause
from controller.core.changes.cluster import BrokerGone, Committed
from controller.core.codes import Code
from controller.core.events import ForgetBrokerAsked, TimePassed
from controller.core.formats import known_broker_for
from controller.core.project.requests import known_brokers
from tests.builders import EPOCH, a_broker, a_cluster, settle, steps_of, zookeeper_of
from tests.support.znodes import generic


def test_a_registration_is_written_down_when_there_is_time_and_once() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    cluster.duties.noted.clear()
    zookeeper = zookeeper_of(cluster)
    settle(cluster, TimePassed(), zookeeper)
    assert cluster.unnoted == []
    assert generic(zookeeper.nodes["/klamm/brokers/1"].data)["broker_epoch"] == 11
    assert steps_of(cluster, TimePassed()) == []


def test_a_broker_that_is_gone_stays_known_to_the_next_term_with_its_address() -> None:
    noted = {4: known_broker_for(a_broker(4))}
    duties = Duties()
    duties.noted = noted
    cluster = Cluster(controller_id=1, controller_epoch=EPOCH)
    cluster.load([], [], duties)
    assert [(one.broker.broker_id, one.state, one.broker.host) for one in known_brokers(cluster)] == [
        (4, "gone", a_broker(4).host)
    ]


def test_only_a_broker_that_is_gone_and_hosts_nothing_is_forgotten() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    for broker_id, code in [(1, Code.OPERATION_NOT_ATTEMPTED), (9, Code.NONE)]:
        (refusal,) = settle(cluster, ForgetBrokerAsked(broker_id), zookeeper_of(cluster)).refusals
        assert refusal.code is code
    cluster.apply([Committed(BrokerGone(2, 12, "registration gone", Cause.BROKER_GONE), None, 0)])
    (refusal,) = settle(cluster, ForgetBrokerAsked(2), zookeeper_of(cluster)).refusals
    assert (refusal.code, "reassign" in refusal.detail) == (Code.OPERATION_NOT_ATTEMPTED, True)
    cluster.apply([Committed(BrokerGone(3, 13, "registration gone", Cause.BROKER_GONE), None, 0)])
    zookeeper = zookeeper_of(cluster)
    assert settle(cluster, ForgetBrokerAsked(3), zookeeper).refusals == []
    assert {one.broker.broker_id for one in known_brokers(cluster)} == {1, 2}
    assert 3 not in cluster.duties.noted


def test_a_refusal_leaves_the_revision_of_belief_so_that_cached_views_stay_valid() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    before = cluster.revision
    assert settle(cluster, ForgetBrokerAsked(1), zookeeper_of(cluster)).refusals
    assert cluster.revision == before
    cluster.apply([Committed(BrokerGone(2, 12, "registration gone", Cause.BROKER_GONE), None, 0)])
    assert cluster.revision == before + 1
