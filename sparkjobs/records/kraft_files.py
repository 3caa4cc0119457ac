"""KRaft's files: segments (`OFFSET.log`) and snapshots (`OFFSET-EPOCH.checkpoint`) of `__cluster_metadata`.

The module owns how record batches lie in them. A tail that is shorter than it says, or all zeros, ends a file: it was
being written. A batch whose checksum does not fit is an error, as is a compressed batch: Kafka compresses none here.

The messages are read by a table of fields (`kraft_schemas.json`), which `tests/kraft_schemas.py` generates from the
schemas in Kafka's jars, every version of every record. A record or version that the table does not have is named, never
guessed. A field that is absent has its default and is left out, as Kafka's own tool leaves it out.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, BinaryIO, Final

import crc32c
import msgspec

from sparkjobs.records import RecordError

_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_FRAME_VERSION: Final = 1
_NUMBERS: Final = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q", "float64": ">d"}
#: fields with passwords or keys: named, and never handed on
SECRET: Final = frozenset({"UserScramCredentialRecord", "DelegationTokenRecord"})


#: frame version and key of a PartitionChangeRecord; its head: these, version, number, topic id
_CHANGE_BYTES: Final = b"\x01\x05"
_CHANGE_HEAD: Final = struct.Struct(">HBi16s")
_CHANGE_BYTES_MAX: Final = 512
_LIST: Final = -1
_LISTS: Final = [struct.Struct(f">{count}i") for count in range(32)]


class UnknownRecordError(RecordError):
    """A record or a version that the table does not have: a later release of Kafka wrote it."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """One record: its schema's name, its version, and the fields that it has."""

    name: str
    version: int
    fields: dict[str, Any]

    @property
    def type(self) -> str:
        """As Kafka's dump tool prints it: PARTITION_CHANGE_RECORD."""
        return type_of(self.name)


@cache
def type_of(name: str) -> str:
    """`PartitionChangeRecord` is PARTITION_CHANGE_RECORD."""
    return _CAMEL.sub("_", name).upper()


class _Cursor:
    """Bytes of one record, and how far they were read."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, length: int) -> bytes:
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise EOFError(f"{length} bytes were due at byte {self.at} of {len(self.data)}")
        found = self.data[self.at : end]
        self.at = end
        return found

    def unsigned(self) -> int:
        """Returns an unsigned number of variable length."""
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise EOFError(f"a number goes on for too long at byte {self.at}")


_Read = Callable[[_Cursor], Any]


def message_in(value: bytes) -> Message:
    """One metadata record. Raises UnknownRecordError, and RecordError for bytes that do not fit."""
    if value[:2] == _CHANGE_BYTES and (change := _partition_change_in(value)) is not None:
        return change
    return message_by_schema(value)


def message_by_schema(value: bytes) -> Message:
    """Returns the same for every record, by the table alone."""
    cursor = _Cursor(value)
    try:
        if (frame := cursor.unsigned()) != _FRAME_VERSION:
            raise UnknownRecordError(f"a record with frame version {frame}")
        name, read = _reader_of(cursor.unsigned(), version := cursor.unsigned())
        return _whole(name, version, cursor, read)
    except EOFError as error:
        raise RecordError(f"a metadata record is cut short: {error}") from None


def _partition_change_in(value: bytes) -> Message | None:
    """Returns the record of which a large log has most, without a cursor. None where it is not the usual one, or
    damaged."""
    if not _CHANGE_HEAD.size <= len(value) <= _CHANGE_BYTES_MAX:
        return None
    _, version, partition, topic_id = _CHANGE_HEAD.unpack_from(value)
    tagged = _tagged_in(version, value[_CHANGE_HEAD.size :])
    if tagged is None:
        return None
    fields = {"partitionId": partition, "topicId": _cached_uuid_text(topic_id), **tagged}
    return Message("PartitionChangeRecord", version, fields)


@lru_cache(20_000)  # brokers that come and go change many partitions in the same way
def _tagged_in(version: int, data: bytes) -> dict[str, Any] | None:
    """Everything that the change says; None where it is not so simple."""
    if not data or data[0] >= 0x80 or (tags := _change_tags(version)) is None:
        return None
    fields: dict[str, Any] = {}
    at, length = 1, len(data)
    for _ in range(data[0]):
        if at + 2 > length:
            return None
        size = data[at + 1]
        name, kind = tags[data[at]] if data[at] < len(tags) else ("", 0)
        at += 2
        if at + size > length or size >= 0x80:
            return None
        if kind == _LIST:
            numbers = data[at] - 1 if size else -1
            if numbers < 0 or size != 1 + 4 * numbers:
                return None
            fields[name] = list(_LISTS[numbers].unpack_from(data, at + 1))
        elif kind and kind == size:
            fields[name] = int.from_bytes(data[at : at + size], "big", signed=True)
        else:
            return None
        at += size
    return fields if at == length else None


@cache
def _change_tags(version: int) -> tuple[tuple[str, int], ...] | None:
    """By tag: the field's name, and its size or that it is a list of numbers; 0: another kind."""
    schema = _table()["records"]["PartitionChangeRecord"]
    if not schema["versions"][0] <= version <= schema["versions"][1]:
        return None
    known = {one["tag"]: one for one in schema["fields"]
             if "tag" in one and _is_in(version, one["versions"]) and _is_in(version, one["tagged"])}  # fmt: skip
    kinds = {"[]int32": _LIST, "int32": 4, "int8": 1}
    return tuple(
        (known[tag]["name"], kinds.get(known[tag]["type"], 0)) if tag in known else ("", 0)
        for tag in range(max(known) + 1)
    )


