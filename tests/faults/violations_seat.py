"""Violations of `checker/rules_seat.py`: writes of a process that was deposed, added to a good history."""

from __future__ import annotations

import json

from tests.faults.checker.history import Fault, History, Write
from tests.faults.violations import (
    Violation,
    added,
    with_epochs_skipped,
    with_the_first_controllers_write,
    without_checks,
)

REASSIGN = "/admin/reassign_partitions"
DEPOSED, TOOL = 0, 4711


def by_tool(write: Write) -> Violation:
    """By a session that never registered and never held the seat."""

    def violate(history: History) -> None:
        added(write)(history)
        history.commits[-1] = history.commits[-1]._replace(session=TOOL)

    return violate


def with_a_request_node_deleted(history: History) -> None:
    by_tool(Write("create", REASSIGN, b"{}"))(history)
    added(Write("delete", REASSIGN), session=DEPOSED)(history)


def with_a_topic_beside_direct_leaders(history: History) -> None:
    """Where leaders write their ISRs themselves, a deposed process still writes nothing else."""
    history.has_direct_leaders = True
    data = json.dumps({"version": 3, "topic_id": "new", "partitions": {"0": [1]}}).encode()
    added(Write("create", "/brokers/topics/new", data), session=DEPOSED)(history)


def with_a_foreign_isr_beside_direct_leaders(history: History) -> None:
    """The leader writes it, and no other."""
    history.has_direct_leaders = True
    with_the_first_controllers_write(history)


def with_an_operator(history: History) -> None:
    """An operator deletes `/controller`, and is known to have done so."""
    by_tool(Write("delete", "/controller"))(history)
    history.faults.append(Fault(history.commits[-1].at_ms, "delete /controller", can_move_seat=True))


def with_an_epoch_claimed_again(history: History) -> None:
    """A tool deletes the node that keeps it, and the last controller claims from 1 on."""
    for path in ("/controller_epoch", "/controller"):
        by_tool(Write("delete", path))(history)
    seat = Write("create", "/controller", b'{"version":2,"brokerid":1}', 0, is_ephemeral=True)
    last = history.commits[-1]
    writes = (seat, Write("create", "/controller_epoch", b"1", 0))
    history.commits.append(last._replace(zxid=last.zxid + 1, session=history.commits[0].session, writes=writes))


def with_claims_that_are_not_noted(history: History) -> None:
    """Another session does it, in the commit before."""
    for number, commit in enumerate(history.commits):
        if any((one.kind, one.path) == ("create", "/controller") for one in commit.writes):
            notes = tuple(one for one in commit.writes if one.path.startswith("/klamm/terms"))
            kept = tuple(one for one in commit.writes if one not in notes)
            history.commits[number] = commit._replace(writes=kept)
            before = history.commits[number - 1]
            history.commits[number - 1] = before._replace(writes=(*before.writes, *notes))


def with_an_epoch_that_somebody_set(history: History) -> None:
    """And the timeline of faults, with the author of each, knows nothing of it."""
    history.faults.append(Fault(history.commits[0].at_ms, "heal"))
    by_tool(Write("set", "/controller_epoch", b"9"))(history)


BAD_SEAT: dict[str, Violation] = {
    "s01_the_epoch_rises_by_one_with_each_claim": with_epochs_skipped,
    "s03_s04_only_the_seats_holder_writes": with_the_first_controllers_write,
    "s03_every_write_of_a_controller_is_fenced": without_checks,
    "s04_only_its_owner_vacates_the_seat": added(Write("delete", "/controller"), session=DEPOSED),
}
MORE_SEAT: list[tuple[str, Violation]] = [
    ("s01_the_epoch_rises_by_one_with_each_claim", with_an_epoch_claimed_again),
    ("s01_the_epoch_rises_by_one_with_each_claim", with_an_epoch_that_somebody_set),
    ("s01_the_epoch_rises_by_one_with_each_claim", with_claims_that_are_not_noted),
    ("s01_the_epoch_rises_by_one_with_each_claim", added(Write("set", "/controller_epoch", b"9"), session=DEPOSED)),
    ("s03_s04_only_the_seats_holder_writes", with_a_request_node_deleted),
    ("s03_s04_only_the_seats_holder_writes", with_a_topic_beside_direct_leaders),
    ("s03_s04_only_the_seats_holder_writes", with_a_foreign_isr_beside_direct_leaders),
    ("s04_only_its_owner_vacates_the_seat", by_tool(Write("delete", "/controller"))),
]
