"""What a change is asked, and what most changes answer to most of it: nothing.

A kind of change is one class. It says which moves it makes (`move`), what is believed once it stands (`believe`), what
it writes and which znode that is about (`writes`, `target_path`), what brokers are told (`tell`), and what the
state-change log says (`lines`). What does not apply is said by a base class from here. Nothing else is a default: all
of it is called through the union of all kinds, so mypy reports what a class leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.core.belief.cluster import Cluster
    from controller.core.belief.kept_states import Mover
    from controller.core.changes.cluster import Committed
    from controller.core.project.lines import Line, Stamp, Stamped
    from controller.core.project.requests import Draft
    from controller.core.project.znodes import Write


class MovesNothing:
    """No partition and no replica changes its state by it."""

    __slots__ = ()

    def move(self, cluster: Cluster, mover: Mover) -> None:
        pass


class BelievesNothing:
    """Belief is what it was."""

    __slots__ = ()

    def believe(self, cluster: Cluster, one: Committed) -> None:
        pass


class WritesNothing:
    """It stands as soon as it is decided."""

    __slots__ = ()

    def writes(self, cluster: Cluster) -> tuple[Write, ...]:
        return ()

    def target_path(self, cluster: Cluster) -> str | None:
        return None


class TellsNobody:
    """No broker needs to be told."""

    __slots__ = ()

    def tell(self, cluster: Cluster, draft: Draft) -> None:
        pass


class SaysNothing:
    """It has no line of its own in the state-change log."""

    __slots__ = ()

    def lines(self, cluster: Cluster, one: Committed, stamp: Stamp, stamped: Stamped) -> Iterable[Line]:
        return ()