def control_in(key: bytes, value: bytes) -> Message:
    """Decodes one control record, in which the quorum describes itself."""
    try:
        _, kind = struct.unpack_from(">hh", key)
        version = int.from_bytes(_Cursor(value).take(2), "big")
        name, read = _control_reader_of(kind, version)
        return _whole(name, version, _Cursor(value), read)
    except (EOFError, struct.error) as error:
        raise RecordError(f"a control record is cut short: {error}") from None


def _whole(name: str, version: int, cursor: _Cursor, read: _Read) -> Message:
    try:
        fields = read(cursor)
    except (EOFError, UnicodeDecodeError) as error:
        raise RecordError(f"{name} of version {version} does not fit its schema: {error}") from None
    if cursor.at != len(cursor.data):
        raise RecordError(f"{name} of version {version} has {len(cursor.data) - cursor.at} bytes too many")
    return Message(name, version, fields)


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files("sparkjobs.records").joinpath("kraft_schemas.json").read_text("utf-8"))
    return found


@cache
def _by_key(part: str) -> dict[int, tuple[str, dict[str, Any]]]:
    return {one["key"]: (name, one) for name, one in _table()[part].items()}


@cache
def _reader_of(key: int, version: int) -> tuple[str, _Read]:
    return _found("records", key, version, "metadata record")


@cache
def _control_reader_of(kind: int, version: int) -> tuple[str, _Read]:
    return _found("control", kind, version, "control record")


def _found(part: str, key: int, version: int, what: str) -> tuple[str, _Read]:
    if key not in (known := _by_key(part)):
        raise UnknownRecordError(f"{what} {key} is unknown here")
    name, schema = known[key]
    first, last = schema["versions"]
    if not first <= version <= last:
        raise UnknownRecordError(f"{name} of version {version}: versions {first} to {last} are known here")
    return name, _struct_reader(schema["fields"], version)


def _is_in(version: int, versions: list[int | None] | None) -> bool:
    if versions is None or versions[0] is None:
        return False
    return versions[0] <= version and (versions[1] is None or version <= versions[1])


def _struct_reader(fields: list[dict[str, Any]], version: int) -> _Read:
    plain: list[tuple[str, _Read]] = []
    tagged: dict[int, tuple[str, _Read]] = {}
    for one in fields:
        if _is_in(version, one["versions"]):
            pair = one["name"], _field_reader(one, version)
            if _is_in(version, one.get("tagged")):
                tagged[one["tag"]] = pair
            else:
                plain.append(pair)

    def read(cursor: _Cursor) -> dict[str, Any]:
        found = {name: read_one(cursor) for name, read_one in plain}
        for _ in range(cursor.unsigned()):
            tag, size = cursor.unsigned(), cursor.unsigned()
            end = cursor.at + size
            if tag not in tagged:
                cursor.take(size)  # of a later release that adds to this version
                continue
            name, read_one = tagged[tag]
            found[name] = read_one(cursor)
            if cursor.at != end:
                raise EOFError(f"{name} is not as long as it says")
        return found

    return read


