"""The log: each of its rules by itself, on a folder of this machine. `test_log_model.py` has them all together."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from brokerstub.records.batches import header_at
from brokerstub.records.disks import FolderDisk
from brokerstub.records.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    FencedError,
    LogFailedError,
    OffsetOutOfRangeError,
    SegmentTooSmallError,
)
from brokerstub.records.log import Appended, Log, LogConfig
from brokerstub.records.state import EpochEnd
from tests.fakes.disk import SimulatedDisk
from tests.records.support import START, a_batch, offsets_in, read_by_kio, recorded
from tests.records.test_batches import CLIENTS

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)
FOLDER = "orders-0"


def a_log(folder: Path, config: LogConfig = SMALL) -> Log:
    return Log(FolderDisk(folder), FOLDER, config)


def filled(folder: Path, batches: int, config: LogConfig = SMALL, *, epoch: int = 0) -> Log:
    """So many batches of two records, a second after each other: three to a segment."""
    log = a_log(folder, config)
    for index in range(batches):
        log.append(a_batch([b"a", b"b"], timestamp=START + 1_000 * index), epoch, START)
    return log


def everything(log: Log, offset: int = 0) -> bytes:
    """All of it, as a reader gets it that comes again for more."""
    found = b""
    while piece := log.read(offset, 700):
        found += piece
        offset = offsets_in(piece)[-1][1]
    return found


def files(folder: Path, suffix: str) -> list[int]:
    return sorted(int(path.stem) for path in (folder / FOLDER).glob(f"*{suffix}"))


@pytest.mark.parametrize("client", CLIENTS)
def test_batches_of_real_clients_are_read_again_bit_by_bit(tmp_path: Path, client: str) -> None:
    sent = recorded(f"{client}.bin")
    log = a_log(tmp_path, LogConfig(segment_bytes=1_000))
    for batch in sent:
        log.append(batch, 3, START)
    log = a_log(tmp_path, LogConfig(segment_bytes=1_000))
    assert log.end_offset == 40
    assert everything(log) == b"".join(one[:12] + (3).to_bytes(4, "big") + one[16:] for one in sent)
    for batch in sent[-5:]:
        assert log.append(batch, 3, START).is_duplicate, "producers are known again after the log was opened"


def test_a_batch_that_comes_twice_has_its_first_offsets(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    first = a_batch([b"a", b"b"], producer=(1, 0, 0))
    log.append(a_batch(), 0, START)
    assert log.append(first, 0, START) == Appended(1, 2)
    log.append(a_batch([b"c"], producer=(1, 0, 2)), 0, START)
    assert log.append(first, 0, START) == Appended(1, 2, is_duplicate=True)
    assert log.end_offset == 4


def test_a_truncated_batch_may_come_again(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    second = a_batch([b"c"], producer=(1, 0, 2))
    log.append(a_batch([b"a", b"b"], producer=(1, 0, 0)), 0, START)
    log.append(second, 0, START)
    log.truncate(2)
    assert log.append(second, 0, START) == Appended(2, 2)


def test_the_broker_may_set_the_time(tmp_path: Path) -> None:
    log = a_log(tmp_path, msgspec.structs.replace(SMALL, message_timestamp_type="LogAppendTime"))
    batch = a_batch([b"a"], producer=(1, 0, 0))
    assert log.append(batch, 0, START + 5) == Appended(0, 0, START + 5)
    assert log.append(batch, 0, START + 9) == Appended(0, 0, START + 5, is_duplicate=True)
    assert header_at(log.read(0, 1_000)).max_timestamp == log.max_timestamp == START + 5
    assert log.offset_since(START + 5) == (0, START + 5)


def test_a_refused_append_changes_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path, 2, epoch=5)
    before = log.read(0, 1_000)
    large = msgspec.structs.replace(SMALL, max_message_bytes=200)
    for data, epoch, refusal in (
        (a_batch([b"x" * 250]), 5, SegmentTooSmallError),
        (a_batch()[:-1], 5, CorruptBatchError),
        (a_batch(), 4, FencedError),
    ):
        with pytest.raises(refusal):
            log.append(data, epoch, START)
    good, late = a_batch(base_offset=4, leader_epoch=5), a_batch(base_offset=5, leader_epoch=4)
    for data in (a_batch(base_offset=3, leader_epoch=5), good + late, good + good, good + b"x", good[:-1]):
        with pytest.raises(CorruptBatchError):
            log.append_fetched(data, START)
    with pytest.raises(OffsetOutOfRangeError, match="offset 5, the log has 0 to 4"):
        log.read(5, 1_000)
    with pytest.raises(OffsetOutOfRangeError):
        log.advance_start(5)
    with pytest.raises(FencedError):
        log.begin_epoch(4)
    assert (log.read(0, 1_000), log.end_offset) == (before, 4)
    log = a_log(tmp_path, large)
    with pytest.raises(BatchTooLargeError):
        log.append(a_batch([b"x" * 200]), 5, START)


def test_a_first_batch_is_read_whatever_its_size_and_others_only_whole(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    size = len(log.read(0, 1))
    assert offsets_in(log.read(0, 1)) == [(0, 2)]
    assert offsets_in(log.read(1, 2 * size)) == [(0, 2), (2, 4)]
    assert offsets_in(log.read(1, 2 * size - 1)) == [(0, 2)]
    assert offsets_in(log.read(0, 1_000, below=5)) == [(0, 2), (2, 4)]
    assert log.read(4, 1_000, below=5) == log.read(6, 1_000) == b""


def test_segments_end_by_size_and_by_time(tmp_path: Path) -> None:
    filled(tmp_path, 9)
    assert files(tmp_path, ".log") == [0, 6, 12]
    log = filled(tmp_path / "late", 9, LogConfig(segment_ms=3_500))
    assert files(tmp_path / "late", ".log") == [0, 8, 16]
    assert offsets_in(log.read(0, 10_000))[-1] == (6, 8), "one segment a read"


def test_a_segment_takes_no_more_fetched_batches_than_fit_into_it(tmp_path: Path) -> None:
    leader = filled(tmp_path / "leader", 9, LogConfig())
    follower = a_log(tmp_path / "follower")
    follower.append_fetched(leader.read(0, 10_000), START)
    assert files(tmp_path / "follower", ".log") == [0, 6, 12]
    assert follower.end_offset == 18


def test_old_segments_go_but_not_above_the_high_watermark(tmp_path: Path) -> None:
    log = filled(tmp_path, 9, msgspec.structs.replace(SMALL, retention_ms=10_000))
    assert log.retain(START + 12_000, 18) == []
    assert log.retain(START + 12_001, 5) == []
    assert log.retain(START + 12_001, 6) == [0]
    assert (log.start_offset, files(tmp_path, ".log")) == (6, [6, 12])
    with pytest.raises(OffsetOutOfRangeError, match="6 to 18"):
        log.read(5, 1)
    assert log.retain(START + 60_000, 18) == [6, 12], "the last one, too: nothing may be kept for longer"
    assert (log.start_offset, log.end_offset, files(tmp_path, ".log")) == (18, 18, [18])
    assert a_log(tmp_path).end_offset == 18


def test_the_oldest_segments_go_when_all_are_too_large(tmp_path: Path) -> None:
    log = filled(tmp_path, 12)
    segment_bytes = log.size // 4
    for kept, removed in ((2.5, [0]), (1, [6, 12]), (0, [18])):
        log.config = msgspec.structs.replace(SMALL, retention_bytes=int(kept * segment_bytes))
        assert log.retain(START, 24) == removed


def test_producers_are_known_when_all_of_their_batches_are_gone(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    batch = a_batch([b"a"], producer=(1, 0, 0))
    log.append(batch, 0, START)
    log.config = msgspec.structs.replace(SMALL, retention_bytes=0)
    assert log.retain(START, 1) == [0]
    log = a_log(tmp_path)
    assert log.append(batch, 0, START).is_duplicate
    log.retain(START + log.config.producer_id_expiration_ms + 1, 1)
    assert not log.append(batch, 0, START).is_duplicate, "until they were silent for long"


def test_leader_epochs_are_known_again_and_truncated(tmp_path: Path) -> None:
    log = filled(tmp_path, 4, epoch=1)
    log.begin_epoch(3)
    assert (log.latest_epoch, log.end_of_epoch(2), log.end_of_epoch(3)) == (3, EpochEnd(1, 8), EpochEnd(3, 8))
    log.append(a_batch(), 3, START)
    log.settle()
    log = a_log(tmp_path)
    assert (log.latest_epoch, log.end_of_epoch(2), log.end_of_epoch(3)) == (3, EpochEnd(1, 8), EpochEnd(3, 9))
    log.truncate(8)
    assert (log.latest_epoch, log.end_of_epoch(1), log.end_of_epoch(2)) == (1, EpochEnd(1, 8), EpochEnd(-1, -1))


def test_an_epoch_without_records_is_forgotten_by_a_truncation_that_takes_nothing(tmp_path: Path) -> None:
    """Or a leader that became a follower would name it for ever to a leader that has never heard of it."""
    log = filled(tmp_path, 4, epoch=1)
    log.begin_epoch(2)
    log.truncate(8)
    assert (log.latest_epoch, log.end_offset) == (1, 8)


def test_an_epoch_is_forgotten_with_its_records_also_where_a_segment_begins(tmp_path: Path) -> None:
    log = filled(tmp_path, 3, epoch=1)
    log.begin_epoch(2)
    log.append(a_batch(), 2, START)
    assert files(tmp_path, ".log") == [0, 6]
    log.truncate(6)
    assert (log.latest_epoch, log.end_offset) == (1, 6)
    assert a_log(tmp_path).latest_epoch == 1


def test_truncation_ends_before_the_batch_that_has_the_offset(tmp_path: Path) -> None:
    log = filled(tmp_path, 9)
    log.truncate(15)
    assert (log.end_offset, files(tmp_path, ".log")) == (14, [0, 6, 12])
    log.truncate(6)
    assert (log.end_offset, files(tmp_path, ".log")) == (6, [0, 6])
    log.truncate(0)
    assert (log.end_offset, log.size) == (0, 0)


def test_a_log_torn_at_any_byte_keeps_all_whole_batches(tmp_path: Path) -> None:
    filled(tmp_path / "whole", 6)
    last = f"{6:020}.log"
    data = (tmp_path / "whole" / FOLDER / last).read_bytes()
    ends = [position for position, _, _ in _batches(data)] + [len(data)]
    for cut in range(len(data) + 1):
        for tail in (b"", bytes(len(data) - cut)):
            folder = tmp_path / f"{cut}-{len(tail)}"
            shutil.copytree(tmp_path / "whole", folder)
            torn = data[:cut] + tail
            (folder / FOLDER / last).write_bytes(torn)
            log = a_log(folder)
            whole = sum(torn[:end] == data[:end] for end in ends) - 1
            assert log.end_offset == 6 + 2 * whole
            lost = len(torn) - ends[whole]
            assert (log.recovered is None) == (lost == 0)
            assert log.recovered is None or log.recovered.lost_bytes == lost
            log.append(a_batch(), 0, START)
            assert [one.base_offset for one in read_by_kio(everything(log, 6))] == list(range(6, 7 + 2 * whole, 2))
            shutil.rmtree(folder)


def _batches(data: bytes) -> list[tuple[int, int, int]]:
    found, position = [], 0
    while position < len(data):
        header = header_at(data, position)
        found.append((position, header.base_offset, header.next_offset))
        position += header.size
    return found


def test_a_flipped_bit_cuts_the_log_before_its_batch(tmp_path: Path) -> None:
    """But for the leader epoch, over which format 2 has no checksum: one that is higher than it was is believed."""
    filled(tmp_path / "whole", 3)
    path = Path(FOLDER) / f"{0:020}.log"
    data = (tmp_path / "whole" / path).read_bytes()
    size = len(data) // 3
    for position in (one for one in range(size, 2 * size) if not size + 12 <= one < size + 16):
        folder = tmp_path / str(position)
        shutil.copytree(tmp_path / "whole", folder)
        (folder / path).write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        log = a_log(folder)
        assert log.end_offset == 2, position
        assert log.recovered is not None
        assert (log.recovered.end_offset, log.recovered.lost_bytes) == (2, 2 * size)
        shutil.rmtree(folder)


def test_batches_behind_damage_in_an_unsettled_segment_go_with_it(tmp_path: Path) -> None:
    filled(tmp_path, 12)
    path = tmp_path / FOLDER / f"{6:020}.log"
    path.write_bytes(path.read_bytes()[:-1])
    log = a_log(tmp_path)
    assert (log.end_offset, files(tmp_path, ".log")) == (10, [0, 6])
    assert log.recovered is not None
    assert log.recovered.lost_bytes > log.size // 2


class CountingDisk(SimulatedDisk):
    """How many bytes were read, by path."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read: dict[str, int] = {}

    def read(self, path: str, position: int, size: int) -> bytes:
        data = super().read(path, position, size)
        self.bytes_read[path] = self.bytes_read.get(path, 0) + len(data)
        return data


