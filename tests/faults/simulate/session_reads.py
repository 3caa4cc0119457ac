"""Records the reads of all sessions of a simulation, and when each session sent its writes. Every client enters its
own.

An answer is entered when its client has received it. A lost answer was not read, nor one whose client is gone. There is
one line for each request, not for each znode. The ledger judges nothing, and neither the network nor the trace depends
on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.fakes.zookeeper import EPOCH_MS
from tests.faults.checker.readings import Kind, Reading

_KINDS: Final[dict[str, Kind]] = {
    "get": "data",
    "get_many": "data",
    "brief_many": "data",
    "exists": "stat",
    "children": "list",
    "children_many": "list",
    "watch_many": "watch",
}


class Look(NamedTuple):
    """A znode that a request asks about, and whether it arms a watch there."""

    path: str
    is_watched: bool


class Ledger:
    """Moments are ZooKeeper's, as everywhere in a history, but not rounded. Rounded moments would hide whether an
    answer came before a request."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        #: zxid -> when its request left
        self.sent_ms: dict[int, float] = {}

    def heard(self, session: int, name: str, looks: Sequence[Look], zxid: int, at_s: float) -> None:
        """An answer arrived. Requests that look at nothing are not entered."""
        if looks and (kind := _KINDS.get(name)) is not None:
            paths = tuple(one.path for one in looks)
            self.readings.append(Reading(session, kind, paths, zxid, _ms(at_s), looks[0].is_watched))

    def sent(self, zxid: int, at_s: float) -> None:
        self.sent_ms[zxid] = _ms(at_s)


def _ms(at_s: float) -> float:
    return EPOCH_MS + at_s * 1_000
