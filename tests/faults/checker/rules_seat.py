"""Rules about the seat: how it is won and lost, and that no process writes without it. One commit at a time.

Each looks at one commit and the world as of after it, and yields violations as `(partition or None, text)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from controller.core.project.znodes import KLAMM
from tests.faults.checker.history import SLACK_MS, History
from tests.faults.checker.replay import Step, World
from tests.faults.checker.slow_faults import is_forbidden
from tests.faults.checker.writers import (
    EPOCH,
    SEAT,
    TERMS,
    Rule,
    Wrong,
    controller_writes,
    is_by_controller,
    is_by_process,
    is_direct,
    is_noted,
)

#: an operator's deletion falls within so long after it was noted
DELETED_WITHIN_MS: Final = 60_000


def s01_the_epoch_rises_by_one_with_each_claim(history: History, step: Step, world: World) -> Iterator[Wrong]:
    """By more only where the node had changed since the last claim: no claim draws an epoch twice, even when the node
    was changed or removed. A claim notes its epoch itself: it counts though both nodes are removed before its term
    writes."""
    before, after, claimed = step.epoch_before, step.epoch_after, step.claimed_before
    if step.is_claim and is_by_process(step, world):
        if after is None or after <= claimed:
            yield None, f"/controller was claimed with epoch {after}, and {claimed} was claimed before"
        elif claimed and before == claimed and after != claimed + 1:
            yield None, f"/controller_epoch went from {before} to {after}"
        elif not is_noted(step.commit, after) and not is_forbidden(history, (KLAMM, TERMS), step.commit.at_ms):
            yield None, f"/controller was claimed with epoch {after}, and {TERMS} was not told"
    elif before != after and is_by_process(step, world):
        is_put_right = step.seat_before == step.commit.session and step.seat_after is None and after == claimed
        if not is_put_right:
            yield None, f"/controller_epoch became {after} without a claim of /controller"
    elif before is not None and before != after and history.faults and not _is_by_operator(history, step, EPOCH):
        yield None, f"somebody made {after} of /controller_epoch {before}, and no fault says so"


def s03_s04_only_the_seats_holder_writes(history: History, step: Step, world: World) -> Iterator[Wrong]:
    """By the seat's own session: a deposed controller, S3, does not hold it any more."""
    written = controller_writes(step.commit)
    if not written or not is_by_process(step, world) or is_by_controller(step) or is_direct(history, step, world):
        return
    who = world.sessions[step.commit.session]
    key = step.states[0].key if step.states else None
    yield key, f"broker {who} wrote {written[0].path} while /controller was {_owner(step.seat_before, world)}"


def s03_every_write_of_a_controller_is_fenced(history: History, step: Step, world: World) -> Iterator[Wrong]:
    """The transaction itself checks the epoch's version and the seat: a race cannot slip through."""
    written = controller_writes(step.commit)
    if not written or not is_by_process(step, world) or is_direct(history, step, world):
        return
    writes = step.commit.writes
    checked = {one.path for one in writes if one.kind == "check" or (one.kind, one.path) == ("delete", SEAT)}
    if missing := {SEAT, EPOCH} - checked:
        yield None, f"{written[0].path} was written without a check of {' and '.join(sorted(missing))}"


def s04_only_its_owner_vacates_the_seat(history: History, step: Step, world: World) -> Iterator[Wrong]:
    """Or an operator, if the timeline of faults names one; or a claim, which takes the seat over."""
    is_vacated = any((one.kind, one.path) == ("delete", SEAT) for one in step.commit.writes)
    if not is_vacated or step.is_claim or is_by_controller(step):
        return
    if is_by_process(step, world):
        who = world.sessions[step.commit.session]
        yield None, f"broker {who} deleted /controller while it was {_owner(step.seat_before, world)}"
    elif history.faults and not _is_by_operator(history, step, SEAT):
        yield None, f"somebody deleted /controller while it was {_owner(step.seat_before, world)}, and no fault says so"


def _is_by_operator(history: History, step: Step, path: str) -> bool:
    kinds = (f"delete {path}", f"spoil {path}", "remove everything")
    since_ms = [step.commit.at_ms - one.at_ms for one in history.faults if one.kind in kinds]
    return any(-SLACK_MS <= one <= DELETED_WITHIN_MS for one in since_ms)


def _owner(session: int | None, world: World) -> str:
    return "vacant" if session is None else f"held by broker {world.sessions.get(session, '?')}"


RULES: Final[tuple[Rule, ...]] = tuple(value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name))
