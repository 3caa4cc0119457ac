"""Rules about what was asked for: elections, drains, reassignments, deletions. Of the whole run, as in `rules_told.py`.

Why a state was written, its line in the state-change log says; the rules here hold the two against each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from controller.core.requests import EPOCH_DURING_DELETE
from tests.faults.checker.history import History
from tests.faults.checker.known import Known, Written
from tests.faults.checker.rules_told import RunRule
from tests.faults.checker.rules_zookeeper import NO_LEADER
from tests.faults.checker.writers import Wrong

_PREFERRED: Final = ("preferred election asked", "leader imbalance")
_DRAIN: Final = re.compile(r"broker \d+ (drains|shuts down)")


def _recorded(history: History, known: Known) -> Iterator[tuple[Written, str]]:
    """States that a controller wrote, with the reason in its own line."""
    written = {(one.topic_id, one.key[1], one.state.version): one for one in known.written if one.by_controller}
    for line in history.lines:
        place: Any = (line.get("topic_id"), line.get("partition"), line.get("version"))
        if line["kind"] == "partition" and place in written:
            yield written[place], line.get("reason") or ""


def s22_no_replica_is_deleted_that_was_never_dropped(history: History, known: Known) -> Iterator[Wrong]:
    """One that is wanted again may be deleted first; one that has been assigned all the time must not."""
    for rpc in history.rpcs:
        for stop in rpc.stops:
            if not stop.is_delete or stop.leader_epoch == EPOCH_DURING_DELETE or rpc.sent_zxid is None:
                continue
            told = known.assigned.get((stop.topic_id, stop.partition), [])
            until_then = [replicas for zxid, replicas in told if zxid <= rpc.sent_zxid]
            if until_then and all(rpc.broker_id in replicas for replicas in until_then):
                yield None, f"broker {rpc.broker_id} was told to delete {stop}, which it was never taken from"


def s26_preferred_elections_name_the_first_replica(history: History, known: Known) -> Iterator[Wrong]:
    for one, reason in _recorded(history, known):
        if not reason.startswith(_PREFERRED) or one.before is None:
            continue
        leader = one.state.leader
        if leader == NO_LEADER or leader != one.replicas[0] or leader not in one.before.isr:
            yield one.key, f"{reason}: {leader} of {one.replicas} was named, with ISR {one.before.isr} before"


def s27_no_drain_takes_a_partition_offline(history: History, known: Known) -> Iterator[Wrong]:
    for one, reason in _recorded(history, known):
        if _DRAIN.match(reason) and one.state.leader == NO_LEADER:
            yield one.key, f"{reason}, and nobody leads it any more"


def s30_a_deletion_that_was_granted_is_written_down(history: History, known: Known) -> Iterator[Wrong]:
    for one in history.calls:
        if one.what == "delete-topic" and one.outcome == "ok" and one.subject in known.made - known.marked:
            yield (
                (one.subject, 0),
                f"deleting {one.subject} was answered with ok, and no marker was ever written",
            )


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
