"""Violations of `checker/rules_end.py`: the end of a good history, and its faults, said otherwise."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tests.faults.checker.history import Call, Fault, History, Lag, Write
from tests.faults.hostile import HIDE
from tests.faults.violations import Violation, added
from tests.faults.violations_client_calls import with_call
from tests.faults.violations_seat import by_tool

LONG_AFTER_MS = 1 << 60


def with_end(**said: Any) -> Violation:
    def violate(history: History) -> None:
        assert history.end is not None
        history.end = msgspec.structs.replace(history.end, **said)

    return violate


def with_faults(**said: Any) -> Violation:
    """They fell otherwise than they did."""

    def violate(history: History) -> None:
        history.faults[:] = [one._replace(**said) for one in history.faults]

    return violate


def with_the_first_term_going_on(history: History) -> None:
    history.ended_ms = {1: LONG_AFTER_MS}


def with_the_first_term_telling(history: History) -> None:
    """Its requests left long after it was over."""
    history.rpcs[:] = [one._replace(sent_ms=LONG_AFTER_MS) if one.controller_epoch == 1 else one
                       for one in history.rpcs]  # fmt: skip


def with_a_refusal(history: History) -> None:
    """The last word to each broker was refused."""
    refused = [
        one._replace(refused=frozenset((row.topic_id, row.partition) for row in one.rows or ()))
        for one in history.heard
    ]
    history.heard = refused


def with_a_harmed_epoch(history: History) -> None:
    """A tool writes it anew, and the last controller goes on for long."""
    by_tool(Write("set", "/controller_epoch", b"7"))(history)
    history.faults.append(Fault(history.commits[-1].at_ms, "spoil /controller_epoch"))
    with_end(at_ms=history.commits[-1].at_ms + 60_000)(history)


def with_a_dead_leader_left(history: History) -> None:
    """The first controller's broker still leads its partitions, and does not come back. A tool harmed another topic."""
    history.faults.append(Fault(history.commits[0].at_ms, HIDE, "/brokers/topics/nowhere"))
    seat = next(one for commit in history.commits for one in commit.writes if one.path == "/controller")
    victim = json.loads(seat.data)["brokerid"]
    path, is_dead = f"/brokers/ids/{victim}", False
    commits = list(history.commits)
    history.commits.clear()
    for commit in commits:
        is_dead = is_dead or any((one.kind, one.path) == ("delete", path) for one in commit.writes)
        writes = commit.writes if not is_dead else tuple(_led_by(victim, one) for one in commit.writes)
        kept = tuple(one for one in writes if not is_dead or (one.kind, one.path) != ("create", path))
        if kept:
            history.commits.append(commit._replace(writes=kept))


def _led_by(broker_id: int, write: Write) -> Write:
    if not write.path.endswith("/state") or write.kind != "set":
        return write
    return write._replace(data=json.dumps({**json.loads(write.data), "leader": broker_id}).encode())


BAD_END: dict[str, Violation] = {
    "l01_at_rest_a_controller_carries_out_requests": with_call("probe", outcome="unknown"),
    "l11_nothing_waits_long_in_the_inbox": with_end(lags=[Lag(0, 1, 1, waited_ms=20, what="inbox")]),
    "l11_the_end_of_a_term_waits_for_nothing": with_the_first_term_going_on,
    "l11_a_term_whose_epoch_is_gone_ends": with_a_harmed_epoch,
    "l12_no_loop_stands_still": with_end(lags=[Lag(0, 1, 1, was_held=False, waited_ms=20)]),
    "l13_every_call_is_answered": lambda history: history.calls.append(Call("elect", "all", 0, None, None)),
    "l14_it_converges": with_end(converged_after_ms=None),
    "l14_no_broker_refuses_a_standing_state": with_a_refusal,
    "l06_l08_no_intent_is_left": added(Write("create", "/admin/delete_topics/orders")),
    "l15_the_seat_moves_only_for_a_reason": lambda history: history.faults.clear(),
    "s33_a_dead_brokers_partitions_are_led_by_others": with_a_dead_leader_left,
    "no_process_met_a_bug": lambda history: history.bugs.append("term.failed"),
}
MORE_END: list[tuple[str, Violation]] = [
    ("l11_the_end_of_a_term_waits_for_nothing", with_the_first_term_telling),
    ("l14_it_converges", with_end(views={1: {}})),
    ("l15_the_seat_moves_only_for_a_reason", with_faults(broker_id=77)),
    ("l15_the_seat_moves_only_for_a_reason", with_faults(at_ms=0)),
    ("l15_the_seat_moves_only_for_a_reason", with_faults(can_move_seat=False)),
    ("l14_it_converges", with_end(active_ids=[1, 2])),
    ("l06_l08_no_intent_is_left", with_end(strays={1: ["old-0"]})),
]
