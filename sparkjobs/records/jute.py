"""Jute, the encoding of ZooKeeper's files: fields without names, one after the other, numbers big-endian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: a znode's data is bounded by `jute.maxbuffer`, 1 MB by default
_MAX_BYTES: Final = 64 * 1024 * 1024


class Fields:
    """Takes one field after the other; `take` gives so many bytes, or raises EOFError."""

    def __init__(self, take: Callable[[int], bytes]) -> None:
        self._take = take

    def integer(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def long(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def boolean(self) -> bool:
        return self._take(1) != b"\0"

    def buffer(self) -> bytes | None:
        length = self.integer()
        if length > _MAX_BYTES:
            raise EOFError(f"a field of {length} bytes")
        return self._take(length) if length >= 0 else None

    def string(self) -> str:
        return (self.buffer() or b"").decode()

    def acl(self) -> list[tuple[int, str, str]]:
        """Permissions, scheme, id."""
        return [(self.integer(), self.string(), self.string()) for _ in range(self.integer())]


def fields_of(record: bytes, at: int = 0) -> Fields:
    """The fields of a record that is in memory."""

    def take(length: int) -> bytes:
        nonlocal at
        at += length
        if at > len(record):
            raise EOFError("a field goes on after the record's end")
        return record[at - length : at]

    return Fields(take)
