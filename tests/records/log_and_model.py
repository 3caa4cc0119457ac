"""A log and a model of it, side by side: each operation is done to both, and a death is judged by the possible rests.

The model is a list of batches. It knows no segments, no index, no files.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from brokerstub.records.batches import batches_in, produced
from brokerstub.records.errors import OffsetOutOfRangeError, OutOfOrderSequenceError
from brokerstub.records.log import Log, LogConfig
from brokerstub.records.state import EpochEnd, Producers
from tests.fakes.disk import DeadError, SimulatedDisk
from tests.records.support import START, a_batch

FOLDER = "orders-0"
#: several batches to a segment, several segments to a log, an entry of the index for every other batch
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1, producer_id_expiration_ms=1 << 50)


class Batch(NamedTuple):
    """One batch in the log."""

    data: bytes
    base: int
    end: int
    epoch: int
    timestamp: int


class LogAndModel:
    """On a simulated disk."""

    def __init__(self, config: LogConfig = SMALL) -> None:
        self.config = config
        self.disk = SimulatedDisk()
        self.log = Log(self.disk, FOLDER, config)
        #: all since the log was begun, removed ones too
        self.batches: list[Batch] = []
        self.origin = self.start = 0
        #: the end of the records that survive the machine's death at least
        self.durable = 0
        self.epoch = 0
        self.begun: int | None = None
        self.now_ms = START
        self._count = 0
        self._sequences: dict[int, int] = {}

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.origin

    # operations on both

    def append(self, count: int, producer_id: int = -1) -> None:
        sequence = self._sequences.get(producer_id, 0)
        producer = (-1, -1, -1) if producer_id < 0 else (producer_id, 0, sequence)
        data = a_batch(self._values(count), producer=producer, timestamp=self.now_ms)
        base, epoch = self.end, self.epoch

        def do() -> None:
            appended = self.log.append(data, epoch, self.now_ms)
            assert (appended.base_offset, appended.last_offset) == (base, base + count - 1)
            assert not appended.is_duplicate

        stored = base.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]
        self._do(do, [*self.batches, Batch(stored, base, base + count, epoch, self.now_ms)])
        self._follow()

    def append_fetched(self, counts: list[int]) -> None:
        """As from a leader, each at a leader epoch of its own."""
        batches, base, epoch = [], self.end, self.epoch
        for index, count in enumerate(counts):
            data = a_batch(self._values(count), base_offset=base, leader_epoch=epoch + index, timestamp=self.now_ms)
            batches.append(Batch(data, base, base + count, epoch + index, self.now_ms))
            base += count
        self._do(
            lambda: self.log.append_fetched(b"".join(one.data for one in batches), self.now_ms),
            [*self.batches, *batches],
        )
        self._follow()

    def repeat(self, index: int) -> None:
        """A producer sends a batch of the log again."""
        batch = self.batches[index % len(self.batches)]
        producers = Producers()
        headers = [produced(one.data, 1 << 20) for one in self.batches]
        for header in headers:
            producers.take(header)
        header = headers[index % len(headers)]
        if header.producer_id < 0:
            return
        try:
            kept = producers.check(header)
        except OutOfOrderSequenceError:
            with pytest.raises(OutOfOrderSequenceError):
                self.log.append(batch.data, self.epoch, self.now_ms)
            return
        assert kept is not None
        appended = self.log.append(batch.data, self.epoch, self.now_ms)
        assert appended.is_duplicate
        assert (appended.base_offset, appended.last_offset + 1) == (batch.base, batch.end)

    def begin_epoch(self, more: int) -> None:
        self.epoch += more
        self.log.begin_epoch(self.epoch)
        self.begun = self.epoch

    def truncate(self, offset: int) -> None:
        kept = [one for one in self.batches if one.end <= offset]
        if offset < self.origin or (self.batches and offset < self._first_base()):
            return  # begins anew, which is another operation
        end = kept[-1].end if kept else self.origin
        self._do(lambda: self.log.truncate(offset), kept, start=min(self.start, end))
        self.durable = min(self.durable, self.end)
        self.begun = None
        self._follow()

    def start_anew(self, offset: int) -> None:
        self._do(lambda: self.log.start_anew(offset), [], origin=offset, start=offset)
        self.durable, self.begun = self.end, None
        self._follow()

    def advance_start(self, offset: int) -> None:
        self._do(lambda: self.log.advance_start(offset), self.batches, start=offset)

    def retain(self, high_watermark: int) -> None:
        self._do(lambda: self.log.retain(self.now_ms, high_watermark), self.batches, start=high_watermark)

    def flush(self) -> None:
        self._do(self.log.flush, self.batches)
        self.durable = self.end

    def settle(self) -> None:
        self._do(self.log.settle, self.batches)

    # deaths

    def reopen(self, power: Random | None = None) -> None:
        """The process dies, or the machine."""
        self._come_back(self.batches, self.batches, {self.origin}, self.start, power)

    def dying(self, fuse: int, power: Random | None, operation: Callable[[], None]) -> bool:
        """Whether death came before the operation was over."""
        self.disk.fuse = fuse
        self._power = power
        try:
            operation()
        except DeadError:
            return True
        self.disk.revive()
        return False

    def _do(
        self,
        operation: Callable[[], object],
        after: list[Batch],
        *,
        origin: int | None = None,
        start: int | None = None,
    ) -> None:
        origin = self.origin if origin is None else origin
        highest = max(self.start, self.start if start is None else start)
        try:
            operation()
        except DeadError:
            self._come_back(self.batches, after, {self.origin, origin, self.start}, highest, self._power)
            raise
        lowest = min(self.start, origin, self.start if start is None else start)
        self.batches, self.origin = after, origin
        if start is not None:
            assert lowest <= self.log.start_offset <= highest
            self.start = self.log.start_offset
        if self.disk.fuse == 0:  # it died right after
            self.reopen(self._power)
            raise DeadError
        self.check()

    def _come_back(
        self, before: list[Batch], after: list[Batch], origins: set[int], highest: int, power: Random | None
    ) -> None:
        shorter, longer = sorted((before, after), key=len)
        self.disk.revive()
        if power is not None:
            self.disk.lose_power(power)
        self.log = Log(self.disk, FOLDER, self.config, start_offset=self.start)
        self.begun = None
        end = self.log.end_offset
        if end in origins and not shorter and self._first_base() == end:  # nothing is left
            self.batches, self.origin = [], end
        else:
            self.batches = [one for one in longer if one.end <= end]
            least = shorter[-1].end if shorter else self.origin
            assert self.end == end, "it ends with a batch"
            assert end >= (least if power is None else min(least, self.durable)), "what had to be left is gone"
        self.start = self.log.start_offset
        assert self.start <= highest
        self.durable = end if power is not None else min(self.durable, end)
        self._follow()
        self.check()

    # the invariants

    def check(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        found = b""
        at = self.start
        while at < self.end:
            piece = self.log.read(at, 150)
            assert piece
            found += piece
            at = max(header.next_offset for _, header in batches_in(piece))
        assert found == b"".join(one.data for one in self.visible())

    def check_read(self, offset: int, max_bytes: int, below: int) -> None:
        if not self.start <= offset <= self.end:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(offset, max_bytes, below)
            return
        data = self.log.read(offset, max_bytes, below)
        wanted = [one.data for one in self.visible() if one.end > offset and one.end <= below]
        assert b"".join(wanted).startswith(data)
        assert len(data) <= max_bytes or data == wanted[0]
        assert data or not wanted

    def check_epochs(self) -> None:
        entries: list[tuple[int, int]] = []
        for one in self.batches:
            if not entries or one.epoch > entries[-1][0]:
                entries.append((one.epoch, one.base))
        if self.begun is not None and (not entries or self.begun > entries[-1][0]):
            entries.append((self.begun, self.end))
        if self.start == self.end:  # no records, and it may have forgotten the last leader epoch
            ends = [self.log.end_of_epoch(epoch) for epoch in range(self.epoch + 2)]
            assert {one.offset for one in ends} <= {-1, self.end}
            return
        while len(entries) > 1 and entries[1][1] <= self.start:
            del entries[0]
        for epoch in range(-1, self.epoch + 2):
            assert self.log.end_of_epoch(epoch) == self._end_of(epoch, entries), epoch

    def _end_of(self, epoch: int, entries: list[tuple[int, int]]) -> EpochEnd:
        if not entries or epoch > entries[-1][0]:
            return EpochEnd(-1, -1)
        starts = [max(start, self.start) for _, start in entries]
        below = [one for one, _ in entries if one <= epoch]
        if not below:
            return EpochEnd(epoch, starts[0])
        return EpochEnd(below[-1], [*starts, self.end][len(below)])

    def check_times(self, timestamp: int) -> None:
        found = self.log.offset_since(timestamp)
        batches = [one for one in self.visible() if one.timestamp >= timestamp]
        assert found == ((max(batches[0].base, self.start), batches[0].timestamp) if batches else None)

    def visible(self) -> list[Batch]:
        return [one for one in self.batches if one.end > self.start]

    def _first_base(self) -> int:
        return min(int(name[:20]) for name in self.disk.names(FOLDER) if name.endswith(".log"))

    def _values(self, count: int) -> list[bytes]:
        """Never the same twice."""
        self._count += 1
        return [b"%d/%d" % (self._count, index) for index in range(count)]

    def _follow(self) -> None:
        """Go on as a leader would, with the producers whose last batches are the last in the log."""
        self.epoch = max([self.epoch, *(one.epoch for one in self.batches)])
        self._sequences = {}
        for one in self.batches:
            header = produced(one.data, 1 << 20)
            if header.producer_id >= 0:
                self._sequences[header.producer_id] = header.base_sequence + header.count
