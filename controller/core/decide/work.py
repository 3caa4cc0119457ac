"""How handlers hand their decisions to `decide`: as pieces of work, one subject each.

A handler never loops over subjects itself: it yields one `Work` per subject, and `decide` runs them, so that a bug in
one is met in one place and leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Change

#: one thing decided: the step it belongs to, and the change
Decided = tuple[int, Change]


class Context(msgspec.Struct, frozen=True):
    """Given to every handler besides its event: belief, the time, and entropy drawn from a seed."""

    cluster: Cluster
    #: by the term's clock, which no fault moves: it means something beside other moments of the same term
    now_ms: int
    entropy: Random

    @property
    def epoch(self) -> int:
        return self.cluster.controller_epoch


class Work(NamedTuple):
    """Deciding about one subject. `decide` calls it at most once."""

    subject: str
    run: Callable[[], Iterable[Decided]]


def work_of(step: int, change: Change) -> Work:
    """Returns the work of one change that is decided already."""
    return Work(change.subject, lambda: ((step, change),))
