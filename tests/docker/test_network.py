"""The network between the nodes cut: from ZooKeeper, from each other, one way, at random. Published ports stay open."""

from __future__ import annotations

import time

import pytest

from tests.docker.cluster import SERVERS, Cluster, NoAnswerError, until
from tests.docker.invariants import watched

pytestmark = pytest.mark.docker
LOSS_S = 60.0


def rules_between(cluster: Cluster, others: tuple[str, ...], *chains: str) -> list[str]:
    """Drop what comes from (INPUT) and goes to (OUTPUT) those nodes."""
    sides = {"INPUT": "-s", "OUTPUT": "-d"}
    return [f"-A {chain} {sides[chain]} {cluster.address(other)} -j DROP" for other in others for chain in chains]


def test_a_controller_cut_from_zookeeper_is_succeeded_while_brokers_still_reach_it(cluster: Cluster) -> None:
    with watched(cluster):
        holder, epoch = until(cluster.seat, "somebody holds the seat")
        with cluster.filtered(f"broker{holder}", *rules_between(cluster, SERVERS, "INPUT", "OUTPUT")):
            successor, _ = until(
                lambda: (seat := cluster.seat()) and seat[1] > epoch and seat, "another one takes over"
            )
            assert successor != holder
            until(lambda: cluster.ask(holder, "/readyz")[0] == 503, "the one that is cut says so")
            assert cluster.ask(holder, "/livez")[0] == 200
            assert cluster.try_to_create("by-guessing", by=holder) == 503  # it does not lead any more, and knows
            cluster.create_topic("without-it", by=successor, replication_factor=2)
    assert ("without-it", 0) in cluster.told(holder)


def test_a_broker_that_others_cannot_reach_leaves_the_isrs_and_returns(cluster: Cluster) -> None:
    """The reverse: it keeps its session with ZooKeeper, and no broker's HTTP passes to or from it."""
    with watched(cluster):
        holder, epoch = until(cluster.seat, "somebody holds the seat")
        broker_id = next(one for one in cluster.broker_ids if one != holder)
        others = tuple(f"broker{one}" for one in cluster.broker_ids if one != broker_id)
        with cluster.filtered(f"broker{broker_id}", *rules_between(cluster, others, "INPUT", "OUTPUT")):
            # The controller cannot tell it, and does not stop for it: the others get the new topic.
            name = "past-the-unreachable"
            cluster.create_topic(
                name, by=holder, assignment={"0": [one for one in cluster.broker_ids if one != broker_id]}
            )
            assert (name, 0) not in cluster.told(broker_id)
            assert cluster.registration(broker_id) is not None
            assert cluster.ask(broker_id, "/livez")[0] == 200
        until(lambda: (name, 0) in cluster.told(broker_id), "what was owed to it is told")
    assert cluster.seat() == (holder, epoch), "no term ended for it"


def test_answers_that_are_lost_one_way_make_no_difference_to_what_is_true(cluster: Cluster) -> None:
    """Requests of the controller reach one broker, its answers do not return: it is told again until they do."""
    with watched(cluster):
        holder, epoch = until(cluster.seat, "somebody holds the seat")
        broker_id = next(one for one in cluster.broker_ids if one != holder)
        with cluster.filtered(f"broker{broker_id}", *rules_between(cluster, (f"broker{holder}",), "OUTPUT")):
            cluster.create_topic("answers-lost", by=holder)
    assert cluster.seat() == (holder, epoch)
    assert ("answers-lost", 0) in cluster.told(broker_id)


def test_a_controller_that_zookeeper_hears_but_cannot_answer_stops_by_its_own_clock(cluster: Cluster) -> None:
    """One way again: what ZooKeeper says is lost. Its clock counts from the last request that was answered."""
    with watched(cluster):
        holder, epoch = until(cluster.seat, "somebody holds the seat")
        with cluster.filtered(f"broker{holder}", *rules_between(cluster, SERVERS, "INPUT")):
            successor, _ = until(
                lambda: (seat := cluster.seat()) and seat[1] > epoch and seat, "another one takes over"
            )
            assert successor != holder
            until(lambda: cluster.ask(holder, "/v1/controller")[1]["since"] is None, "it knows that its term is over")
            assert cluster.try_to_create("by-guessing", by=holder) == 503


def test_topics_are_created_and_led_while_a_third_of_all_packets_is_lost(cluster: Cluster) -> None:
    """For a minute, at every broker; sessions may end and terms too, but nothing is undone or done twice."""
    loss = "-A INPUT -i eth+ -m statistic --mode random --probability 0.3 -j DROP"
    with watched(cluster):
        created = []
        with (
            cluster.filtered("broker1", loss),
            cluster.filtered("broker2", loss),
            cluster.filtered("broker3", loss),
        ):
            until_s = time.monotonic() + LOSS_S
            while time.monotonic() < until_s:
                name = f"lossy-{len(created)}"
                if _is_created(cluster, name):
                    created.append(name)
        assert created, "nothing was created within a minute"
    told = cluster.told(1)
    assert all((name, 0) in told for name in created)


def _is_created(cluster: Cluster, name: str) -> bool:
    try:
        return cluster.try_to_create(name) in (200, 201)
    except NoAnswerError:
        return False  # asked again: a creation is idempotent by its content
