"""Kafka's primitive types in both encodings, compact ("flexible") and the older one: a reader, a writer.

It knows bytes and not their meaning. A reader never reads beyond its message, and never believes a length that the
message cannot hold: a malformed message is a `WireError`.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

NO_UUID: Final = bytes(16)
_I16, _I32, _I64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_VARINT_BITS_MAX: Final = 35


class WireError(ValueError):
    """Bytes that are no message of Kafka's. The message names the fault."""


def uuid_of(topic_id: str) -> bytes:
    """Kafka prints ids as base64 without padding."""
    return urlsafe_b64decode(topic_id + "==") if topic_id else NO_UUID


def topic_id_of(uuid: bytes) -> str:
    return "" if uuid == NO_UUID else urlsafe_b64encode(uuid).rstrip(b"=").decode()


def varint(number: int) -> bytes:
    """Unsigned, seven bits a byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    raw = text.encode()
    return varint(len(raw) + 1) + raw


def compact_ids(ids: Sequence[int]) -> bytes:
    """Returns an array of int32."""
    return varint(len(ids) + 1) + struct.pack(f">{len(ids)}i", *ids)


class Writer:
    """Builds one message."""

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._parts: list[bytes] = []

    def message(self) -> bytes:
        return b"".join(self._parts)

    def raw(self, data: bytes) -> Writer:
        self._parts.append(data)
        return self

    def i8(self, value: int) -> Writer:
        return self.raw(value.to_bytes(1, "big", signed=True))

    def i16(self, value: int) -> Writer:
        return self.raw(_I16.pack(value))

    def i32(self, value: int) -> Writer:
        return self.raw(_I32.pack(value))

    def i64(self, value: int) -> Writer:
        return self.raw(_I64.pack(value))

    def string(self, text: str | None) -> Writer:
        if self._flexible:
            return self.raw(compact_string(text))
        if text is None:
            return self.i16(-1)
        raw = text.encode()
        return self.i16(len(raw)).raw(raw)

    def data(self, data: bytes) -> Writer:
        """Bytes, with their length before them."""
        self.raw(varint(len(data) + 1)) if self._flexible else self.i32(len(data))
        return self.raw(data)

    def array(self, items: Sequence[T] | None, write: Callable[[T], object]) -> Writer:
        count = -1 if items is None else len(items)
        self.raw(varint(count + 1)) if self._flexible else self.i32(count)
        for item in items or ():
            write(item)
        return self

    def ids(self, ids: Sequence[int]) -> Writer:
        return self.array(ids, self.i32)

    def tags(self) -> Writer:
        """Returns the end of a structure: no tagged field."""
        return self.raw(b"\0") if self._flexible else self


class Reader:
    """Takes one message apart, from `at` on."""

    def __init__(self, data: bytes, at: int = 0, *, flexible: bool) -> None:
        self._data = data
        self._flexible = flexible
        self.at = at

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.left:
            raise WireError(f"{size} bytes announced and {self.left} there")
        start, self.at = self.at, self.at + size
        return self._data[start : self.at]

    def i8(self) -> int:
        return int.from_bytes(self.take(1), "big", signed=True)

    def boolean(self) -> bool:
        return self.i8() != 0

    def i16(self) -> int:
        return int(_I16.unpack(self.take(2))[0])

    def i32(self) -> int:
        return int(_I32.unpack(self.take(4))[0])

    def i64(self) -> int:
        return int(_I64.unpack(self.take(8))[0])

    def uuid(self) -> bytes:
        return self.take(16)

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift >= _VARINT_BITS_MAX:
                raise WireError("a number of more than five bytes")

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise WireError("null where a string has to be")
        return text

    def nullable_string(self) -> str | None:
        length = self.varint() - 1 if self._flexible else self.i16()
        if length == -1:
            return None
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise WireError(f"no string: {error}") from None

    def data(self) -> bytes:
        return self.take(self.varint() - 1 if self._flexible else self.i32())

    def nullable_data(self) -> bytes | None:
        size = self.varint() - 1 if self._flexible else self.i32()
        return None if size == -1 else self.take(size)

    def array(self, read: Callable[[], T]) -> list[T]:
        return self.nullable_array(read) or []

    def nullable_array(self, read: Callable[[], T]) -> list[T] | None:
        count = self.varint() - 1 if self._flexible else self.i32()
        if count == -1:
            return None
        if count < 0 or count > self.left:  # each item takes a byte at least
            raise WireError(f"{count} items announced in {self.left} bytes")
        return [read() for _ in range(count)]

    def ids(self) -> tuple[int, ...]:
        return tuple(self.array(self.i32))

    def tags(self) -> None:
        """The end of a structure: tagged fields are passed over."""
        for _ in range(self.varint() if self._flexible else 0):
            self.varint()
            self.take(self.varint())

    def end(self) -> None:
        if self.left:
            raise WireError(f"{self.left} bytes too many")


def tagged(reader: Reader, value: T) -> T:
    """Returns the value, when its tags were read, too."""
    reader.tags()
    return value
