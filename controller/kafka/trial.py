"""Validating without doing (`validate_only`): decided as it would be, by the same code, and thrown away."""

from __future__ import annotations

import time

from controller.api.view import ControllerDoor
from controller.core.changes import Refused
from controller.core.codes import Code
from controller.core.decide import decide
from controller.core.events import Event
from controller.inbox import Reply


def tried(door: ControllerDoor, event: Event) -> Reply:
    """What a request would be answered now. Nothing is written, told or kept."""
    cluster = door.cluster
    if cluster is None:
        return Reply(Code.NOT_CONTROLLER, "this is not the active controller")
    pieces = list(decide(cluster, event, time.time_ns() // 1_000_000, 0))
    refusals = (change for piece in pieces for change in piece.changes if isinstance(change, Refused))
    refusal = next(refusals, None)
    return Reply(Code.NONE, "") if refusal is None else Reply(refusal.code, refusal.detail)
