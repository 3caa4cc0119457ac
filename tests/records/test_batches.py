"""Record batches: those of librdkafka and of kio are understood, and a damaged one is named."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from brokerstub.records.batches import batches_in, check_sum, first_record_since, header_at, produced, stamped
from brokerstub.records.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    OldFormatError,
    RecordsError,
    UnknownCompressionError,
)
from tests.records.support import START, a_batch, read_by_kio, recorded

CLIENTS = ["librdkafka-none", "librdkafka-gzip", "librdkafka-snappy", "librdkafka-lz4", "librdkafka-zstd"]
LARGE = 1 << 20


def resummed(batch: bytearray) -> bytes:
    """With a checksum that is right again."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def changed(position: int, form: str, value: int, *, is_resummed: bool = True) -> bytes:
    batch = bytearray(a_batch([b"one", b"two"], producer=(7, 0, 0)))
    struct.pack_into(form, batch, position, value)
    return resummed(batch) if is_resummed else bytes(batch)


@pytest.mark.parametrize("client", CLIENTS)
def test_batches_of_real_clients_are_understood(client: str) -> None:
    headers = [produced(batch, LARGE) for batch in recorded(f"{client}.bin")]
    assert sum(header.count for header in headers) == 40
    assert {header.producer_id >= 0 for header in headers} == {True}
    assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]
    assert {header.is_compressed for header in headers} == {client != "librdkafka-none"}


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.integers(0, 1 << 40), st.integers(0, 1 << 30))
def test_a_stamped_batch_is_the_same_at_its_place(values: list[bytes], offset: int, epoch: int) -> None:
    data = stamped(a_batch(values), offset, epoch)
    (batch,) = read_by_kio(bytes(data))  # checks the checksum, too
    assert (batch.base_offset, batch.partition_leader_epoch) == (offset, epoch)
    assert [record.value for record in batch.records] == values
    assert produced(data, LARGE).next_offset == offset + len(values)


def test_the_brokers_time_takes_the_place_of_the_producers() -> None:
    data = stamped(a_batch([b"a", b"b"]), 5, 1, START + 9_000)
    header = produced(data, LARGE)
    assert (header.max_timestamp, header.has_append_time) == (START + 9_000, True)
    assert first_record_since(data, START + 5_000) == (5, START + 9_000)


def test_the_first_record_that_is_not_older() -> None:
    times = [START, START + 2_000, START + 1_000, START + 5_000]
    data = bytes(stamped(a_batch([b"x" * 100] * 4, timestamps=times), 10, 0))
    found = [first_record_since(data, START + more) for more in (0, 1, 2_000, 2_001, 5_000)]
    assert [offset for offset, _ in found] == [10, 11, 11, 13, 13]
    assert [timestamp for _, timestamp in found] == [START, START + 2_000, START + 2_000, START + 5_000, START + 5_000]


@pytest.mark.parametrize(
    ("data", "refusal", "words"),
    [
        (b"", CorruptBatchError, "at least 61 bytes"),
        (a_batch()[:60], CorruptBatchError, "at least 61 bytes"),
        (a_batch()[:-1], CorruptBatchError, "says that it has"),
        (a_batch() + b"x", InvalidBatchError, "1 bytes follow"),
        (a_batch() * 2, InvalidBatchError, "bytes follow"),
        (changed(8, ">i", -1), CorruptBatchError, "says that it has 11 bytes"),
        (changed(8, ">i", 48), CorruptBatchError, "says that it has 60 bytes"),
        (changed(8, ">i", (1 << 31) - 1), CorruptBatchError, "says that it has"),
        (changed(16, ">b", 1), OldFormatError, "message format 1"),
        (bytes(16) + b"\0" + bytes(10), OldFormatError, "message format 0"),
        (changed(16, ">b", 3), CorruptBatchError, "format 3"),
        (changed(17, ">I", 1, is_resummed=False), CorruptBatchError, "checksum"),
        (changed(0, ">q", -1), CorruptBatchError, "offset -1"),
        (changed(0, ">q", (1 << 63) - 2), CorruptBatchError, "offset"),
        (changed(57, ">i", 0), CorruptBatchError, "0 records"),
        (changed(57, ">i", 3), CorruptBatchError, "3 records"),
        (changed(57, ">i", -2), CorruptBatchError, "-2 records"),
        (changed(23, ">i", -1), CorruptBatchError, "number -1"),
        (changed(21, ">h", 5), UnknownCompressionError, "compression 5"),
        (changed(21, ">h", 0x10), InvalidBatchError, "transactional.id"),
        (changed(21, ">h", 0x20), InvalidBatchError, "control"),
        (changed(43, ">q", -2), InvalidBatchError, "producer -2"),
        (changed(51, ">h", -1), InvalidBatchError, "epoch -1"),
        (changed(53, ">i", -1), InvalidBatchError, "sequence number -1"),
        (a_batch([b"x" * LARGE]), BatchTooLargeError, "max.message.bytes is 1048576"),
    ],
)
def test_a_produced_batch_that_makes_no_sense_is_refused(data: bytes, refusal: type[RecordsError], words: str) -> None:
    with pytest.raises(refusal, match=words):
        produced(data, LARGE)


@given(st.data())
def test_any_flipped_bit_that_matters_is_seen(data: st.DataObject) -> None:
    """But for offset and leader epoch, which the broker sets."""
    batch = bytearray(a_batch([b"one", b"two"], producer=(7, 0, 0)))
    position = data.draw(st.integers(8, len(batch) - 1).filter(lambda at: not 12 <= at < 16))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RecordsError):
        produced(batch, LARGE)


@given(st.binary(max_size=200) | st.builds(lambda head, tail: head + tail, st.just(a_batch()), st.binary(max_size=90)))
def test_whatever_comes_is_batches_or_refused(data: bytes) -> None:
    with suppress(RecordsError):
        for position, header in batches_in(data):
            check_sum(data, header, position)
            first_record_since(data[position : position + header.size], START)


def test_a_record_that_ends_nowhere_is_corrupt() -> None:
    batch = bytearray(a_batch([b"one"]))
    batch[61:] = b"\xff" * (len(batch) - 61)
    with pytest.raises(CorruptBatchError, match="no number"):
        first_record_since(resummed(batch), START)
    assert header_at(batch).count == 1
