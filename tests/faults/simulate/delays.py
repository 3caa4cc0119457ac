"""Finds delays in virtual time, where only faults, and processes that wait for each other, cause them.

The meters of a simulated process measure as the real ones do, and also record events that waited too long in the inbox.
They judge nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.statelog.metrics import Meters
from tests.faults.checker.history import Lag

if TYPE_CHECKING:
    from tests.faults.simulate.cluster import SimCluster

LATE_S: Final = 1.0
#: of a term: a connection that broke is made again, or the seat is read again, a few ways there and back
ENDS_WITHIN_MS: Final = 100


class LateMeters(Meters):
    """Of one life of a process."""

    def __init__(self, broker_id: int, cluster: SimCluster) -> None:
        super().__init__()
        self._broker_id, self._cluster = broker_id, cluster

    def turn_taken(self, waited_s: float) -> None:
        super().turn_taken(waited_s)
        if waited_s > LATE_S:
            at_ms = self._cluster.zookeeper.now_ms
            since_ms = at_ms - round(waited_s * 1_000)
            self._cluster.lags.append(Lag(at_ms, self._broker_id, 1, what="inbox", since_ms=since_ms))
