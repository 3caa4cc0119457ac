"""How handlers hand their decisions to `decide`: as pieces of work, one subject each.

A handler never loops over subjects itself: it yields one `Work` per subject, and `decide` runs them, so that a bug in
one is met in one place and leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

import msgspec

from controller.core.changes import Change
from controller.core.cluster import Cluster

#: one thing decided: the step it belongs to, and the change
Decided = tuple[int, Change]


class Context(msgspec.Struct, frozen=True):
    """What every handler is given besides its event: belief, the time, and entropy drawn from a seed."""

    cluster: Cluster
    now_ms: int
    entropy: Random

    @property
    def epoch(self) -> int:
        return self.cluster.controller_epoch


class Work(NamedTuple):
    """Deciding about one subject. `decide` calls it at most once."""

    subject: str
    run: Callable[[], Iterable[Decided]]
