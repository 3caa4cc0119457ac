"""Where in a segment an offset or a time is: sparse, one entry for every `index.interval.bytes` of batches.

In memory, and in Kafka's two files once the segment is settled. Offsets are kept as distances from the segment's base.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from brokerstub.records.batches import NO_TIMESTAMP, Header

#: what fits into an entry: offsets of a segment, and its size
RELATIVE_MAX: Final = (1 << 31) - 1
_TIME_ENTRY: Final = struct.Struct(">qi")
_ENTRY_BYTES: Final = 8


class Index:
    """Of one segment."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._bytes_since_entry = 0
        # last offset and position of a batch
        self._offsets = array("I")
        self._positions = array("I")
        # the highest timestamp so far, and the last offset of the batch that had it
        self._times = array("q")
        self._time_offsets = array("I")
        self.max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = 0

    def add(self, header: Header, position: int) -> None:
        """The next batch of the segment."""
        relative = header.last_offset - self._base_offset
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self._max_timestamp_offset = header.max_timestamp, relative
        if self._bytes_since_entry > self._interval_bytes:
            self._offsets.append(relative)
            self._positions.append(position)
            self._add_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size

    def position_before(self, offset: int) -> int:
        """Of a batch that is not behind the one with this offset."""
        index = bisect_right(self._offsets, offset - self._base_offset)
        return self._positions[index - 1] if index else 0

    def offset_before(self, timestamp: int) -> int:
        """All records before this offset are older."""
        index = bisect_left(self._times, timestamp)
        return self._base_offset + (self._time_offsets[index - 1] if index else 0)

    def encode(self) -> tuple[bytes, bytes]:
        """`.index` and `.timeindex` of a complete segment. The last entry of the latter has its highest time."""
        pairs = array("I", bytes(_ENTRY_BYTES * len(self._offsets)))
        pairs[0::2], pairs[1::2] = self._offsets, self._positions
        self._add_time()
        times = b"".join(map(_TIME_ENTRY.pack, self._times, self._time_offsets))
        return _swapped(pairs).tobytes(), times

    def _add_time(self) -> None:
        if self.max_timestamp > (self._times[-1] if self._times else NO_TIMESTAMP):
            self._times.append(self.max_timestamp)
            self._time_offsets.append(self._max_timestamp_offset)


def decode_index(base_offset: int, files: tuple[bytes, bytes], interval_bytes: int) -> Index:
    """As it was encoded."""
    entries, times = files
    pairs = _swapped(array("I", entries))
    index = Index(base_offset, interval_bytes)
    index._offsets, index._positions = pairs[0::2], pairs[1::2]
    for index.max_timestamp, index._max_timestamp_offset in _TIME_ENTRY.iter_unpack(times):
        index._add_time()
    return index


def _swapped(numbers: array[int]) -> array[int]:
    """Between the order of bytes here and in a file."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
