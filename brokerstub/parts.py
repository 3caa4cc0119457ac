"""Full lists that come in parts. A list takes effect with its last part; an unfinished one is dropped when another
begins, or at a higher controller epoch. Pure; of a body it reads only which part it is.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Part(Protocol):
    """A request that may be part of a full list."""

    @property
    def full(self) -> bool: ...
    @property
    def part(self) -> int: ...
    @property
    def parts(self) -> int: ...


T = TypeVar("T", bound=Part)


class OutOfOrderError(Exception):
    """A part came whose predecessors did not."""


class Parts(Generic[T]):
    """The full list under way, if any."""

    def __init__(self) -> None:
        self._bodies: list[T] = []
        self._taken = 0
        self._expected = 0
        self._controller_epoch = -1

    def take(self, body: T, controller_epoch: int) -> tuple[list[T], bool]:
        """The bodies that take effect now, and whether they are a whole list, which replaces everything."""
        if not body.full:
            return [body], False
        if body.part == 1 or controller_epoch > self._controller_epoch:
            self._bodies, self._taken = [], 0
            self._expected, self._controller_epoch = body.parts, controller_epoch
        if body.parts != self._expected or not 1 <= body.part <= min(body.parts, self._taken + 1):
            raise OutOfOrderError(f"part {body.part} of {body.parts} after {self._taken} of {self._expected}")
        if body.part <= self._taken:
            # Sent again, since the answer was lost. If the list is in effect already, the part is applied once more.
            return ([body] if body.part == self._expected else []), False
        self._taken = body.part
        self._bodies.append(body)
        if body.part < body.parts:
            return [], False
        bodies, self._bodies = self._bodies, []
        return bodies, True
