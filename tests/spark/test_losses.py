"""Brokers that went without a line that says so: those that the next controller missed, and how the last one ended."""

from __future__ import annotations

import pytest

from tests.spark.written import Log, shown


def a_takeover(*met: int) -> Log:
    """Of broker 2 from broker 1, whose last line was long ago; 3 lived under it, too."""
    log = Log()
    log.say(0, "controller_elected", controller_epoch=1)
    log.say(1_000, "brokers_changed", added=(3,), replicas=(1, 2, 3))
    log.say(30_000, "controller_elected", broker=2, controller_epoch=2)
    if met:
        log.say(30_010, "brokers_met", broker=2, replicas=met)
    log.say(30_100, "controller_ready", broker=2, controller_epoch=2)
    return log


@pytest.mark.parametrize(
    ("met", "lost"),
    [
        ((), [(1, True)]),  # no line about it: a broker that lost the seat silently is taken for lost
        ((2, 3), [(1, True)]),
        ((1, 2, 3), []),  # the seat was taken from it
        ((1, 2), [(3, False)]),
        ((2,), [(1, True), (3, False)]),
    ],
)
def test_whom_a_new_controller_meets_has_not_gone(met: tuple[int, ...], lost: list[tuple[int, bool]]) -> None:
    assert shown(a_takeover(*met).answers()["failovers"], "broker", "was_controller") == lost


def test_a_terms_end_is_the_first_reason_that_its_holder_logged() -> None:
    """A session that expires later is no controller's any more."""
    log = a_takeover(1, 2, 3)
    log.say(29_990, "controller_resigned")
    log.say(50_000, "session_expired")
    assert [row[1] for row in shown(log.answers()["controller_tenures"], "broker", "why_ended")] == ["deposed", None]


def test_a_broker_that_resigned_speaks_for_no_controller() -> None:
    log = a_takeover(1, 2, 3)
    log.say(31_000, "request_sent", controller_epoch=0)
    assert shown(log.answers()["controller_tenures"], "controller_epoch", "broker") == [(1, 1), (2, 2)]
