"""Violations of the rules about calls (`checker/rules_client_calls.py`) and about unclean choices without a request:
calls of a good history that say something else, and calls without an answer.
"""

from __future__ import annotations

from typing import Any

from controller.core.events import (
    ConfigAsked,
    CreateTopicAsked,
    DeleteTopicAsked,
    DrainAsked,
    ElectAsked,
    Event,
    GrowTopicAsked,
    ReassignAsked,
)
from tests.faults.checker.history import Call, History
from tests.faults.violations import Violation, states_in, with_election

LONG_MS = 60_000
#: after everything
LATE_MS = 1 << 50


def granted(event: Event, *, begun_ms: int = LATE_MS, ended_ms: int = LATE_MS) -> Violation:
    """A client asked for it, and was told that it is done."""
    return lambda history: history.calls.append(Call("asked", "", begun_ms, ended_ms, "ok", event))


def with_call(what: str, **said: Any) -> Violation:
    """The first call of this kind says something else."""

    def violate(history: History) -> None:
        index = next(index for index, one in enumerate(history.calls) if one.what == what)
        history.calls[index] = history.calls[index]._replace(**said)

    return violate


def with_an_unclean_choice(
    *, cause: str | None = None, unclean: bool = True, earlier_ms: int = 0, outcome: Any = "ok", topic: str = "orders"
) -> Violation:
    """Broker 4 is elected, which no ISR had, as a client asks for it; `cause`, `unclean`: the content of the lines."""

    def violate(history: History) -> None:
        with_election(leader=4, isr=[4], leader_recovery_state=1)(history)
        commits = [history.commits[index] for index in states_in(history)]
        elected = next(c for c in commits if any(b'"leader": 4' in one.data for one in c.writes))
        asked = ElectAsked(is_unclean=True, partitions=[(topic, 0), (topic, 1)])
        begun_ms = elected.at_ms - 10 - earlier_ms
        history.calls.append(Call("elect-unclean", topic, begun_ms, begun_ms + 20, outcome, asked))
        if cause is not None:
            history.lines[:] = [
                {**one, "cause": cause, "unclean": unclean} if one["kind"] == "partition" else one
                for one in history.lines
            ]

    return violate


def with_a_value_gone_with_its_topic(history: History) -> None:
    """It was to be removed, that was refused as the topic was being deleted, and then topic and value went."""
    path = "/config/topics/doomed"
    for index, commit in enumerate(history.commits):
        for number, one in enumerate(commit.writes):
            if one.path == path and one.kind == "create":
                data = b'{"version":1,"config":{"cleanup.policy":"compact"}}'
                writes = (*commit.writes[:number], one._replace(data=data), *commit.writes[number + 1 :])
                history.commits[index] = commit._replace(writes=writes)
            elif one.path == path and one.kind == "delete":
                asked = ConfigAsked("topics", "doomed", {"cleanup.policy": None})
                history.calls.append(Call("configure", "doomed", commit.at_ms - 1, commit.at_ms + 1, "refused", asked))


AS_ASKED = "unclean_election"
BAD_CLIENT_CALLS: dict[str, Violation] = {
    "s14_unclean_choices_were_allowed": with_election(leader=4, isr=[4]),
    "s17_unclean_choices_are_logged_as_such": with_an_unclean_choice(cause="broker_gone", unclean=False),
    "s21_the_last_requested_assignment_stands": with_call("reassign", detail=ReassignAsked({("moving", 0): (1, 3)})),
    "s21_the_target_is_the_last_requested_assignment": with_call(
        "reassign", detail=ReassignAsked({("moving", 0): (3, 2)})
    ),
    "s30_granted_requests_were_carried_out": granted(CreateTopicAsked("never", 1, 1)),
    "s30_refused_requests_were_not_carried_out": with_call("create-topic", outcome="refused"),
}
MORE_CLIENT_CALLS: list[tuple[str, Violation]] = [
    ("s14_unclean_choices_were_allowed", with_an_unclean_choice()),  # asked for, and the line says otherwise
    ("s14_unclean_choices_were_allowed", with_an_unclean_choice(cause=AS_ASKED, outcome="refused")),
    ("s14_unclean_choices_were_allowed", with_an_unclean_choice(cause=AS_ASKED, earlier_ms=LONG_MS)),
    ("s14_unclean_choices_were_allowed", with_an_unclean_choice(cause=AS_ASKED, topic="moving")),
    ("s30_granted_requests_were_carried_out", granted(CreateTopicAsked("orders", 2, 3), begun_ms=0, ended_ms=1)),
    ("s30_granted_requests_were_carried_out", granted(DeleteTopicAsked("orders"))),
    ("s30_granted_requests_were_carried_out", granted(GrowTopicAsked("orders", 9))),
    ("s30_granted_requests_were_carried_out", granted(ConfigAsked("topics", "orders", {"cleanup.policy": "compact"}))),
    ("s30_granted_requests_were_carried_out", granted(DrainAsked(1))),
    ("s30_refused_requests_were_not_carried_out", with_call("delete-topic", outcome="refused")),
]
