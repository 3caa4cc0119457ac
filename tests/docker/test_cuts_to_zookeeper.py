"""A broker isolated from ZooKeeper, both ways and one way, while the others reach it by HTTP."""

from __future__ import annotations

import pytest

from tests.docker.cluster import LAG_S, SERVERS, Cluster, stays, until
from tests.docker.invariants import counts_on, is_told_by_zookeeper, states_of, watched
from tests.docker.network import ARRIVING, LEAVING, cut

pytestmark = pytest.mark.docker


@pytest.mark.parametrize(
    "chains",
    [
        pytest.param((ARRIVING, LEAVING), id="both_ways"),
        pytest.param((ARRIVING,), id="it_hears_nothing"),
        pytest.param((LEAVING,), id="it_is_not_heard"),
    ],
)
def test_a_controller_cut_from_zookeeper_stops_by_its_own_clock_and_is_succeeded(
    cluster: Cluster, chains: tuple[str, ...]
) -> None:
    with watched(cluster):
        holder, epoch = until(cluster.seat, "a broker holds the seat")
        others = [one for one in cluster.broker_ids if one != holder]
        with cut(cluster, f"broker{holder}", SERVERS, *chains):
            successor, successor_epoch = until(
                lambda: (seat := cluster.seat()) and seat[1] > epoch and seat, "another one takes over"
            )
            assert (successor in others, successor_epoch) == (True, epoch + 1)
            until(lambda: cluster.ask(holder, "/v1/controller")[1]["since"] is None, "it knows that its term is over")
            until(lambda: cluster.ask(holder, "/readyz")[0] == 503, "it says that it is cut off")
            assert cluster.ask(holder, "/livez")[0] == 200
            assert all(cluster.reaches(one, holder) and cluster.reaches(holder, one) for one in others)
            assert cluster.try_to_create("by-guessing", by=holder) == 503
            _others_go_on_without(cluster, holder, successor)
        until(lambda: cluster.registration(holder) is not None, "it is back")
    assert ("by-guessing", 0) not in states_of(cluster)


def test_a_broker_cut_from_zookeeper_is_in_no_isr_and_the_controller_stays(cluster: Cluster) -> None:
    with watched(cluster):
        holder, epoch = until(cluster.seat, "a broker holds the seat")
        broker_id, other = (one for one in cluster.broker_ids if one != holder)
        with cut(cluster, f"broker{broker_id}", SERVERS, ARRIVING, LEAVING):
            until(lambda: cluster.registration(broker_id) is None, "its registration is gone")
            until(lambda: cluster.ask(broker_id, "/readyz")[0] == 503, "it says that it is cut off")
            assert all(cluster.reaches(one, broker_id) for one in (holder, other))
            _others_go_on_without(cluster, broker_id, holder)
            assert cluster.seat() == (holder, epoch)
    assert cluster.seat() == (holder, epoch)


def _others_go_on_without(cluster: Cluster, cut_off: int, controller: int) -> None:
    """It leads nothing and is in no ISR, though by HTTP it may fetch all that its leaders have; all else goes on."""
    until(lambda: not counts_on(cut_off, cluster), "no broker counts on the one that is cut off")
    name = f"without-{cut_off}-{len(states_of(cluster))}"
    cluster.create_topic(name, by=controller, replication_factor=2)
    others = [one for one in cluster.broker_ids if one != cut_off]
    until(lambda: is_told_by_zookeeper(cluster, others), "the view of the others is ZooKeeper's")
    assert (name, 0) not in cluster.told(cut_off)
    stays(lambda: not counts_on(cut_off, cluster), "no broker counts on the one that is cut off", LAG_S / 2)
