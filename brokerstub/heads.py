"""What a controller's request says beside its body, and when it cannot be taken yet. Values only."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_EVENT_ID: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


class NotReadyError(Exception):
    """Not registered yet, or not as the incarnation the request is for: the same request may succeed soon."""


class Heads(msgspec.Struct, frozen=True):
    """The headers."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    event_id: str | None = None
    #: the number of the attempt among all of its sender's; 0 of who does not count
    sequence: int = 0

    @property
    def place(self) -> tuple[int, int, int] | None:
        """Where the request stands in the order of what controllers tell; None when it does not say."""
        match = _EVENT_ID.fullmatch(self.event_id or "")
        return None if match is None else (int(match[1]), int(match[2]), self.sequence)
