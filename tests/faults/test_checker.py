"""The checker bites: for every rule, a good history made bad in one place is found, and the good one is not."""

from __future__ import annotations

import pytest

from tests.faults.checker import rules_asked, rules_told, rules_zookeeper
from tests.faults.checker.history import HistoryError
from tests.faults.checker.verdict import judge, report
from tests.faults.doctors import BAD, MORE, Doctor, a_good_history, states_in, with_state, without
from tests.faults.doctors_asked import BAD_ASKED


def test_a_run_without_harm_is_not_found_fault_with() -> None:
    assert judge(a_good_history()) == []


@pytest.mark.parametrize(("rule", "doctor"), [*BAD.items(), *BAD_ASKED.items(), *MORE])
def test_every_rule_finds_what_breaks_it(rule: str, doctor: Doctor) -> None:
    history = a_good_history()
    doctor(history)
    assert rule in {one.rule for one in judge(history)}


def test_every_rule_was_seen_to_bite() -> None:
    rules = {one.__name__ for one in (*rules_zookeeper.RULES, *rules_told.RULES, *rules_asked.RULES)}
    assert rules == {*BAD, *BAD_ASKED}


def test_a_finding_tells_the_story_of_its_partition() -> None:
    history = a_good_history()
    with_state(-1, leader=9)(history)
    said = "\n".join(report(history, judge(history)))
    assert "s11_the_leader_is_in_the_isr orders-" in said
    assert "epoch 2 claimed" in said
    assert "fault: kill" in said
    assert "answered 0 to leader-and-isr of epoch 2" in said


@pytest.mark.parametrize(
    "doctor",
    [
        lambda history: history.commits.clear(),
        lambda history: history.commits.reverse(),
        lambda history: history.commits.append(history.commits[-1]),
        lambda history: without(states_in(history)[0])(history),
        lambda history: without(next(i for i in states_in(history) if history.commits[i].writes[-1].kind == "set"))(
            history
        ),
        without(0),
    ],
    ids=["nothing", "reversed", "doubled", "a creation missing", "a version missing", "the beginning missing"],
)
def test_what_is_truncated_or_unordered_is_refused(doctor: Doctor) -> None:
    history = a_good_history()
    doctor(history)
    with pytest.raises(HistoryError):
        judge(history)
