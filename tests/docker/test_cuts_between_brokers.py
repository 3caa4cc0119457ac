"""A broker that no other reaches by HTTP, nor it them, while all have their sessions with ZooKeeper; then one way."""

from __future__ import annotations

import pytest

from tests.docker.cluster import LAG_S, Cluster, NoAnswerError, State, stays, until
from tests.docker.invariants import Partition, is_told_by_zookeeper, states_of, watched
from tests.docker.network import ARRIVING, LEAVING, cut

pytestmark = pytest.mark.docker


def test_a_broker_that_others_cannot_reach_leaves_their_isrs_keeps_its_leaderships_and_returns(
    cluster: Cluster,
) -> None:
    """As in Kafka, only ZooKeeper says which brokers live: no election for it, before or after."""
    with watched(cluster):
        holder, epoch = until(cluster.seat, "a broker holds the seat")
        broker_id = next(one for one in cluster.broker_ids if one != holder)
        others = [one for one in cluster.broker_ids if one != broker_id]
        everybody_leads(cluster, "while-one-is-unreachable")
        registration, before = cluster.registration(broker_id), states_of(cluster)
        with cut(cluster, f"broker{broker_id}", services(others), ARRIVING, LEAVING):
            assert not any(cluster.reaches(one, broker_id) or cluster.reaches(broker_id, one) for one in others)
            # The controller cannot tell it, and does not stop for it: the others get the new topic.
            name = "past-the-unreachable"
            cluster.create_topic(name, by=holder, assignment={"0": others})
            until(lambda: all((name, 0) in cluster.told(one) for one in others), "the others are told")
            assert (name, 0) not in cluster.told(broker_id)
            assert cluster.owed_to(broker_id, by=holder) > 0
            assert is_refused(cluster, "by-the-unreachable", by=broker_id)
            until(
                lambda: all(broker_id not in s.isr for s in led_by(others, cluster).values()),
                "it has left the ISR of all that others lead",
            )
            # It leads and cannot ask for another ISR, so that ZooKeeper's states of those stand.
            own = {one: state for one, state in before.items() if state.leader == broker_id}
            assert led_by([broker_id], cluster) == own
            assert (cluster.seat(), cluster.registration(broker_id)) == ((holder, epoch), registration)
        until(lambda: (name, 0) in cluster.told(broker_id), "its backlog is told")
    after = states_of(cluster)
    assert (cluster.seat(), cluster.registration(broker_id)) == ((holder, epoch), registration)
    assert {one: (after[one].leader, after[one].leader_epoch) for one in before} == {
        one: (state.leader, state.leader_epoch) for one, state in before.items()
    }
    assert ("by-the-unreachable", 0) not in after


def test_a_controller_that_no_broker_reaches_keeps_its_seat_and_tells_all_of_them_later(cluster: Cluster) -> None:
    with watched(cluster):
        holder, epoch = until(cluster.seat, "a broker holds the seat")
        others = [one for one in cluster.broker_ids if one != holder]
        everybody_leads(cluster, "while-the-controller-is-unreachable")
        before = states_of(cluster)
        with cut(cluster, f"broker{holder}", services(others), ARRIVING, LEAVING):
            name = "told-to-nobody-yet"
            cluster.create_topic(name, by=holder, assignment={"0": others})
            assert (name, 0) in states_of(cluster)
            assert is_refused(cluster, "by-those-it-cannot-hear", by=others[0])
            # It may ask itself, and is alone in the ISRs that it leads; the others cannot ask it.
            until(
                lambda: all(state.isr == (holder,) for state in led_by([holder], cluster).values()),
                "it is alone in the ISRs that it leads",
            )
            theirs = {one: state for one, state in before.items() if state.leader in others}
            now = states_of(cluster)
            assert {one: now[one] for one in theirs} == theirs
            assert all((name, 0) not in cluster.told(one) for one in others)
            assert all(cluster.owed_to(one, by=holder) > 0 for one in others)
            assert cluster.seat() == (holder, epoch)
        until(lambda: all((name, 0) in cluster.told(one) for one in others), "they are told")
    assert cluster.seat() == (holder, epoch)
    assert ("by-those-it-cannot-hear", 0) not in states_of(cluster)


@pytest.mark.parametrize("chain", [LEAVING, ARRIVING], ids=["answers_are_lost", "requests_are_lost"])
def test_a_broker_cut_one_way_from_its_controller_is_told_until_it_answers(cluster: Cluster, chain: str) -> None:
    """TCP needs both ways: either cut keeps a request from being answered, and the controller owes it the state."""
    with watched(cluster):
        holder, epoch = until(cluster.seat, "a broker holds the seat")
        broker_id, other = (one for one in cluster.broker_ids if one != holder)
        name = f"one-way-{chain.lower()}"
        with cut(cluster, f"broker{broker_id}", services([holder]), chain):
            assert not cluster.reaches(holder, broker_id)
            assert not cluster.reaches(broker_id, holder)
            assert cluster.reaches(other, broker_id)
            cluster.create_topic(name, by=holder)
            until(lambda: (name, 0) in cluster.told(other), "the other broker is told")
            stays(lambda: cluster.owed_to(broker_id, by=holder) > 0, "the controller waits for an answer", LAG_S / 2)
            assert chain == LEAVING or (name, 0) not in cluster.told(broker_id)
            assert cluster.seat() == (holder, epoch)
        until(lambda: cluster.owed_to(broker_id, by=holder) == 0, "it has answered")
    assert cluster.seat() == (holder, epoch)
    assert (name, 0) in cluster.told(broker_id)


def everybody_leads(cluster: Cluster, name: str) -> None:
    """A topic of which each broker leads a partition, with all the others in sync."""
    ids = list(cluster.broker_ids)
    cluster.create_topic(name, assignment={str(at): ids[at:] + ids[:at] for at in range(len(ids))})
    until(lambda: all(len(states_of(cluster)[name, at].isr) == len(ids) for at in range(len(ids))), "all are in sync")
    until(lambda: is_told_by_zookeeper(cluster, ids), "all are told")


def services(broker_ids: list[int]) -> list[str]:
    return [f"broker{one}" for one in broker_ids]


def led_by(broker_ids: list[int], cluster: Cluster) -> dict[Partition, State]:
    return {one: state for one, state in states_of(cluster).items() if state.leader in broker_ids}


def is_refused(cluster: Cluster, name: str, by: int) -> bool:
    """No broker that could do it can be asked: the answer says so, if there is one in time."""
    try:
        return cluster.try_to_create(name, by=by) in (502, 503, 504)
    except NoAnswerError:
        return True
