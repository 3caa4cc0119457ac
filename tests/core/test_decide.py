"""`decide` itself: slices and steps, purity, and a bug that is met in one place."""

from __future__ import annotations

from typing import get_args

import pytest

from controller.core import events
from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import (
    BrokerGone,
    Change,
    Committed,
    Refused,
    StateDecided,
    SubjectParked,
)
from controller.core.decide import dispatch as module
from controller.core.decide.dispatch import decide
from controller.core.decide.work import Work
from controller.core.events import BrokersSeen, CreateTopicAsked, TermStarted, TopicsSeen
from tests.builders import (
    LOADED,
    a_cluster,
    a_topic_fact,
    brokers,
    brokers_seen,
    settle,
    snapshot,
    steps_of,
)

MANY = {f"topic{number}": [[1, 2], [1, 3], [1, 2]] for number in range(20)}


def test_nothing_is_decided_before_it_is_asked_for() -> None:
    slices = decide(a_cluster(topics=MANY), brokers_seen(2, 3), 0, 0, changes_per_slice=4)
    assert next(slices).step == 0


@pytest.mark.parametrize("limit", [1, 2, 7, 5_000])
def test_a_slice_is_bounded_and_nothing_is_lost_by_slicing(limit: int) -> None:
    cluster = a_cluster(topics=MANY)
    slices = list(decide(cluster, brokers_seen(2, 3), 0, 0, changes_per_slice=limit))
    assert max(len(one.changes) for one in slices) <= limit
    assert [change for one in slices for change in one.changes] == steps_of(cluster, brokers_seen(2, 3))[0]
    assert sum(len(one.changes) for one in slices) == 1 + 60


def test_a_subject_larger_than_a_slice_is_cut_too() -> None:
    cluster = a_cluster(orders=[[1, 2]] * 10)
    slices = list(decide(cluster, brokers_seen(2, 3), 0, 0, changes_per_slice=4))
    assert [len(one.changes) for one in slices] == [4, 4, 3]


def test_the_slices_of_several_steps_say_which_step_they_belong_to() -> None:
    facts = [a_topic_fact(f"t{number}", [1], [2], zxid=LOADED + 1) for number in range(3)]
    slices = list(decide(a_cluster(), TopicsSeen(facts, LOADED + 1), 0, 0, changes_per_slice=3))
    assert [(one.step, len(one.changes)) for one in slices] == [(0, 1), (2, 2)] * 3


def test_a_decision_leaves_belief_untouched() -> None:
    cluster = a_cluster(topics=MANY)
    before = snapshot(cluster)
    for event in (
        brokers_seen(2, 4),
        CreateTopicAsked("orders", partitions=3, replication_factor=2),
        TopicsSeen([], LOADED + 1, frozenset()),
        TermStarted(brokers(2), LOADED),
    ):
        assert steps_of(cluster, event)
        assert snapshot(cluster) == before


def test_the_same_input_has_the_same_output() -> None:
    asked = CreateTopicAsked("orders", partitions=30, replication_factor=2)
    assert steps_of(a_cluster(), asked, seed=3) == steps_of(a_cluster(), asked, seed=3)
    assert steps_of(a_cluster(), asked, seed=3) != steps_of(a_cluster(), asked, seed=4)


def test_an_empty_cluster_has_nothing_to_decide() -> None:
    assert steps_of(a_cluster(live=()), BrokersSeen({}, LOADED)) == []


def broken(cluster: Cluster) -> Cluster:
    """One topic whose belief contradicts itself: an index names a partition that does not exist."""
    cluster.hosted[1]["topic7"].add(99)
    return cluster


def test_a_bug_in_one_subject_parks_it_whole_and_leaves_the_others_alone() -> None:
    cluster = broken(a_cluster(topics=MANY))
    [changes] = steps_of(cluster, brokers_seen(2, 3))
    parked = [change for change in changes if isinstance(change, SubjectParked)]
    assert [(one.subject, one.trouble) for one in parked] == [("topic topic7", "KeyError: 99")]
    assert {change.topic for change in changes if isinstance(change, StateDecided)} == set(MANY) - {"topic7"}
    assert any(isinstance(change, BrokerGone) for change in changes)


def test_a_parked_subject_is_reported_once_and_left_out_for_the_term() -> None:
    cluster = a_cluster(topics=MANY)
    cluster.apply([Committed(SubjectParked("topic topic7", "a bug"))])
    changes = settle(cluster, brokers_seen(2, 3)).changes
    assert not any(isinstance(change, SubjectParked) for change in changes)
    assert {change.topic for change in changes if isinstance(change, StateDecided)} == set(MANY) - {"topic7"}


@pytest.mark.parametrize(
    "bug", [AssertionError("a"), KeyError("b"), AttributeError("c"), ValueError("d"), TypeError("e")]
)
def test_a_bug_of_any_kind_is_parked(bug: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[tuple[int, Change]]:
        raise bug

    monkeypatch.setitem(module.HANDLERS, BrokersSeen, lambda _context, _event: iter([Work("broker 1", fail)]))
    [[parked, refused]] = steps_of(a_cluster(), brokers_seen(1))
    assert isinstance(refused, Refused)  # the answer to a caller
    assert isinstance(parked, SubjectParked)
    assert parked.trouble.startswith(type(bug).__name__)


def test_every_event_has_a_handler() -> None:
    assert set(get_args(events.Event)) == set(module.HANDLERS)
