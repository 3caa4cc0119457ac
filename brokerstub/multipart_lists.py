"""Full lists that come in parts. A list takes effect with its last part; an unfinished one is dropped when another
begins, or at a higher controller epoch. Pure; of a body it reads only which part it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from controller.wire.bodies import TopicRows


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


class MultipartList(Generic[T]):
    """The full list under way, if any."""

    def __init__(self) -> None:
        self._bodies: list[T] = []
        self._taken = 0
        self._expected = 0
        self._controller_epoch = -1

    def take(self, body: T, controller_epoch: int) -> tuple[list[T], bool]:
        """Returns the bodies that take effect now, and whether they are a whole list, which replaces everything."""
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


def pieces(bodies: Iterable[Sequence[TopicRows]], partitions_max: int) -> Iterator[list[TopicRows]]:
    """The rows of some bodies in pieces of at most so many partitions, in order."""
    piece: list[TopicRows] = []
    room = partitions_max
    for topic in (topic for topics in bodies for topic in topics):
        start = 0
        while start < len(topic.partitions):
            rows = topic.partitions[start : start + room]
            piece.append(TopicRows(topic.topic, topic.topic_id, rows))
            start += len(rows)
            room -= len(rows)
            if not room:
                yield piece
                piece, room = [], partitions_max
    if piece:
        yield piece
