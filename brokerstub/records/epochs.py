"""The leader epochs of one log: under which leaders its records were appended, and from which offsets on.

What two replicas have in common ends where the same leader epoch ends in both; that is how a follower learns where to
truncate, and why an offset alone never tells. Knows no records.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class EpochEnd(msgspec.Struct, frozen=True, gc=False):
    """Where records of a leader epoch end: the offset behind the last one. Both -1: nothing is known of it."""

    leader_epoch: int
    offset: int


class Epochs:
    """Ascending, both the epochs and their first offsets."""

    def __init__(self, epochs: list[int] | None = None, starts: list[int] | None = None) -> None:
        self._epochs = epochs or []
        self._starts = starts or []

    @property
    def latest(self) -> int:
        """-1: none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Each with its first offset."""
        return list(zip(self._epochs, self._starts, strict=True))

    def copy(self) -> Epochs:
        return Epochs(self._epochs.copy(), self._starts.copy())

    def begin(self, leader_epoch: int, offset: int) -> None:
        """A leader epoch begins at the log's end. One that began there and has no records is over."""
        if leader_epoch <= self.latest:
            return
        self.forget_from(offset)
        self._epochs.append(leader_epoch)
        self._starts.append(offset)

    def at(self, offset: int) -> int:
        """Under which leader epoch the record with this offset was appended; -1: none has it."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else NO_EPOCH

    def end_of(self, leader_epoch: int, log_end: int) -> EpochEnd:
        """Of the highest leader epoch here that is not above the one asked for, as Kafka answers
        OffsetForLeaderEpoch."""
        if not self._epochs or leader_epoch > self.latest:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        index = bisect_right(self._epochs, leader_epoch)
        if index == 0:  # all of its records are gone, or there never were any
            return EpochEnd(leader_epoch, self._starts[0])
        end = self._starts[index] if index < len(self._starts) else log_end
        return EpochEnd(self._epochs[index - 1], end)

    def forget_from(self, log_end: int) -> None:
        """The log ends there now."""
        while self._starts and self._starts[-1] >= log_end:
            self._epochs.pop()
            self._starts.pop()

    def forget_before(self, log_start: int) -> None:
        """Records before were removed."""
        gone = bisect_right(self._starts, log_start) - 1
        if gone > 0:
            del self._epochs[:gone], self._starts[:gone]
        if self._starts:
            self._starts[0] = max(self._starts[0], log_start)