def _field_reader(field: dict[str, Any], version: int) -> _Read:
    kind: str = field["type"]
    nullable = _is_in(version, field.get("nullable"))
    if not kind.startswith("[]"):
        return _one_reader(kind, field, version, nullable)
    read_one = _one_reader(kind.removeprefix("[]"), field, version, False)

    def read(cursor: _Cursor) -> list[Any] | None:
        count = cursor.unsigned() - 1
        if count < 0 and nullable:
            return None
        if not 0 <= count <= len(cursor.data) - cursor.at:  # each takes a byte at least
            raise EOFError(f"a list of {count} at byte {cursor.at}")
        return [read_one(cursor) for _ in range(count)]

    return read


def _one_reader(kind: str, field: dict[str, Any], version: int, nullable: bool) -> _Read:
    if kind in _NUMBERS:
        number = struct.Struct(_NUMBERS[kind])
        return lambda cursor: number.unpack(cursor.take(number.size))[0]
    match kind:
        case "bool":
            return lambda cursor: cursor.take(1) != b"\0"
        case "uuid":
            return lambda cursor: _cached_uuid_text(cursor.take(16))
        case "struct":
            return _struct_reader(field["fields"], version)
        case "string" | "bytes":
            return _text_reader(kind, nullable)
    raise AssertionError(f"the table has a type {kind} that the reader lacks")


def _text_reader(kind: str, nullable: bool) -> _Read:
    def read(cursor: _Cursor) -> str | None:
        length = cursor.unsigned() - 1
        if length < 0:
            if nullable:
                return None
            raise EOFError(f"a {kind} that may not be null is, at byte {cursor.at}")
        data = cursor.take(length)
        return data.decode() if kind == "string" else base64.b64encode(data).decode()

    return read


def uuid_text(data: bytes) -> str:
    """As Kafka writes ids: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


#: of topics and folders, whose ids come again
_cached_uuid_text = lru_cache(100_000)(uuid_text)


_NO_OP: Final = Message("NoOpRecord", 0, {})
_NO_OP_BYTES: Final = b"\x01\x14\x00\x00"
#: a batch's only record, which says nothing: an idle controller writes one twice a second
_IDLE: Final = b"\x14\x00\x00\x00\x01\x08" + _NO_OP_BYTES + b"\x00"
#: of a batch, at most: Kafka's own limit is 8 MiB
MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
_HEAD = struct.Struct(">qi")  # base offset, length of the rest
_WHOLE = struct.Struct(">qiibIhiqqqhii")  # with the rest of the batch's head
_REST_BYTES: Final = _WHOLE.size - _HEAD.size
_READ_BYTES: Final = 1 << 20
_IDLE_BYTES: Final = _REST_BYTES + len(_IDLE)
_CONTROL, _COMPRESSED = 0x20, 0x07
_CRC_FROM: Final = 9  # of the bytes after the length
_NO_LENGTH: Final = 0
#: the length of a key that is null, as it is written; a number of two bytes is below this
_NO_KEY, _TWO_BYTES = 1, 1 << 14
CHECKPOINT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. `message` is None for a record that this reader does not know: `unknown` names it."""

    offset: int
    message: Message | None
    unknown: str | None


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A batch whose checksum fits, its records not decoded yet; the time is its controller's clock."""

    base_offset: int
    last_offset: int
    epoch: int
    at_ms: int
    is_control: bool
    count: int
    body: bytes  # after the length
    position: int  # of its first byte
    size_bytes: int


class Batch(msgspec.Struct, frozen=True, gc=False):
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
    """Yields the batches of one file, in order. Raises RecordError where one is damaged: the bytes after it cannot be
    trusted."""
    for frame in frames_in(content):
        yield batch_of(frame)


