"""The aspects of a change, and the empty answers that most changes give to most of them.

A kind of change is one class. It says its moves (`move`), its effect on belief once it stands (`believe`), its writes
and the znode that they are about (`writes`, `target_path`), its requests to brokers (`tell`), and its lines in the
state-change log (`lines`). A base class from here says that an aspect does not apply. Nothing else is a default: all of
it is called through the union of all kinds, so mypy reports an aspect that a class leaves out.
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
    """Belief stays as it was."""

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
