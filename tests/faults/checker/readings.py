"""The readings that sessions made of ZooKeeper, each by itself, and which reading followed which commit.

Only a simulation knows: there every answer passes a client of ours. It judges nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

#: a znode's content; its children; whether it exists; or only a watch, relative to an earlier reading
Kind = Literal["data", "list", "stat", "watch"]


class Reading(NamedTuple):
    """One answer that reached its asker, about some znodes. `zxid`: the server knew of no later commit as it answered;
    of a watch: it fires for later changes."""

    session: int
    kind: Kind
    paths: tuple[str, ...]
    zxid: int
    #: when its asker had it, unrounded
    at_ms: float
    #: whether a watch was armed with it
    is_watched: bool = False


class Heard(NamedTuple):
    """As of which commit, and when."""

    zxid: int
    at_ms: float


class Readings:
    """By session, kind and znode, in the order in which they were heard."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        self._of: dict[tuple[int, Kind, str], list[Heard]] = {}
        #: the znodes on which each session armed a watch
        self.watched: set[tuple[int, Kind, str]] = set()
        for one in readings:
            heard = Heard(one.zxid, one.at_ms)
            for path in one.paths:
                place = one.session, one.kind, path
                self._of.setdefault(place, []).append(heard)
                if one.is_watched:
                    self.watched.add(place)

    def since(self, session: int, kind: Kind, path: str, zxid: int) -> Sequence[Heard]:
        """Returns the readings of a session about a znode as of this commit or a later one."""
        heard = self._of.get((session, kind, path), [])
        return heard[bisect_left(heard, (zxid,)) :]