def frames_in(content: BinaryIO, *, is_known: bool = False) -> Iterator[Frame]:
    """The same without the records: their order, epochs and times are in the heads. `is_known`: it was read before."""
    buffer, at, passed = b"", 0, 0
    unpack, checksum_of = _WHOLE.unpack_from, crc32c.crc32c
    while True:
        if len(buffer) - at < _WHOLE.size:
            buffer, at, passed = _refilled(content, buffer, at, passed, _WHOLE.size)
            if len(buffer) < _WHOLE.size:
                _check_tail(buffer, passed)
                return
        base_offset, length, epoch, magic, checksum, attributes, last_delta, at_ms, _, _, _, _, count = unpack(
            buffer, at
        )
        if length == _NO_LENGTH and base_offset == 0:
            return  # space that was allocated ahead
        if not _REST_BYTES <= length <= MAX_BATCH_BYTES:
            raise RecordError(f"at byte {passed + at}: a batch of {length} bytes")
        size = _HEAD.size + length
        if len(buffer) - at < size:
            buffer, at, passed = _refilled(content, buffer, at, passed, size)
            if len(buffer) < size:
                return  # it was being written
        body = buffer[at + _HEAD.size : at + size]
        if magic != 2:
            raise RecordError(f"at byte {passed + at}: a batch of format {magic}; metadata logs have format 2")
        if not is_known and checksum_of(body[_CRC_FROM:]) != checksum:
            raise RecordError(f"at byte {passed + at}: a damaged batch: its checksum does not fit")
        if attributes & _COMPRESSED:
            raise RecordError(f"at byte {passed + at}: a compressed batch; metadata logs have none")
        if not 0 <= count <= length or base_offset < 0:
            raise RecordError(f"at byte {passed + at}: a batch of {count} records from offset {base_offset}")
        is_control = attributes & _CONTROL != 0
        yield Frame(base_offset, base_offset + last_delta, epoch, at_ms, is_control, count, body, passed + at, size)
        at += size


def _refilled(content: BinaryIO, buffer: bytes, at: int, passed: int, least: int) -> tuple[bytes, int, int]:
    """Returns what is left of the buffer and what follows it, at least so much where the file has it."""
    pieces, length = [buffer[at:]], len(buffer) - at
    while length < least and (more := content.read(max(_READ_BYTES, least - length))):
        pieces.append(more)
        length += len(more)
    return b"".join(pieces), 0, passed + at


def _check_tail(buffer: bytes, position: int) -> None:
    """Less than a head: it was being written, unless its length is none that a batch can have."""
    if len(buffer) >= _HEAD.size:
        base_offset, length = _HEAD.unpack_from(buffer)
        if (base_offset, length) != (0, _NO_LENGTH) and not _REST_BYTES <= length <= MAX_BATCH_BYTES:
            raise RecordError(f"at byte {position}: a batch of {length} bytes")


def batch_of(frame: Frame) -> Batch:
    """Decodes the records. Raises RecordError where they do not fit."""
    try:
        records = _records_in(frame)
    except IndexError:
        raise RecordError(f"at byte {frame.position}: a record goes on after its batch") from None
    except (EOFError, RecordError) as error:
        raise RecordError(f"at byte {frame.position}: {error}") from None
    return Batch(frame.base_offset, frame.last_offset, frame.epoch, frame.at_ms, frame.is_control, records,
                 frame.position, frame.size_bytes)  # fmt: skip


def _records_in(frame: Frame) -> list[Record]:
    """The usual record is read here: of the controller, without a key, its numbers of one or two bytes."""
    body, base_offset, is_control = frame.body, frame.base_offset, frame.is_control
    at, limit = _REST_BYTES, len(frame.body)
    if limit == _IDLE_BYTES and frame.count == 1 and body[at:] == _IDLE and not is_control:
        return [Record(base_offset, _NO_OP, None)]
    records = []
    for _ in range(frame.count):
        if (size := body[at]) < 0x80 and not size & 1:
            size, at = size >> 1, at + 1
        else:
            size, at = _varint(body, at)
        end = at + size
        if size < 0 or end > limit:
            raise EOFError("a record goes on after its batch")
        delta, start, key = body[at + 2], at + 5, body[at + 3]
        length = body[at + 4]
        if delta >= 0x80:
            delta, start, key = (delta & 0x7F) | body[at + 3] << 7, at + 6, body[at + 4]
            length = body[at + 5] if delta < _TWO_BYTES else 1
        if length >= 0x80:
            length, start = (length & 0x7F) | body[start] << 7, start + 1
        stop = start + (length >> 1)
        is_usual = key == _NO_KEY and body[at + 1] == 0 and length < _TWO_BYTES and not (length | delta) & 1
        if is_usual and not is_control and stop + 1 == end and body[stop] == 0:
            value = body[start:stop]
            offset = base_offset + (delta >> 1)
            if value == _NO_OP_BYTES:
                records.append(Record(offset, _NO_OP, None))
            else:
                try:
                    records.append(Record(offset, message_in(value), None))
                except UnknownRecordError as error:
                    records.append(Record(offset, None, str(error)))
        else:
            records.append(_record_of(base_offset, body, at, end, is_control))
        at = end
    return records


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
