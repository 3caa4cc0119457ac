"""States of partitions, counts and the verdict, without HTTP."""

from __future__ import annotations

import pytest

from controller.api.counts import (
    Counts,
    PartitionState,
    Summary,
    Verdict,
    has_state,
    live_ids_of,
    row_never_led,
    state_of,
    verdict_for,
)
from controller.api.problems import HTTP_STATUSES
from controller.core.codes import Code
from controller.core.model import Partition
from controller.wire.bodies import PartitionRow
from tests.api.api_support import a_broker, a_row

LIVE = frozenset({1, 2, 3})


@pytest.mark.parametrize(
    ("row", "worst", "all_true"),
    [
        (a_row(0, 1, [1, 2, 3], [1, 2, 3]), "online", {"online"}),
        (a_row(0, 1, [1, 2], [1, 2, 3]), "under-replicated", {"online", "under-replicated"}),
        (a_row(0, 2, [1, 2, 3], [1, 2, 3]), "not-preferred", {"online", "not-preferred"}),
        (a_row(0, 2, [2], [1, 2, 3]), "under-replicated", {"online", "under-replicated", "not-preferred"}),
        (a_row(0, -1, [2], [1, 2, 3]), "offline", {"offline"}),
        (row_never_led(0, Partition((1, 2, 3))), "new", {"new"}),
        (a_row(0, 4, [4], [4, 1]), "offline", {"offline"}),
        # replicas being added are not missed yet, neither as in sync nor as the preferred leader
        (a_row(0, 1, [1, 2], [3, 1, 2], adding=(3,), removing=(2,)), "online", {"online"}),
        (a_row(0, 1, [1, 2, 3], [3, 1, 2], adding=(3,), removing=(2,)), "not-preferred", {"online", "not-preferred"}),
    ],
)
def test_state_is_the_worst_that_is_true_and_filters_ask_for_any(
    row: PartitionRow, worst: str, all_true: set[str]
) -> None:
    assert state_of(row, LIVE) == worst
    assert {state.value for state in PartitionState if has_state(row, state, LIVE)} == all_true


def test_broker_0_can_lead() -> None:
    assert state_of(a_row(0, 0, [0], [0]), live_ids_of([a_broker(0)])) == "online"


def test_draining_brokers_still_serve_and_gone_ones_do_not() -> None:
    assert live_ids_of([a_broker(1), a_broker(2, "draining"), a_broker(3, "gone")]) == {1, 2}


def test_the_imbalance_counts_partitions_without_a_leader_and_a_first_replica_being_added_once_it_is_in_sync() -> None:
    summary = Summary()
    summary.take("a", [a_row(0, -1, [1], [1, 2]), a_row(1, 2, [1, 2], [1, 2]), a_row(2, 1, [1, 2], [1, 2])], {1, 2})
    assert summary.imbalanced == 2
    summary.take("b", [a_row(0, 2, [2, 3], [1, 2, 3], adding=(1,), removing=(3,))], {1, 2, 3})
    assert summary.imbalanced == 2
    summary.take("b", [a_row(1, 2, [2, 3, 1], [1, 2, 3], adding=(1,), removing=(3,))], {1, 2, 3})
    assert summary.imbalanced == 3
    summary.take("c", [row_never_led(0, Partition((1, 2)))], {1, 2})  # it had no candidate so far
    assert summary.imbalanced == 3
    assert (summary.counts.new, summary.counts.offline, summary.counts.partitions) == (1, 1, 6)


def test_a_summary_counts_leaders_only_where_they_serve() -> None:
    summary = Summary()
    summary.take("a", [a_row(0, 1, [1, 2], [1, 2])], {1, 2})
    summary.take("a", [a_row(1, 3, [3], [3, 1])], {1, 2})
    summary.take("b", [a_row(0, 2, [2], [1, 2])], {1, 2})
    assert summary.topics == 2
    assert summary.counts == Counts(partitions=3, online=2, offline=1, under_replicated=1, not_preferred=1)
    assert summary.leaders == {1: 1, 2: 1}
    assert summary.replicas == {1: 3, 2: 2, 3: 1}


@pytest.mark.parametrize(
    ("phase", "states", "counts", "verdict"),
    [
        ("active", ["live", "live"], Counts(2, 2), Verdict("green", [])),
        ("active", ["live", "draining"], Counts(2, 2, not_preferred=1), Verdict("green", [])),
        ("active", ["live", "live"], Counts(2, 1, new=1), Verdict("yellow", ["1 of 2 partitions is new: never led"])),
        ("active", ["live", "gone"], Counts(2, 2), Verdict("yellow", ["broker 2 is gone"])),
        ("active", ["gone", "gone"], Counts(), Verdict("yellow", ["brokers 1, 2 are gone"])),
        ("loading", ["live"], Counts(), Verdict("yellow", ["a new controller is taking over"])),
        ("active", [], Counts(), Verdict("red", ["this broker was not told of the cluster yet"])),
        ("active", ["live"], Counts(1, 0, 1), Verdict("red", ["1 of 1 partition is offline"])),
        (
            "active",
            ["live", "gone"],
            Counts(6, 4, 2, 4),
            Verdict(
                "red",
                ["2 of 6 partitions are offline", "4 of 6 partitions are under-replicated", "broker 2 is gone"],
            ),
        ),
    ],
)
def test_the_verdict_names_every_reason_worst_first(
    phase: str, states: list[str], counts: Counts, verdict: Verdict
) -> None:
    brokers = [a_broker(number, state) for number, state in enumerate(states, start=1)]
    assert verdict_for(phase, brokers, counts) == verdict


def test_every_code_has_an_http_status() -> None:
    assert set(HTTP_STATUSES) == set(Code)
    assert [code for code, status in HTTP_STATUSES.items() if status == 500] == [Code.UNKNOWN_SERVER_ERROR]
