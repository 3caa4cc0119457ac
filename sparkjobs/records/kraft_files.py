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
from functools import cache
from importlib.resources import files
from typing import Any, BinaryIO, Final, NamedTuple

import crc32c
import msgspec

from sparkjobs.records import RecordError

_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_FRAME_VERSION: Final = 1
_NUMBERS: Final = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q", "float64": ">d"}
#: fields with passwords or keys: named, and never handed on
SECRET: Final = frozenset({"UserScramCredentialRecord", "DelegationTokenRecord"})


class UnknownRecordError(RecordError):
    """A record or a version that the table does not have: a later release of Kafka wrote it."""


class Message(msgspec.Struct, frozen=True):
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
        """An unsigned number of variable length."""
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
    cursor = _Cursor(value)
    try:
        if (frame := cursor.unsigned()) != _FRAME_VERSION:
            raise UnknownRecordError(f"a record with frame version {frame}")
        name, read = _reader_of(cursor.unsigned(), version := cursor.unsigned())
        return _whole(name, version, cursor, read)
    except EOFError as error:
        raise RecordError(f"a metadata record is cut short: {error}") from None


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
            return lambda cursor: uuid_text(cursor.take(16))
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


#: of a batch, at most: Kafka's own limit is 8 MiB
MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
_HEAD = struct.Struct(">qi")  # base offset, length of the rest
_REST = struct.Struct(">ibIhiqqqhii")
_CONTROL, _COMPRESSED = 0x20, 0x07
_CRC_FROM: Final = 9  # of the bytes after the length
_NO_LENGTH: Final = 0
CHECKPOINT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


class Record(NamedTuple):
    """One record. `message` is None for a record that this reader does not know: `unknown` names it."""

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
    """Yields the batches of one file, in order. Raises RecordError where one is damaged: the bytes after it cannot be
    trusted."""
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
