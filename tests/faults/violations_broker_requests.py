"""Violations of `checker/rules_broker_requests.py`: brokers' requests of a good history, answered otherwise."""

from __future__ import annotations

from tests.faults.checker.history import BrokerRequest, History
from tests.faults.violations import Violation, with_state
from tests.faults.violations_admin_requests import with_cause

SHUTDOWN = "controlled-shutdown"


def with_members_of_another_life(history: History) -> None:
    """Every ISR is granted to broker epochs that no broker has."""
    for index, one in enumerate(history.broker_requests):
        proposals = (proposal._replace(isr=tuple((who, 77) for who, _ in proposal.isr)) for proposal in one.proposals)
        history.broker_requests[index] = one._replace(proposals=tuple(proposals))


def with_leave_to_stop(history: History) -> None:
    """In the end, to each of them: one of them leads."""
    at_ms = history.commits[-1].at_ms + 1_000
    history.broker_requests.extend(BrokerRequest(at_ms, SHUTDOWN, broker_id, 0, 0) for broker_id in (1, 2, 3))


def with_nobody_asking(history: History) -> None:
    """ISRs change, and no leader has said a word."""
    history.broker_requests.clear()


BAD_BROKER_REQUESTS: dict[str, Violation] = {
    "s08_without_a_new_leader_epoch_isrs_change_as_leaders_asked": with_nobody_asking,
    "s16_the_incarnation_that_joins_an_isr_is_the_one_its_leader_saw": with_members_of_another_life,
    "s27_a_broker_that_may_stop_leads_no_partition_that_others_could": with_leave_to_stop,
}
MORE_BROKER_REQUESTS: list[tuple[str, Violation]] = [
    ("s08_without_a_new_leader_epoch_isrs_change_as_leaders_asked", with_cause("broker_gone")),
    # a leader's request is granted with a new leader epoch
    ("s08_without_a_new_leader_epoch_isrs_change_as_leaders_asked", with_state(-1, leader_epoch=2)),
]