def logs_read(disk: CountingDisk) -> list[int]:
    """By base offset, the segments whose batches were read whole."""
    return [
        int(path.rpartition("/")[2][:20])
        for path, count in sorted(disk.bytes_read.items())
        if path.endswith(".log") and count >= disk.size(path)
    ]


def test_settled_segments_are_not_read_again_on_open() -> None:
    disk = CountingDisk()
    log = Log(disk, FOLDER, SMALL)
    for index in range(12):
        log.append(a_batch([b"a", b"b"], producer=(1, 0, 2 * index), timestamp=START + 1_000 * index), 0, START)
        if index == 7:
            log.settle()
    disk.bytes_read.clear()
    log = Log(disk, FOLDER, SMALL)
    assert logs_read(disk) == [12, 18]
    assert log.append(a_batch([b"a", b"b"], producer=(1, 0, 16)), 0, START).is_duplicate
    assert log.offset_since(START + 3_000) == (6, START + 3_000)
    assert log.max_timestamp == START + 11_000


@pytest.mark.parametrize("suffix", [".settled", ".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "nonsense", "another's"])
def test_whatever_is_beside_the_batches_is_made_anew(tmp_path: Path, suffix: str, damage: str) -> None:
    log = a_log(tmp_path)
    for index in range(12):
        log.append(a_batch([b"a", b"b"], producer=(1, 0, 2 * index), timestamp=START + 1_000 * index), 0, START)
    log.settle()
    names = sorted((tmp_path / FOLDER).glob(f"*{suffix}"))
    contents = [path.read_bytes() for path in names]
    for index, path in enumerate(names):
        if damage == "gone":
            path.unlink()
        else:
            data = contents[index]
            path.write_bytes({"empty": b"", "cut": data[:-1], "nonsense": b"\xff" * len(data),
                              "another's": contents[index - 1] + data}[damage])  # fmt: skip
    log = a_log(tmp_path)
    assert log.recovered is None
    assert [offsets_in(log.read(offset, 1))[0] for offset in range(0, 24, 2)] == [
        (offset, offset + 2) for offset in range(0, 24, 2)
    ]
    assert log.append(a_batch([b"a", b"b"], producer=(1, 0, 14)), 0, START).base_offset == 14
    assert [log.offset_since(START + 1_000 * index) for index in range(12)] == [
        (2 * index, START + 1_000 * index) for index in range(12)
    ]


class SyncingDisk(SimulatedDisk):
    """The synced files, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync(self, path: str) -> None:
        super().sync(path)
        self.synced.append(path)


def test_nothing_is_synced_unless_it_was_asked_for() -> None:
    disk = SyncingDisk()
    log = Log(disk, FOLDER, SMALL)
    for _ in range(20):
        log.append(a_batch(), 0, START)
        log.flush_due(START + 1_000_000)
    assert disk.synced == []


def test_so_many_records_are_not_left_unsynced() -> None:
    disk = SyncingDisk()
    log = Log(disk, FOLDER, LogConfig(flush_messages=3))
    for count, synced in ((1, 0), (1, 0), (1, 1), (2, 1), (1, 2), (5, 3)):
        log.append(a_batch([b"x"] * count), 0, START)
        assert len(disk.synced) == synced


def test_no_record_is_left_unsynced_for_long() -> None:
    disk = SyncingDisk()
    log = Log(disk, FOLDER, LogConfig(flush_ms=100))
    log.append(a_batch(), 0, START)
    log.append(a_batch(), 0, START + 50)
    log.flush_due(START + 99)
    assert disk.synced == []
    log.flush_due(START + 100)
    log.flush_due(START + 1_000)
    assert len(disk.synced) == 1


class FullDisk(SimulatedDisk):
    """Takes so many more bytes."""

    room = 1_000

    def append(self, path: str, data: bytes | bytearray | memoryview) -> None:
        super().append(path, memoryview(data)[: self.room])
        self.room -= len(data)
        if self.room < 0:
            raise OSError("no room is left")


def test_a_log_whose_disk_failed_takes_nothing_until_it_is_opened_again() -> None:
    disk = FullDisk()
    log = Log(disk, FOLDER, SMALL)
    log.append(a_batch(), 0, START)
    disk.room = 30
    with pytest.raises(OSError, match="no room"):
        log.append(a_batch(), 0, START)
    disk.room = 1_000
    uses: Sequence[tuple[str, tuple[object, ...]]] = [
        ("append", (a_batch(), 0, START)), ("append_fetched", (a_batch(base_offset=1), START)), ("read", (0, 1)),
        ("truncate", (0,)), ("start_anew", (0,)), ("retain", (START, 0)), ("settle", ()), ("flush", ()),
    ]  # fmt: skip
    for name, arguments in uses:
        with pytest.raises(LogFailedError, match="open the log again"):
            getattr(log, name)(*arguments)
    log = Log(disk, FOLDER, SMALL)
    assert log.recovered is not None
    assert log.recovered.lost_bytes == 30
    assert log.append(a_batch(), 0, START).base_offset == 1


def test_a_deleted_log_leaves_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path, 9)
    log.settle()
    log.delete()
    assert list(tmp_path.iterdir()) == []


def test_configuration_has_kafkas_names_and_limits() -> None:
    assert msgspec.convert({"segment.bytes": 1_000, "flush.messages": 1}, LogConfig) == LogConfig(
        segment_bytes=1_000, flush_messages=1
    )
    for name, value in {"segment.bytes": 13, "flush.messages": 0, "retention.ms": -2, "max.message.bytes": -1}.items():
        with pytest.raises(msgspec.ValidationError, match=name):
            msgspec.convert({name: value}, LogConfig)
