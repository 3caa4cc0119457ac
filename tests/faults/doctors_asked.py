"""What breaks the rules of `checker/rules_asked.py`: lines, stops and calls of a good history, changed in one place."""

from __future__ import annotations

from tests.faults.checker.history import History, Stop
from tests.faults.checker.replay import topic_of
from tests.faults.doctors import Doctor, is_about_rows, states_in, with_state


def with_reason(reason: str, **said: object) -> Doctor:
    """The last state of `orders` says something else, and its line says why."""

    def doctor(history: History) -> None:
        with_state(-1, **said)(history)
        commit = history.commits[states_in(history)[-1]]
        numbers = {int(one.path.split("/")[5]) for one in commit.writes if one.path.endswith("/state")}
        about = [
            index
            for index, line in enumerate(history.lines)
            if line["kind"] == "partition" and line.get("topic") == "orders" and line.get("partition") in numbers
        ]
        for index in about:
            history.lines[index] = {**history.lines[index], "reason": reason}

    return doctor


def with_a_replica_deleted(history: History) -> None:
    """A broker is told to delete what it was always to have."""
    made = next(w for c in history.commits for w in c.writes if w.path == "/brokers/topics/orders")
    topic = topic_of(made.data, 0)
    assert topic is not None
    index = max(index for index, one in enumerate(history.rpcs) if is_about_rows(one))
    stop = Stop(topic.topic_id or "", 0, 1, is_delete=True)
    history.rpcs[index] = history.rpcs[index]._replace(stops=(stop,))


BAD_ASKED: dict[str, Doctor] = {
    "s22_no_replica_is_deleted_that_was_never_dropped": with_a_replica_deleted,
    "s26_preferred_elections_name_the_first_replica": with_reason("preferred election asked", leader=-1),
    "s27_no_drain_takes_a_partition_offline": with_reason("broker 1 drains", leader=-1),
}
