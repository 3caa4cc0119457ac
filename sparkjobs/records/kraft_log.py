"""KRaft's files: segments (`OFFSET.log`) and snapshots (`OFFSET-EPOCH.checkpoint`) of `__cluster_metadata`.

Owns how record batches lie in them. A tail that is shorter than it says, or all zeros, ends a file: it was being
written. A batch whose checksum does not fit is an error, as is a compressed one: Kafka compresses none here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import crc32c

from sparkjobs.records.errors import RecordError
from sparkjobs.records.kraft_messages import Message, UnknownRecordError, control_in, message_in

#: of a batch, at most: Kafka's own limit is 8 MiB
MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
_HEAD = struct.Struct(">qi")  # base offset, length of what follows
_REST = struct.Struct(">ibIhiqqqhii")
_CONTROL, _COMPRESSED = 0x20, 0x07
_CRC_FROM: Final = 9  # of what follows the length
_NO_LENGTH: Final = 0
CHECKPOINT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


class Record(NamedTuple):
    """One record. `message` is None where this reader does not know what was written: `unknown` says what."""

    offset: int
    message: Message | None
    unknown: str | None


class Batch(NamedTuple):
    """Records that were written together, by the controller of `epoch`; the time is that controller's clock."""

    base_offset: int
    last_offset: int
    epoch: int
    at_ms: int
    is_control: bool
    records: list[Record]
    position: int  # of its first byte
    size_bytes: int


def batches_in(content: BinaryIO) -> Iterator[Batch]:
    """The batches of one file, in order. Raises RecordError where one is damaged: what follows cannot be trusted."""
    position = 0
    while True:
        head = _read(content, _HEAD.size)
        if len(head) < _HEAD.size:
            return
        base_offset, length = _HEAD.unpack(head)
        if (base_offset, length) == (0, _NO_LENGTH):
            return  # space that was allocated ahead
        if not _REST.size <= length <= MAX_BATCH_BYTES:
            raise RecordError(f"at byte {position}: a batch of {length} bytes")
        body = _read(content, length)
        if len(body) < length:
            return  # it was being written
        yield _batch_of(base_offset, body, position)
        position += _HEAD.size + length


def _read(content: BinaryIO, length: int) -> bytes:
    found = content.read(length)
    while len(found) < length and (more := content.read(length - len(found))):
        found += more
    return found


def _batch_of(base_offset: int, body: bytes, position: int) -> Batch:
    epoch, magic, checksum, attributes, last_delta, at_ms, _, _, _, _, count = _REST.unpack_from(body)
    if magic != 2:
        raise RecordError(f"at byte {position}: a batch of format {magic}; metadata logs have format 2")
    if crc32c.crc32c(body[_CRC_FROM:]) != checksum:
        raise RecordError(f"at byte {position}: a damaged batch: its checksum does not fit")
    if attributes & _COMPRESSED:
        raise RecordError(f"at byte {position}: a compressed batch; metadata logs have none")
    if not 0 <= count <= len(body) or base_offset < 0:
        raise RecordError(f"at byte {position}: a batch of {count} records from offset {base_offset}")
    is_control = bool(attributes & _CONTROL)
    at = _REST.size
    records = []
    try:
        for _ in range(count):
            size, at = _varint(body, at)
            end = at + size
            if size < 0 or end > len(body):
                raise EOFError("a record goes on after its batch")
            records.append(_record_of(base_offset, body, at, end, is_control))
            at = end
    except EOFError as error:
        raise RecordError(f"at byte {position}: {error}") from None
    except RecordError as error:
        raise RecordError(f"at byte {position}: {error}") from None
    size_bytes = _HEAD.size + len(body)
    return Batch(base_offset, base_offset + last_delta, epoch, at_ms, is_control, records, position, size_bytes)


def _record_of(base_offset: int, body: bytes, at: int, end: int, is_control: bool) -> Record:
    _, at = _varint(body, at + 1)  # after its attributes, the time since the batch's: always nought
    delta, at = _varint(body, at)
    key, at = _bytes(body, at, end)
    value, at = _bytes(body, at, end)
    headers, at = _varint(body, at)
    if at != end or headers:
        raise EOFError("a record with headers, or not as long as it says")
    offset = base_offset + delta
    try:
        message = control_in(key or b"", value or b"") if is_control else message_in(value or b"")
    except UnknownRecordError as error:
        return Record(offset, None, str(error))
    return Record(offset, message, None)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(body):
            raise EOFError("a number goes on after its batch")
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise EOFError("a number goes on for too long")


def _bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _varint(body, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise EOFError("a value goes on after its record")
    return body[at : at + length], at + length
