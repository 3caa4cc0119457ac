"""What breaks the rules of `checker/rules_seat.py`: writes of a process that was deposed, added to a good history."""

from __future__ import annotations

import json

from tests.faults.checker.history import Fault, History, Write
from tests.faults.doctors import Doctor, added, with_epochs_skipped, with_the_first_controllers_write, without_checks

REASSIGN = "/admin/reassign_partitions"
DEPOSED, TOOL = 0, 4711


def by_tool(write: Write) -> Doctor:
    """By a session that never registered and never held the seat."""

    def doctor(history: History) -> None:
        added(write)(history)
        history.commits[-1] = history.commits[-1]._replace(session=TOOL)

    return doctor


def with_a_request_node_deleted(history: History) -> None:
    by_tool(Write("create", REASSIGN, b"{}"))(history)
    added(Write("delete", REASSIGN), session=DEPOSED)(history)


def with_a_topic_beside_direct_leaders(history: History) -> None:
    """Where leaders write their ISRs themselves, a deposed process still writes nothing else."""
    history.has_direct_leaders = True
    data = json.dumps({"version": 3, "topic_id": "new", "partitions": {"0": [1]}}).encode()
    added(Write("create", "/brokers/topics/new", data), session=DEPOSED)(history)


def with_a_foreign_isr_beside_direct_leaders(history: History) -> None:
    """It is the leader that writes it, and nobody else."""
    history.has_direct_leaders = True
    with_the_first_controllers_write(history)


def with_an_operator(history: History) -> None:
    """Who deletes `/controller`, and is known to have done so."""
    by_tool(Write("delete", "/controller"))(history)
    history.faults.append(Fault(history.commits[-1].at_ms, "delete /controller", can_move_seat=True))


BAD_SEAT: dict[str, Doctor] = {
    "s01_the_epoch_rises_by_one_with_each_claim": with_epochs_skipped,
    "s03_s04_only_who_holds_the_seat_writes": with_the_first_controllers_write,
    "s03_every_write_of_a_controller_is_fenced": without_checks,
    "s04_only_its_owner_vacates_the_seat": added(Write("delete", "/controller"), session=DEPOSED),
}
MORE_SEAT: list[tuple[str, Doctor]] = [
    ("s03_s04_only_who_holds_the_seat_writes", with_a_request_node_deleted),
    ("s03_s04_only_who_holds_the_seat_writes", with_a_topic_beside_direct_leaders),
    ("s03_s04_only_who_holds_the_seat_writes", with_a_foreign_isr_beside_direct_leaders),
    ("s04_only_its_owner_vacates_the_seat", by_tool(Write("delete", "/controller"))),
]
