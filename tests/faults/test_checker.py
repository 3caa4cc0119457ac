"""The checker bites: for every rule, a good history made bad in one place is found, and the good one is not."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.faults.checker.history import Fault, HistoryError, Lag
from tests.faults.checker.verdict import RUN_RULES, STEP_RULES, judge, report
from tests.faults.doctors import BAD, MORE, Doctor, a_good_history, states_in, with_state, without
from tests.faults.doctors_asked import BAD_ASKED
from tests.faults.doctors_askings import BAD_ASKINGS, MORE_ASKINGS
from tests.faults.doctors_calls import (
    AS_ASKED,
    BAD_CALLS,
    MORE_CALLS,
    with_a_value_gone_with_its_topic,
    with_an_unclean_choice,
)
from tests.faults.doctors_end import BAD_END, MORE_END, with_end
from tests.faults.doctors_read import BAD_READ, HARMLESS, MORE_READ
from tests.faults.doctors_seat import BAD_SEAT, MORE_SEAT, with_an_operator
from tests.faults.doctors_told import BAD_TOLD, MORE_TOLD

DOCTORS = (BAD, BAD_TOLD, BAD_SEAT, BAD_ASKED, BAD_ASKINGS, BAD_CALLS, BAD_END, BAD_READ)
MANY_MORE = (MORE, MORE_TOLD, MORE_SEAT, MORE_ASKINGS, MORE_CALLS, MORE_END, MORE_READ)
CASES = [*chain(*(one.items() for one in DOCTORS)), *chain(*MANY_MORE)]


def test_a_run_without_harm_is_not_found_fault_with() -> None:
    assert judge(a_good_history()) == []


@pytest.mark.parametrize(("rule", "doctor"), CASES)
def test_every_rule_finds_what_breaks_it(rule: str, doctor: Doctor) -> None:
    history = a_good_history()
    doctor(history)
    assert rule in {one.rule for one in judge(history)}


def test_every_rule_was_seen_to_bite() -> None:
    rules = {one.__name__ for one in (*STEP_RULES, *RUN_RULES)}
    assert rules == {rule for rule, _ in CASES}


def test_an_operator_may_delete_the_seat() -> None:
    history = a_good_history()
    with_an_operator(history)
    assert "s04_only_its_owner_vacates_the_seat" not in {one.rule for one in judge(history)}


def test_an_unclean_choice_may_be_made_where_it_is_asked_for() -> None:
    history = a_good_history()
    with_an_unclean_choice(reason=AS_ASKED)(history)
    assert {one.rule for one in judge(history)}.isdisjoint(
        {"s14_unclean_choices_were_allowed", "s17_unclean_choices_are_logged_as_such"}
    )


def test_a_value_may_go_with_its_topic_though_its_removal_was_refused() -> None:
    history = a_good_history()
    with_a_value_gone_with_its_topic(history)
    assert len(history.calls) > len(a_good_history().calls)
    assert judge(history) == []


def test_who_was_held_up_may_be_late() -> None:
    history = a_good_history()
    end_ms = history.commits[-1].at_ms
    late = Lag(end_ms, 1, 1, what="inbox", since_ms=end_ms - 1_500)
    with_end(lags=[late, late._replace(broker_id=2)])(history)
    history.faults.append(Fault(end_ms - 1_400, "freeze", broker_id=1))
    assert [one.text.partition(":")[0] for one in judge(history)] == ["broker 2"]


@pytest.mark.parametrize("doctor", HARMLESS)
def test_what_makes_no_sense_announces_nothing(doctor: Doctor) -> None:
    history = a_good_history()
    doctor(history)
    assert not any(one.rule.startswith("s31") for one in judge(history))


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
        lambda history: history.commits.__delitem__(slice(states_in(history)[-1], None)),
        lambda history: history.rpcs.clear(),
        lambda history: history.rpcs.__setitem__(
            slice(None), [one for one in history.rpcs if one.controller_epoch == 1]
        ),
    ],
    ids=[
        "nothing",
        "reversed",
        "doubled",
        "a creation missing",
        "a version missing",
        "the beginning missing",
        "the end missing",
        "no requests",
        "no requests of a term",
    ],
)
def test_what_is_truncated_or_unordered_is_refused(doctor: Doctor) -> None:
    history = a_good_history()
    doctor(history)
    with pytest.raises(HistoryError):
        judge(history)
