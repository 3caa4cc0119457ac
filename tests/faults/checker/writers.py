"""The writer of a commit, and the writes that only the seat's holder may make. It judges nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from tests.faults.checker.history import Commit, History, Write
from tests.faults.checker.replay import Key, Step, World

Wrong = tuple[Key | None, str]
Rule = Callable[[History, Step, World], Iterator[Wrong]]

SEAT, EPOCH, TERMS = "/controller", "/controller_epoch", "/klamm/terms"
REQUEST_NODES: Final = ("/admin/reassign_partitions", "/admin/preferred_replica_election")
#: writes of a process of ours without the seat: its registration, and the ids that are drawn
_OWN: Final = re.compile(r"/brokers/ids/[0-9]+|/brokers/seqid")
#: and nodes that it only makes: those of every cluster, and announcements
_OWN_MADE: Final = re.compile(
    r"/cluster/id|/(isr_change_notification|log_dir_event_notification)/.*|/[a-z_]+|/(brokers|config|admin)/[a-z_]+"
)
#: writes of a claim beside the seat and the epoch: it notes its own, and drops old ones
_NOTE: Final = re.compile(rf"{TERMS}(/[0-9]+)?")


def is_own(one: Write) -> bool:
    """Whether any process may write this. The epoch and the seat have rules of their own."""
    if one.path in (SEAT, EPOCH) or _OWN.fullmatch(one.path):
        return True
    return one.kind == "create" and one.path not in REQUEST_NODES and _OWN_MADE.fullmatch(one.path) is not None


def controller_writes(commit: Commit) -> list[Write]:
    """Returns the writes that only controllers may make."""
    written = [one for one in commit.writes if one.kind != "check" and not is_own(one)]
    if any((one.kind, one.path) == ("create", SEAT) for one in commit.writes):
        return [one for one in written if one.kind == "set" or not _NOTE.fullmatch(one.path)]
    return written


def is_noted(commit: Commit, epoch: int) -> bool:
    """Whether a claim says itself which epoch it has drawn, beside the node that keeps the newest."""
    return any((one.kind, one.path) == ("create", f"{TERMS}/{epoch}") for one in commit.writes)


def is_by_process(step: Step, world: World) -> bool:
    """By a broker process of ours, not by a tool."""
    return step.commit.session in world.sessions


def is_by_controller(step: Step) -> bool:
    return step.seat_before is not None and step.seat_before == step.commit.session


def is_direct(history: History, step: Step, world: World) -> bool:
    """A leader of an older protocol level writes its ISR itself, and nothing else: leader and leader epoch stay."""
    changes = sum(one.kind != "check" for one in step.commit.writes)
    if not history.has_direct_leaders or not step.states or changes != len(step.states):
        return False
    writer = world.sessions.get(step.commit.session)
    return all(
        one.before and one.after and one.before[:2] == one.after[:2] and one.after.leader == writer
        for one in step.states
    )
