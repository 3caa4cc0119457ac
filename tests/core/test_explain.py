"""The explanation of a partition agrees with the next election, and gives a reason for every replica."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import Deletion
from controller.core.changes.cluster import Committed, StateDecided
from controller.core.changes.duties import DrainGranted, FailedDirsFound
from controller.core.events import ElectAsked, TermStarted
from controller.core.model import NO_LEADER, Leadership
from controller.core.questions.explain import LEAVING, Explanation, explain
from tests.builders import a_cluster, a_leadership, state_of, steps_of
from tests.core.duty_clusters import PARTITIONS, clusters

numbers = st.integers(0, PARTITIONS - 1)


def decided(cluster: Cluster, event: ElectAsked | TermStarted, number: int) -> Leadership | None:
    """Returns the leadership that an event gives to one partition."""
    changes = [change for step in steps_of(cluster, event) for change in step]
    states = [one.state for one in changes if isinstance(one, StateDecided) and one.partition == number]
    return states[0] if states else None


def foretold(said: str) -> int | None:
    """The leader that an explanation names; None: it says that nothing would change."""
    match = re.match(r"broker (\d+) would lead", said)
    return None if match is None else int(match[1])


def whys(explanation: Explanation) -> dict[int, str]:
    return {one.broker_id: one.why for one in explanation.replicas}


# ---------------------------------------------------------------------- it agrees with the election


@given(clusters(), numbers)
def test_it_says_whom_an_offline_election_makes_leader(cluster: Cluster, number: int) -> None:
    before = cluster.topics["orders"].partitions[number].state
    if before is None:
        return
    said = explain(cluster, "orders", number).offline_election
    after = decided(cluster, TermStarted(cluster.brokers, 200), number) or before
    if (leader := foretold(said)) is not None:
        assert (after.leader, f"in sync: {list(after.isr)}") == (leader, said.partition(", ")[2])
    elif said == "nobody can lead":
        assert after.leader == NO_LEADER
    else:
        assert said == f"not needed: broker {before.leader} leads"
        assert after.leader == before.leader


@given(clusters(), numbers)
def test_it_says_whom_a_preferred_election_makes_leader(cluster: Cluster, number: int) -> None:
    said = explain(cluster, "orders", number).preferred_election
    after = decided(cluster, ElectAsked(False, [("orders", number)]), number)
    assert foretold(said) == (None if after is None else after.leader)


@given(clusters(), numbers)
def test_it_says_whom_an_unclean_election_makes_leader(cluster: Cluster, number: int) -> None:
    if cluster.topics["orders"].partitions[number].state is None:
        return
    said = explain(cluster, "orders", number).unclean_election
    after = decided(cluster, ElectAsked(True, [("orders", number)]), number)
    assert foretold(said) == (None if after is None else after.leader)


@given(clusters(), numbers)
def test_only_eligible_replicas_are_elected_cleanly_and_one_is_if_there_is_any(cluster: Cluster, number: int) -> None:
    explanation = explain(cluster, "orders", number)
    eligible_ids = {one.broker_id for one in explanation.replicas if one.is_eligible}
    after = decided(cluster, TermStarted(cluster.brokers, 200), number)
    if cluster.topics["orders"].partitions[number].state is None:
        return
    if after is not None and not cluster.is_unclean_allowed("orders"):
        assert (after.leader in eligible_ids) == bool(eligible_ids)
    for one in explanation.replicas:
        assert one.why
        assert one.is_eligible or one.why != "online and in sync"


# ---------------------------------------------------------------------- and it says why


def test_each_replica_has_its_reason() -> None:
    cluster = a_cluster(
        live=(1, 2, 3, 4), orders=[[1, 2, 3, 4, 5]], states={"orders-0": a_leadership(2, [2, 3, 4, 5], 3)}
    )
    granted, failed = DrainGranted(3, 13, is_shutdown=False), FailedDirsFound(4, 14, frozenset({("orders", 0)}))
    cluster.apply([Committed(granted, 0), Committed(failed, 0)])
    explanation = explain(cluster, "orders", 0)
    assert whys(explanation) == {
        1: "not in sync",
        2: "online and in sync",
        3: "its broker drains: only if no other can",
        4: "its log directory has failed",
        5: "its broker is gone",
    }
    assert [one.broker_id for one in explanation.replicas if one.is_leader] == [2]
    assert [one.broker_id for one in explanation.replicas if one.is_eligible] == [2, 3]
    assert [one.broker_id for one in explanation.replicas if one.is_in_sync] == [2, 3, 4, 5]


def test_all_reasons_of_one_replica_are_named() -> None:
    cluster = a_cluster(live=(2,), orders=[[1, 2]], states={"orders-0": a_leadership(2, [2])})
    assert whys(explain(cluster, "orders", 0))[1] == "its broker is gone; not in sync"


def test_a_suspect_is_named_as_one() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    cluster.duties.suspect_ids = frozenset({2})
    assert whys(explain(cluster, "orders", 0))[2].startswith("its broker has a bad directory and did not say yet")


def test_of_a_topic_that_is_being_deleted_nothing_is_said_to_be_online() -> None:
    """Its deletion waits, and its leader's broker lives."""
    state = a_leadership(1, [1, 2])
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": state})
    cluster.duties.deletions["orders"] = Deletion(is_queued=True, waits_for="broker 2 is gone")
    said = explain(cluster, "orders", 0)
    assert said.state == "OfflinePartition"
    assert {said.offline_election, said.preferred_election, said.unclean_election} == {LEAVING}
    assert [one.is_eligible for one in said.replicas] == [False, False]
    assert whys(said)[1] == "its topic is being deleted"


def test_it_shows_the_standing_state() -> None:
    state = a_leadership(2, [2, 1], 4, controller_epoch=3)
    shown = explain(a_cluster(orders=[[1, 2]], version=6, states={"orders-0": state}), "orders", 0)
    assert (shown.state, shown.leader, shown.leader_epoch) == ("OnlinePartition", 2, 4)
    assert (shown.controller_epoch, shown.version, shown.isr, shown.assigned) == (3, 6, (2, 1), (1, 2))


@pytest.mark.parametrize(
    ("state", "live", "said"),
    [
        (None, (3,), "never led yet: the first replica online would lead"),
        (a_leadership(1, [1, 2]), (1, 2), "not needed: broker 1 leads"),
        (a_leadership(NO_LEADER, [1]), (2,), "nobody can lead"),
        (a_leadership(1, [1, 2]), (2,), "broker 2 would lead, in sync: [2]"),
    ],
)
def test_an_offline_election_is_foretold(state: Leadership | None, live: tuple[int, ...], said: str) -> None:
    cluster = a_cluster(live=live, orders=[[1, 2]], states={"orders-0": state})
    assert explain(cluster, "orders", 0).offline_election == said


def test_an_unclean_choice_is_foretold_only_where_it_is_allowed() -> None:
    for is_allowed, said in ((False, "nobody can lead"), (True, "broker 2 would lead, in sync: [2]")):
        states = {"orders-0": a_leadership(NO_LEADER, [1])}
        explanation = explain(a_cluster(live=(2,), orders=[[1, 2]], states=states, unclean=is_allowed), "orders", 0)
        assert explanation.offline_election == said
        assert explanation.unclean_election == "broker 2 would lead, in sync: [2]"


def test_explaining_changes_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(2, [2, 1])})
    assert explain(cluster, "orders", 0).preferred_election == "broker 1 would lead"
    assert state_of(cluster, "orders") == a_leadership(2, [2, 1])
