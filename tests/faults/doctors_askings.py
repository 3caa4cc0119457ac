"""What breaks the rules of `checker/rules_askings.py`: what brokers asked for in a good history, answered otherwise."""

from __future__ import annotations

from tests.faults.checker.history import Asking, History
from tests.faults.doctors import Doctor

SHUTDOWN = "controlled-shutdown"


def with_members_of_another_life(history: History) -> None:
    """Every ISR is granted to broker epochs that nobody has."""
    for index, one in enumerate(history.askings):
        wishes = (wish._replace(isr=tuple((who, 77) for who, _ in wish.isr)) for wish in one.wishes)
        history.askings[index] = one._replace(wishes=tuple(wishes))


def with_leave_to_stop(history: History) -> None:
    """In the end, to each of them: somebody leads."""
    at_ms = history.commits[-1].at_ms + 1_000
    history.askings.extend(Asking(at_ms, SHUTDOWN, broker_id, 0, 0) for broker_id in (1, 2, 3))


BAD_ASKINGS: dict[str, Doctor] = {
    "s16_who_joins_an_isr_is_who_its_leader_saw": with_members_of_another_life,
    "s27_who_may_stop_leads_nothing_that_others_could": with_leave_to_stop,
}
