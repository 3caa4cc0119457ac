"""Record batches of format 2, as Kafka's producers send them and its brokers keep them.

A batch is a header of 61 bytes and records that stay opaque: they may be compressed. The checksum (CRC-32C) covers all
but offset, length, leader epoch, format and itself; so a broker sets offset and leader epoch without a new checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import msgspec
from crc32c import crc32c

from brokerstub.records.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    OldFormatError,
    UnknownCompressionError,
)

Bytes = bytes | bytearray | memoryview

#: base offset, length of the rest, leader epoch, format, checksum, attributes, offset of the last record above the
#: base, first and highest timestamp, producer id, producer epoch, sequence number of the first record, records
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = _HEADER.size
_BEFORE_LENGTH: Final = 12  # base offset and the length itself
_FORMAT_AT: Final = 16
_CHECKSUM_AT: Final = 17
_COVERED_FROM: Final = 21  # by the checksum
_EPOCH: Final = struct.Struct(">i")
_EPOCH_AT: Final = 12
_MAX_TIMESTAMP_AT: Final = 35
FORMAT: Final = 2
#: no broker keeps larger ones, whatever `max.message.bytes` says
BATCH_MAX_BYTES: Final = 64 * 1024 * 1024
OFFSET_MAX: Final = (1 << 63) - 1
NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1

_COMPRESSION: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class Compression(IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Header(msgspec.Struct, frozen=True, gc=False):
    """The header of a batch, before its records."""

    base_offset: int
    #: of the whole batch, in bytes
    size: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def count(self) -> int:
        return self.last_offset_delta + 1

    @property
    def is_compressed(self) -> bool:
        return self.attributes & _COMPRESSION != Compression.NONE

    @property
    def has_append_time(self) -> bool:
        """Its timestamps are those of the broker that appended it, and not of the producer."""
        return self.attributes & _LOG_APPEND_TIME != 0


def header_at(data: Bytes, position: int = 0) -> Header:
    """Returns the header of the batch that begins there and is whole, checked but for its checksum."""
    rest = len(data) - position
    if rest < HEADER_BYTES:
        if rest > _FORMAT_AT and data[position + _FORMAT_AT] in (0, 1):
            raise _old_format(data[position + _FORMAT_AT])
        raise CorruptBatchError(f"a batch has at least {HEADER_BYTES} bytes, here are {rest}")
    (
        base,
        length,
        epoch,
        version,
        _,
        attributes,
        delta,
        first_ms,
        max_ms,
        producer_id,
        producer_epoch,
        sequence,
        count,
    ) = _HEADER.unpack_from(data, position)
    if version != FORMAT:
        raise _old_format(version) if version in (0, 1) else CorruptBatchError(f"format {version}, 2 is expected")
    size = _BEFORE_LENGTH + length
    if not HEADER_BYTES <= size <= min(rest, BATCH_MAX_BYTES):
        raise CorruptBatchError(f"a batch says that it has {size} bytes, where {rest} are left")
    if count < 1 or delta != count - 1:
        raise CorruptBatchError(f"a batch of {count} records, the last of them with number {delta}")
    if not 0 <= base <= OFFSET_MAX - count:
        raise CorruptBatchError(f"offset {base} for a batch of {count} records")
    return Header(base, size, epoch, attributes, delta, first_ms, max_ms, producer_id, producer_epoch, sequence)


def _old_format(version: int) -> OldFormatError:
    return OldFormatError(f"message format {version}: clients of Kafka 0.11 and later send format 2")


def check_sum(data: Bytes, header: Header, position: int = 0) -> None:
    """Raises unless the batch that begins there is as it was sent."""
    (said,) = struct.unpack_from(">I", data, position + _CHECKSUM_AT)
    found = crc32c(memoryview(data)[position + _COVERED_FROM : position + header.size])
    if said != found:
        raise CorruptBatchError(f"checksum {found:#010x}, and the batch says {said:#010x}")


def batches_in(data: Bytes) -> Iterator[tuple[int, Header]]:
    """The position and header of each batch; bytes behind the last whole one are refused."""
    position = 0
    while position < len(data):
        header = header_at(data, position)
        yield position, header
        position += header.size


def produced(data: Bytes, max_bytes: int) -> Header:
    """Checks a producer's data for one partition: one batch, as clients since Kafka 0.11 send it."""
    header = header_at(data)
    if header.size != len(data):
        raise InvalidBatchError(f"one batch is expected, and {len(data) - header.size} bytes follow it")
    if header.size > max_bytes:
        raise BatchTooLargeError(f"a batch of {header.size} bytes, max.message.bytes is {max_bytes}")
    check_sum(data, header)
    if header.attributes & _COMPRESSION not in Compression.__members__.values():
        raise UnknownCompressionError(f"compression {header.attributes & _COMPRESSION}")
    if header.attributes & _CONTROL:
        raise InvalidBatchError("only brokers write control batches")
    if header.attributes & _TRANSACTIONAL:
        raise InvalidBatchError("transactions are not served: produce without transactional.id")
    if header.producer_id != NO_PRODUCER and (
        header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0
    ):
        raise InvalidBatchError(
            f"producer {header.producer_id}, epoch {header.producer_epoch}, sequence number {header.base_sequence}"
        )
    return header


def stamped(data: Bytes, base_offset: int, leader_epoch: int, append_ms: int | None = None) -> bytearray:
    """Returns a copy of a batch with its place in the log; `append_ms`: its timestamps become this."""
    copy = bytearray(data)
    struct.pack_into(">q", copy, 0, base_offset)
    _EPOCH.pack_into(copy, _EPOCH_AT, leader_epoch)
    if append_ms is not None:
        (attributes,) = struct.unpack_from(">h", copy, _COVERED_FROM)
        struct.pack_into(">h", copy, _COVERED_FROM, attributes | _LOG_APPEND_TIME)
        struct.pack_into(">q", copy, _MAX_TIMESTAMP_AT, append_ms)
        struct.pack_into(">I", copy, _CHECKSUM_AT, crc32c(memoryview(copy)[_COVERED_FROM:]))
    return copy


def first_record_since(batch: Bytes, timestamp: int) -> tuple[int, int]:
    """Offset and timestamp of the first record of a batch that is not older. Records of a compressed batch cannot be
    told apart here: the answer is its first one, with the highest timestamp of all."""
    header = header_at(batch)
    if not header.is_compressed and not header.has_append_time:
        position = HEADER_BYTES
        for _ in range(header.count):
            length, inside = _varint_at(batch, position)
            time_delta, after_time = _varint_at(batch, inside + 1)  # behind its attributes
            offset_delta, _ = _varint_at(batch, after_time)
            if header.base_timestamp + time_delta >= timestamp:
                return header.base_offset + offset_delta, header.base_timestamp + time_delta
            position = inside + length
    return header.base_offset, header.max_timestamp


def _varint_at(data: Bytes, position: int) -> tuple[int, int]:
    """Returns a signed number in zigzag encoding, at most ten bytes, and where the next begins."""
    value = 0
    for index in range(10):
        if position + index >= len(data):
            break
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + index + 1
    raise CorruptBatchError(f"no number at byte {position} of a batch")
