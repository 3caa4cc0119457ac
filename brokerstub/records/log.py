"""The log of one partition: segments one behind the other, and the state that follows from them.

Offsets are without gaps, leader epochs never descend: both are checked on every way into the log, on open too. It
decides nothing about leaders and followers; `replication` does.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Final, Literal

import msgspec

from brokerstub.records.batches import (
    BATCH_MAX_BYTES,
    HEADER_BYTES,
    NO_TIMESTAMP,
    Bytes,
    Header,
    batches_in,
    check_sum,
    first_record_since,
    produced,
    stamped,
)
from brokerstub.records.disks import Disk
from brokerstub.records.errors import (
    CorruptBatchError,
    FencedError,
    LogFailedError,
    OffsetOutOfRangeError,
    RecordsError,
    SegmentTooSmallError,
)
from brokerstub.records.segment import LOG, MADE_ANEW, RELATIVE_MAX, Segment
from brokerstub.records.state import EpochEnd, State, decode_state, encode_state

NEVER: Final = (1 << 63) - 1
UNLIMITED: Final = -1
_DAY_MS: Final = 86_400_000
_IS_LOG: Final = re.compile(r"[0-9]{20}\.log")
_PART: Final = "part"  # of a file that was about to replace another
_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: name.replace("_", ".")):
    """A topic's configuration, with Kafka's names and defaults."""

    segment_bytes: Annotated[int, msgspec.Meta(ge=HEADER_BYTES, le=RELATIVE_MAX)] = 1 << 30
    segment_ms: _AtLeastOne = 7 * _DAY_MS
    retention_bytes: Annotated[int, msgspec.Meta(ge=UNLIMITED)] = UNLIMITED
    retention_ms: Annotated[int, msgspec.Meta(ge=UNLIMITED)] = 7 * _DAY_MS
    index_interval_bytes: Annotated[int, msgspec.Meta(ge=0, le=RELATIVE_MAX)] = 4096
    #: so many records, or a record so old, are not left unsynced
    flush_messages: _AtLeastOne = NEVER
    flush_ms: Annotated[int, msgspec.Meta(ge=0)] = NEVER
    max_message_bytes: Annotated[int, msgspec.Meta(ge=0, le=BATCH_MAX_BYTES)] = 1_048_588
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    producer_id_expiration_ms: _AtLeastOne = _DAY_MS


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a produced batch is in the log."""

    base_offset: int
    last_offset: int
    #: -1 unless the broker set the timestamps
    append_ms: int = NO_TIMESTAMP
    #: it came before, and was not appended again
    is_duplicate: bool = False


class Recovered(msgspec.Struct, frozen=True):
    """The part that opening a log cut off: torn, damaged, or behind such a batch."""

    end_offset: int
    lost_bytes: int
    reason: str


