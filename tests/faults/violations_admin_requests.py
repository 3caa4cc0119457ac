"""Violations of `checker/rules_admin_requests.py`: lines of a good history, changed in one place."""

from __future__ import annotations

from tests.faults.checker.history import History
from tests.faults.violations import Violation, states_in, with_state


def with_cause(cause: str, **said: object) -> Violation:
    """The last state of `orders` says something else, and its line says why."""

    def violate(history: History) -> None:
        with_state(-1, **said)(history)
        commit = history.commits[states_in(history)[-1]]
        numbers = {int(one.path.split("/")[5]) for one in commit.writes if one.path.endswith("/state")}
        about = [
            index
            for index, line in enumerate(history.lines)
            if line["kind"] == "partition" and line.get("topic") == "orders" and line.get("partition") in numbers
        ]
        for index in about:
            history.lines[index] = {**history.lines[index], "cause": cause}

    return violate


BAD_ADMIN_REQUESTS: dict[str, Violation] = {
    "s26_preferred_elections_name_the_first_replica": with_cause("preferred_election", leader=-1),
    "s27_no_drain_takes_a_partition_offline": with_cause("drain", leader=-1),
}
