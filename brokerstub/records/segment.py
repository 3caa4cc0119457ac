"""One file of batches and its index. It keeps the batches that it is given; the log decides which.

The index says where in the segment an offset or a time is. It is sparse, one entry for every `index.interval.bytes` of
batches: in memory, and in Kafka's two files once the segment is settled. Offsets are kept as distances from the
segment's base.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

import msgspec
from crc32c import crc32c

from brokerstub.records.batches import BATCH_MAX_BYTES, HEADER_BYTES, NO_TIMESTAMP, Bytes, Header, header_at
from brokerstub.records.disks import Disk
from brokerstub.records.errors import CorruptBatchError
from brokerstub.records.state import State

#: the largest value of an entry: offsets of a segment, and its size
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


LOG: Final = ".log"
_INDEX: Final = ".index"
_TIME_INDEX: Final = ".timeindex"
_SETTLED: Final = ".settled"
_SNAPSHOT: Final = ".snapshot"
#: all that is made anew from the segments
MADE_ANEW: Final = (_SETTLED, _INDEX, _TIME_INDEX, _SNAPSHOT)
#: read at a time where many batches are looked at
CHUNK_BYTES: Final = 1 << 20

#: of a header: base offset, length, and the last record's offset above the base
_PLACE: Final = struct.Struct(">qi11xi")
_BEFORE_LENGTH: Final = 12


class _Mark(msgspec.Struct, frozen=True):
    """Written last when a segment is settled: its size then, with a checksum of both index files."""

    next_offset: int
    size: int
    checksum: int


class Segment:
    """From its base offset to `next_offset`."""

    def __init__(self, disk: Disk, folder: str, base_offset: int, interval_bytes: int) -> None:
        self._disk = disk
        self._interval_bytes = interval_bytes
        self._stem = f"{folder}/{base_offset:020}"
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.index = Index(base_offset, interval_bytes)
        #: of its first batch, as Kafka counts `segment.ms`
        self.first_timestamp = NO_TIMESTAMP
        self.is_settled = False
        #: where it begins; None: it is in the file
        self.state: State | None = None

    @property
    def name(self) -> str:
        """Of its files, but for their suffixes."""
        return self._stem.rpartition("/")[2]

    @property
    def path(self) -> str:
        return self._stem + LOG

    @property
    def snapshot_path(self) -> str:
        return self._stem + _SNAPSHOT

    def append(self, data: Bytes, headers: list[Header]) -> None:
        """These batches, one behind the other."""
        self._disk.append(self.path, data)
        for header in headers:
            self.take(header)

    def take(self, header: Header) -> None:
        """The file has this batch next."""
        if self.size == 0:
            self.first_timestamp = header.max_timestamp
        self.index.add(header, self.size)
        self.size += header.size
        self.next_offset = header.next_offset

    def restart(self) -> None:
        """Forgets the file's content; batches are taken from its start again."""
        self.next_offset, self.size = self.base_offset, 0
        self.index, self.first_timestamp = Index(self.base_offset, self._interval_bytes), NO_TIMESTAMP

    def batches(self, position: int = 0, size: int | None = None) -> Iterator[tuple[int, Header, memoryview]]:
        """Yields position, header and bytes of each batch from there on, up to the end of the segment, or this size.
        Raises at an incomplete batch. The batches before it are whole, but their checksums are not looked at."""
        end = self.size if size is None else size
        wanted = CHUNK_BYTES
        while position < end:
            chunk = memoryview(self._disk.read(self.path, position, min(wanted, end - position)))
            is_last = position + len(chunk) == end or len(chunk) < wanted
            at, wanted = 0, CHUNK_BYTES
            while at < len(chunk):
                rest = len(chunk) - at
                needed = _BEFORE_LENGTH + _PLACE.unpack_from(chunk, at)[1] if rest >= HEADER_BYTES else HEADER_BYTES
                if needed > rest and not is_last and needed <= BATCH_MAX_BYTES:
                    wanted = max(CHUNK_BYTES, needed)
                    break
                header = header_at(chunk, at)
                yield position + at, header, chunk[at : at + header.size]
                at += header.size
            if not chunk:
                raise CorruptBatchError(f"{self.path} ends at byte {position}, before byte {end}")
            position += at

    def read(self, offset: int, max_bytes: int, below: int) -> bytes:
        """Whole batches from the one with this offset on, none with an offset from `below` on; at most so many bytes,
        but for the first one, which may be larger."""
        position = self.index.position_before(offset)
        wanted = max(max_bytes + self._interval_bytes, HEADER_BYTES)
        while position < self.size:
            data = self._disk.read(self.path, position, min(wanted, self.size - position))
            at, start = 0, -1
            while len(data) - at >= HEADER_BYTES:
                base, length, delta = _PLACE.unpack_from(data, at)
                size = _BEFORE_LENGTH + length
                if not HEADER_BYTES <= size <= self.size - position - at:
                    raise CorruptBatchError(f"{self.path}: a batch of {size} bytes at byte {position + at}")
                if start < 0 and base + delta >= offset:
                    start = at
                    if base + delta >= below:
                        return b""
                    if size > min(max_bytes, len(data) - at):
                        return self._disk.read(self.path, position + at, size)
                elif start >= 0 and (base + delta >= below or at + size > min(len(data), start + max_bytes)):
                    break
                at += size
            if start >= 0:
                return data[start:at]
            if at == 0:
                break
            position += at
        raise CorruptBatchError(f"{self.path} has no batch with offset {offset}")

    def settle(self) -> None:
        """It is complete: recovery need not read it again."""
        self._disk.sync(self.path)
        entries, times = self.index.encode()
        mark = _Mark(self.next_offset, self.size, crc32c(times, crc32c(entries)))
        for suffix, data in ((_INDEX, entries), (_TIME_INDEX, times), (_SETTLED, msgspec.json.encode(mark))):
            self._disk.replace(self._stem + suffix, data)
        self.is_settled = True

    def unsettle(self) -> None:
        """It is about to be changed; the folder is to be synced before it is."""
        self._disk.remove(self._stem + _SETTLED)
        self.is_settled = False

    def load(self, next_offset: int) -> bool:
        """Returns whether it is settled, ending at this offset, and then also its index."""
        try:
            mark = msgspec.json.decode(self._whole(_SETTLED), type=_Mark)
            entries, times, size = self._whole(_INDEX), self._whole(_TIME_INDEX), self._disk.size(self.path)
        except (FileNotFoundError, msgspec.MsgspecError, RecursionError):
            return False
        if mark != _Mark(next_offset, size, crc32c(times, crc32c(entries))):
            return False
        self.index = decode_index(self.base_offset, (entries, times), self._interval_bytes)
        self.next_offset, self.size, self.is_settled = next_offset, size, True
        return True

    def remove(self) -> None:
        """Removes the batches first: the other files mean nothing without them."""
        self._disk.remove(self.path)
        for suffix in MADE_ANEW:
            self._disk.remove(self._stem + suffix)

    def _whole(self, suffix: str) -> bytes:
        path = self._stem + suffix
        return self._disk.read(path, 0, self._disk.size(path))