class Log:
    """Opened by its constructor; there must be no other of this folder."""

    def __init__(self, disk: Disk, folder: str, config: LogConfig, *, start_offset: int = 0) -> None:
        """`start_offset`: as it was last written down, for a log whose first segment begins before."""
        self._disk = disk
        self._folder = folder
        self.config = config
        self._has_failed = False
        self._segments: list[Segment] = []
        self._state = State()
        #: the offset up to which the log is synced; since when it is not (-1: it is); whether new and removed files are
        #: synced
        self._synced_offset = 0
        self._unsynced_since_ms = -1
        self._is_folder_synced = False
        self.recovered: Recovered | None = None
        self._open(start_offset)
        self.start_offset = max(self._segments[0].base_offset, min(start_offset, self.end_offset))
        self._state.epochs.forget_before(self.start_offset)

    @property
    def end_offset(self) -> int:
        """Of the next record."""
        return self._active.next_offset

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(segment.size for segment in self._segments)

    @property
    def latest_epoch(self) -> int:
        """-1: none."""
        return self._state.epochs.latest

    @property
    def max_timestamp(self) -> int:
        """-1: there are no records with one."""
        return max(segment.index.max_timestamp for segment in self._segments)

    def begin_epoch(self, leader_epoch: int) -> None:
        """This replica leads from here on."""
        if leader_epoch < self.latest_epoch:
            raise FencedError(f"leader epoch {leader_epoch}, and the log has records of {self.latest_epoch}")
        self._state.epochs.begin(leader_epoch, self.end_offset)

    def append(self, data: Bytes, leader_epoch: int, now_ms: int) -> Appended:
        """The leader's way in: one batch as a producer sent it."""
        self._check_disk()
        header = produced(data, self.config.max_message_bytes)
        if leader_epoch < self.latest_epoch:
            raise FencedError(f"leader epoch {leader_epoch}, and the log has records of {self.latest_epoch}")
        if header.size > self.config.segment_bytes:
            raise SegmentTooSmallError(f"a batch of {header.size} bytes, segment.bytes is {self.config.segment_bytes}")
        if (kept := self._state.producers.check(header)) is not None:
            append_ms = kept.timestamp if self._sets_timestamps else NO_TIMESTAMP
            return Appended(kept.first_offset, kept.last_offset, append_ms, is_duplicate=True)
        append_ms = now_ms if self._sets_timestamps else NO_TIMESTAMP
        batch = stamped(data, self.end_offset, leader_epoch, now_ms if self._sets_timestamps else None)
        header = msgspec.structs.replace(
            header,
            base_offset=self.end_offset,
            leader_epoch=leader_epoch,
            max_timestamp=now_ms if self._sets_timestamps else header.max_timestamp,
        )
        self._write(batch, [header], now_ms)
        return Appended(header.base_offset, header.last_offset, append_ms)

    def append_fetched(self, data: Bytes, now_ms: int) -> None:
        """The follower's way in: batches as the leader has them, all of them or none."""
        self._check_disk()
        headers, expected, epoch = [], self.end_offset, self.latest_epoch
        for position, header in batches_in(data):
            check_sum(data, header, position)
            _check_next(header, expected, epoch)
            headers.append(header)
            expected, epoch = header.next_offset, header.leader_epoch
        self._write(data, headers, now_ms)

    def read(self, offset: int, max_bytes: int, below: int = NEVER) -> bytes:
        """Whole batches from the one with this offset on, none with an offset from `below` on; at most so many bytes,
        but for the first one. Empty at the end."""
        self._check_disk()
        self._check_range(offset)
        below = min(below, self.end_offset)
        if offset >= below:
            return b""
        return self._segments[self._place(offset)].read(offset, max_bytes, below)

    def offset_since(self, timestamp: int, below: int = NEVER) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is not older; of a compressed batch, of its first record."""
        self._check_disk()
        for segment in self._segments:
            if segment.index.max_timestamp < timestamp or segment.next_offset <= self.start_offset:
                continue
            first = max(self.start_offset, segment.index.offset_before(timestamp))
            for _, header, batch in segment.batches(segment.index.position_before(first)):
                if header.max_timestamp >= timestamp and header.last_offset >= self.start_offset:
                    offset, found = first_record_since(batch, timestamp)
                    return (max(offset, self.start_offset), found) if offset < below else None
        return None

    def epoch_at(self, offset: int) -> int:
        """Returns the leader epoch of the record with this offset, which the log has."""
        return self._state.epochs.at(offset)

    def end_of_epoch(self, leader_epoch: int) -> EpochEnd:
        """Returns the answer to OffsetForLeaderEpoch."""
        return self._state.epochs.end_of(leader_epoch, self.end_offset)

    def truncate(self, offset: int) -> None:
        """The log ends there, or before, where the batch with this offset begins. Synced before it returns: truncated
        records never come back."""
        self._check_disk()
        if offset >= self.end_offset:
            self._state.epochs.forget_from(offset)
            return
        if offset < self._segments[0].base_offset:
            self.start_anew(offset)
            return
        with self._failing():
            place = self._place(offset)
            state = self._state_at(place)
            self._remove(reversed(self._segments[place + 1 :]))
            del self._segments[place + 1 :]
            self._active.unsettle()
            self._disk.sync_folder(self._folder)
            self._retake(state, offset)
        self.start_offset = min(self.start_offset, self.end_offset)
        self._state.epochs.forget_before(self.start_offset)

    def start_anew(self, offset: int) -> None:
        """Empties the log. The next record has this offset: the leader's log begins there."""
        self._check_disk()
        with self._failing():
            self._remove(reversed(self._segments))
            self._state = State()
            self._segments = [self._begin_segment(offset)]
            self._disk.sync_folder(self._folder)
            self._synced_offset = offset
        self.start_offset = offset

    def advance_start(self, offset: int) -> list[int]:
        """Records before are gone. Returns the base offsets of the segments that were removed."""
        self._check_disk()
        self._check_range(offset)
        self.start_offset = max(self.start_offset, offset)
        gone = 0
        while gone < len(self._segments) - 1 and self._segments[gone].next_offset <= self.start_offset:
            gone += 1
        return self._drop_first(gone)

    def retain(self, now_ms: int, high_watermark: int) -> list[int]:
        """Remove the segments that `retention.ms` and `retention.bytes` no longer want, but nothing that may not be
        everywhere yet. Returns their base offsets."""
        self._check_disk()
        self._state.producers.forget_silent(now_ms - self.config.producer_id_expiration_ms)
        gone, excess = 0, self.size - self.config.retention_bytes
        for segment in self._segments:
            if segment.size == 0 or segment.next_offset > high_watermark:
                break
            newest = segment.index.max_timestamp
            is_old = newest >= 0 and 0 <= self.config.retention_ms < now_ms - newest
            excess -= segment.size
            is_excess = self.config.retention_bytes != UNLIMITED and excess >= 0
            if not (is_old or is_excess):
                break
            gone += 1
        if gone == len(self._segments):
            self._roll()
        if gone:
            self.start_offset = max(self.start_offset, self._segments[gone].base_offset)
        return self._drop_first(gone)

    def flush(self) -> None:
        """All of the log outlives the machine."""
        self._check_disk()
        with self._failing():
            for segment in self._segments:
                if not segment.is_settled and segment.next_offset > self._synced_offset and segment.size:
                    self._disk.sync(segment.path)
            if not self._is_folder_synced:
                self._disk.sync_folder(self._folder)
                self._is_folder_synced = True
            self._synced_offset, self._unsynced_since_ms = self.end_offset, -1

    def flush_due(self, now_ms: int) -> None:
        """`flush.ms` has come, perhaps."""
        if self._unsynced_since_ms >= 0 and now_ms - self._unsynced_since_ms >= self.config.flush_ms:
            self.flush()

    def settle(self) -> None:
        """Settles the segments that recovery need not read again: all but the last."""
        self._check_disk()
        with self._failing():
            for segment, after in zip(self._segments, self._segments[1:], strict=False):
                if not segment.is_settled:
                    segment.settle()
                    if after.state is not None:
                        self._disk.replace(after.snapshot_path, encode_state(after.state, after.base_offset))
                        after.state = after.state if after is self._active else None

    def delete(self) -> None:
        """The replica is deleted: its folder goes, too."""
        self._has_failed = True  # nothing may follow
        self._remove(reversed(self._segments))
        self._disk.remove_folder(self._folder)

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    @property
    def _sets_timestamps(self) -> bool:
        return self.config.message_timestamp_type == "LogAppendTime"

    def _open(self, start_offset: int) -> None:
        self._disk.make_folder(self._folder)
        names = set(self._disk.names(self._folder))
        bases = sorted(int(name[: -len(LOG)]) for name in names if _IS_LOG.fullmatch(name))
        found = [Segment(self._disk, self._folder, base, self.config.index_interval_bytes) for base in bases]
        state: State | None = None
        cut = ""
        lost_bytes = 0
        for place, segment in enumerate(found):
            if self._segments and segment.base_offset != self.end_offset:
                cut = f"a segment begins at offset {segment.base_offset}"
            if cut:
                break
            self._segments.append(segment)
            if place + 1 < len(found) and segment.load(found[place + 1].base_offset):
                state = None  # it is written down
                continue
            segment.unsettle()
            state = self._state_at(place) if state is None else state
            size = self._disk.size(segment.path)
            cut = self._retake(state, is_checked=True)
            lost_bytes += size - segment.size
        behind = found[len(self._segments) :]
        lost_bytes += sum(self._disk.size(segment.path) for segment in behind)
        self._remove(reversed(behind))
        if not self._segments:
            self._segments = [self._begin_segment(start_offset)]
        kept = {segment.name for segment in self._segments}
        for name in names:
            stem, dot, suffix = name.partition(".")
            if (dot + suffix in MADE_ANEW and stem not in kept) or suffix.endswith(_PART):
                self._disk.remove(f"{self._folder}/{name}")
        self._disk.sync_folder(self._folder)
        self._is_folder_synced = True
        if cut:
            self.recovered = Recovered(self.end_offset, lost_bytes, cut)
        unsettled = [segment.base_offset for segment in self._segments if not segment.is_settled]
        self._synced_offset = unsettled[0]
        if min(self.config.flush_messages, self.config.flush_ms) != NEVER:
            self.flush()

    def _write(self, data: Bytes, headers: list[Header], now_ms: int) -> None:
        rest = memoryview(data)
        with self._failing():
            while headers:
                if self._is_full(headers[0]):
                    self._roll()
                segment, count, size = self._active, 0, 0
                for header in headers:  # as many at a time as the segment takes, one at least
                    too_far = header.last_offset - segment.base_offset > RELATIVE_MAX
                    if count and (too_far or segment.size + size + header.size > self.config.segment_bytes):
                        break
                    count, size = count + 1, size + header.size
                segment.append(rest[:size], headers[:count])
                for header in headers[:count]:
                    self._state.take(header)
                headers, rest = headers[count:], rest[size:]
        if self._unsynced_since_ms < 0:
            self._unsynced_since_ms = now_ms
        if self.end_offset - self._synced_offset >= self.config.flush_messages:
            self.flush()

    def _is_full(self, header: Header) -> bool:
        """The batch belongs into a new segment."""
        segment = self._active
        is_late = 0 <= segment.first_timestamp < header.max_timestamp - self.config.segment_ms
        is_large = segment.size + header.size > self.config.segment_bytes
        return segment.size > 0 and (is_late or is_large or header.last_offset - segment.base_offset > RELATIVE_MAX)

    def _roll(self) -> None:
        state = self._state.copy()
        self._segments.append(self._begin_segment(self.end_offset))
        self._active.state = state

    def _begin_segment(self, offset: int) -> Segment:
        """Its file says where the log begins, also while it is empty."""
        segment = Segment(self._disk, self._folder, offset, self.config.index_interval_bytes)
        segment.state = State()
        segment.append(b"", [])
        self._is_folder_synced = False
        return segment

    def _retake(self, state: State, until: int = NEVER, *, is_checked: bool = False) -> str:
        """Takes the content of the last segment's file in anew, on top of the state at its start, and cuts it off at
        the first batch that reaches this offset or is malformed. Returns the reason why it made none."""
        segment, cut = self._active, ""
        segment.restart()
        segment.state = state.copy()
        size = self._disk.size(segment.path)
        try:
            for _, header, batch in segment.batches(0, size):
                if header.next_offset > until:
                    break
                if is_checked:
                    check_sum(batch, header)
                _check_next(header, segment.next_offset, state.epochs.latest)
                segment.take(header)
                state.take(header)
        except RecordsError as error:
            cut = f"{segment.path} at byte {segment.size}: {error}"
        if segment.size < size:
            self._disk.truncate(segment.path, segment.size)
            self._disk.sync(segment.path)
        state.epochs.forget_from(segment.next_offset)  # one that was begun there, and has no records any more
        self._state = state
        self._synced_offset = min(self._synced_offset, segment.next_offset)
        return cut

    def _state_at(self, place: int) -> State:
        """Returns the state at the start of a segment: the last one written down before, and the batches in between."""
        first, state = place, self._known_state(self._segments[place])
        while state is None and first > 0:
            first -= 1
            state = self._known_state(self._segments[first])
        state = state or State()
        for segment in self._segments[first:place]:
            for _, header, _ in segment.batches():
                state.take(header)
        return state

    def _known_state(self, segment: Segment) -> State | None:
        if segment.state is not None:
            return segment.state.copy()
        with suppress(FileNotFoundError):
            data = self._disk.read(segment.snapshot_path, 0, self._disk.size(segment.snapshot_path))
            return decode_state(data, segment.base_offset)
        return None

    def _drop_first(self, count: int) -> list[int]:
        removed = self._segments[:count]
        if removed:
            first = self._segments[count]
            with self._failing():
                if first.state is not None:
                    self._disk.replace(first.snapshot_path, encode_state(first.state, first.base_offset))
                self._remove(removed)
            del self._segments[:count]
        self._state.epochs.forget_before(self.start_offset)
        return [segment.base_offset for segment in removed]

    def _remove(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            segment.remove()
            self._is_folder_synced = False

    def _place(self, offset: int) -> int:
        """Of the segment that has it."""
        return bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1

    def _check_range(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(f"offset {offset}, the log has {self.start_offset} to {self.end_offset}")

    def _check_disk(self) -> None:
        if self._has_failed:
            raise LogFailedError(f"{self._folder}: its disk failed; open the log again")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """How far an operation came whose disk failed is not known."""
        try:
            yield
        except OSError:
            self._has_failed = True
            raise


def _check_next(header: Header, offset: int, latest_epoch: int) -> None:
    if header.base_offset != offset:
        raise CorruptBatchError(f"a batch at offset {header.base_offset}, {offset} is next")
    if header.leader_epoch < latest_epoch:
        raise CorruptBatchError(f"a batch of leader epoch {header.leader_epoch} after one of {latest_epoch}")
