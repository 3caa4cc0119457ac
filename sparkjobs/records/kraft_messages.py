"""The messages inside KRaft's metadata log: a table of fields (`kraft_schemas.json`) and the reader that goes by it.

The table is generated from the schemas in Kafka's jars (`tests/kraft_schemas.py`), every version of every record. A
record or version that the table does not have is named, never guessed. A field that is absent has its default and is
left out, as Kafka's own tool leaves it out.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from sparkjobs.records.errors import RecordError

_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_FRAME_VERSION: Final = 1
_NUMBERS: Final = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q", "float64": ">d"}
#: what holds passwords or keys: named, and never handed on
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
    """One control record: what the quorum says about itself."""
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
