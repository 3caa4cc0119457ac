"""A process dies at every await of the shell that an operation passes, each time it does; nothing is lost by it."""

from __future__ import annotations

import pytest

from tests.faults.crash.awaits import Await, awaits
from tests.faults.crash.deaths import OPERATIONS, Place, die

#: the holder of the seat as it begins, or any of the others
VICTIMS = ("controller", "other")
#: where a death would hurt most, by module and function: each of them is among those died at
FEARED = {
    ("controller/seat/claim.py", "_claim"),
    ("controller/term/daemon.py", "_race"),
    ("controller/loop/reader.py", "load"),
    ("controller/term/term.py", "_lead"),
    ("controller/loop/loop.py", "_decide"),
    ("controller/loop/store.py", "_send"),
    ("controller/tell/outbox.py", "_work_on"),
    ("controller/tell/dialects/http.py", "send"),
    ("controller/loop/inbox.py", "take"),
    ("brokerstub/broker.py", "on_leader_and_isr"),
    ("brokerstub/registration.py", "_try_to_register"),
    ("brokerstub/fetch.py", "_fetch"),
    ("brokerstub/alter_partition.py", "_ask"),
}


def test_all_awaits_of_the_shell_are_numbered_in_their_order() -> None:
    numbered = awaits()
    assert [one.number for one in numbered] == list(range(1, len(numbered) + 1))
    assert {"controller/loop/store.py", "controller/seat/claim.py", "brokerstub/runtime.py"} <= {
        one.file for one in numbered
    }
    assert not any(one.file.startswith(("controller/api/", "controller/core/")) for one in numbered)


@pytest.mark.long
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_after_a_death_at_any_point_the_others_finish_the_work(name: str, victim: str) -> None:
    alive = die(name, None, victim=victim)
    assert alive.wrong == []
    places = [Place(at, time) for at, times in alive.passed.items() for time in range(1, times + 1)]
    assert len(places) >= 10, "hardly anything was passed"
    for place in places:
        death = die(name, place, victim=victim)
        assert death.has_died, f"nobody died at {place}"
        assert death.wrong == [], "\n".join([f"died at {place}", *death.wrong])


def test_the_awaits_that_matter_are_among_those_died_at() -> None:
    passed: set[Await] = set()
    for name in OPERATIONS:
        for victim in VICTIMS:
            passed |= die(name, None, victim=victim).within
    assert {(one.file, one.function) for one in passed} >= FEARED
