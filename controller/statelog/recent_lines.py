"""The latest decisions of this term, in memory: the last 10,000 lines of the state-change log, numbered.

For stories and streams. The log on disk is the whole truth; these lines can be read at once. The module keeps nothing
per reader: each reader remembers the number of its last line, and waits for more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from controller.base.bell import Bell
from controller.core.project.lines import Line

LINES_KEPT = 10_000


class Entry:
    """One line; the first sender encodes it into `frame`, so that the others need not encode it again."""

    __slots__ = ("frame", "line", "number")

    def __init__(self, number: int, line: Line) -> None:
        self.number = number
        self.line = line
        self.frame: bytes | None = None


class RecentLines:
    """Built anew for each term, and closed with it; `accept` as a journal's. Lines are numbered from 1."""

    def __init__(self, controller_epoch: int, lines_kept: int = LINES_KEPT) -> None:
        self.controller_epoch = controller_epoch
        self.is_closed = False
        #: the newest line's
        self.number = 0
        self._kept = lines_kept
        self._entries: deque[Entry] = deque(maxlen=lines_kept)
        self._bell = Bell()

    def accept(self, lines: Sequence[Line]) -> None:
        if not lines:
            return
        first = self.number + 1
        self.number += len(lines)
        kept = lines[-self._kept :]
        self._entries.extend(Entry(number, line) for number, line in enumerate(kept, first + len(lines) - len(kept)))
        self._bell.ring()

    def close(self) -> None:
        """The term is over: readers end, also those that wait."""
        self.is_closed = True
        self._bell.ring()

    def about(self, topic: str, partition: int) -> list[Line]:
        """The oldest first."""
        return [one.line for one in self._entries if one.line.topic == topic and one.line.partition == partition]

    @property
    def forgotten(self) -> int:
        """The number of the newest line that is not kept any more; 0 while all are."""
        return self.number - len(self._entries)

    def after(self, number: int) -> list[Entry]:
        """Returns the lines after the line `number`, the oldest first: costs as much as there are, not as are kept."""
        newer = list(islice(reversed(self._entries), max(self.number - number, 0)))
        newer.reverse()
        return newer

    async def wait(self) -> None:
        """Until something was accepted, or the term is over."""
        if not self.is_closed:
            await self._bell.wait()
