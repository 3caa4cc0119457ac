"""What this term has decided lately, in memory: the lines of the state-change log, the last 10,000 of them.

For stories and, later, for streams. The log on disk is the whole truth; this is what can be had at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from controller.core.lines import Line

LINES_KEPT = 10_000


class Chronicle:
    """Built anew for each term; `accept` as a journal's."""

    def __init__(self, lines_kept: int = LINES_KEPT) -> None:
        self._lines: deque[Line] = deque(maxlen=lines_kept)

    def accept(self, lines: Sequence[Line]) -> None:
        self._lines.extend(lines)

    def about(self, topic: str, partition: int) -> list[Line]:
        """The oldest first."""
        return [line for line in self._lines if line.topic == topic and line.partition == partition]
