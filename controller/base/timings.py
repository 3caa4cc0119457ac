"""How long an operation took lately, as quantiles, like Kafka's histograms and timers.

The newest thousand are kept, as many as Kafka's reservoirs hold. It never says anything about older ones but their
number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

KEPT: Final = 1_028
#: those that jmx_exporter exposes
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Timings:
    """In milliseconds. Adding a value costs next to nothing; quantiles are computed when a reader asks."""

    __slots__ = ("_newest_ms", "count", "sum_ms")

    def __init__(self) -> None:
        self._newest_ms: deque[float] = deque(maxlen=KEPT)
        self.count = 0
        self.sum_ms = 0.0

    def add(self, took_ms: float) -> None:
        self.count += 1
        self.sum_ms += took_ms
        self._newest_ms.append(took_ms)

    def quantiles(self) -> Mapping[float, float]:
        """Each the least value that so large a part of the newest does not exceed; all 0 while there is none."""
        ordered = sorted(self._newest_ms) or [0.0]
        return {one: ordered[min(len(ordered) - 1, int(one * len(ordered)))] for one in QUANTILES}
