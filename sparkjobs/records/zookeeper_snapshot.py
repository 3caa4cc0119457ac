"""ZooKeeper's snapshots (`snapshot.ZXID`, of 3.4 to 3.9): the whole tree as one server had it.

Owns their format. A snapshot is written while the tree goes on changing: it may hold effects of transactions after the
zxid in its name. Whoever applies the log to it takes that zxid, and does again what is there already.

A file of which nothing follows the last node's mark is not whole, as is one whose checksum does not fit: both are
errors, and another snapshot has to serve.
"""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO, Final

import msgspec

from sparkjobs.records.errors import RecordError
from sparkjobs.records.jute import Fields

MAGIC: Final = b"ZKSN"
_HEADER = struct.Struct(">4siq")
_STAT = struct.Struct(">qqqqiiiqq")
_ROOT: Final = "/"
#: 3.4 seals the tree; since 3.6 a digest has a seal of its own, since 3.9 the last zxid, too
_EXTRAS: Final = (20, 8)


class SnapshotError(RecordError):
    """The snapshot is damaged, incomplete or of another format."""


class Znode(msgspec.Struct, frozen=True, gc=False):
    """A znode as it stood."""

    path: str
    data: bytes | None
    version: int
    ephemeral_owner: int
    ctime_ms: int
    mtime_ms: int
    mzxid: int


class Snapshot(msgspec.Struct, frozen=True):
    """Sessions with their time-outs, and all znodes but the root."""

    sessions: dict[int, int]
    znodes: list[Znode]


def snapshot_in(content: BinaryIO) -> Snapshot:
    """Raises SnapshotError for anything that is not one whole snapshot."""
    source = _Summed(content)
    try:
        magic, snapshot_format, _ = _HEADER.unpack(source.take(_HEADER.size))
        if (magic, snapshot_format) != (MAGIC, 2):
            raise SnapshotError(f"not a snapshot of format 2: {magic!r} {snapshot_format}")
        fields = Fields(source.take)
        sessions = {fields.long(): fields.integer() for _ in range(fields.integer())}
        for _ in range(fields.integer()):
            fields.long()
            fields.acl()
        znodes = []
        while (path := fields.string()) != _ROOT:
            node = _znode_of(path, fields, source)
            if path:  # the root itself is written with an empty path
                znodes.append(node)
        _check_seal(source, fields, "the tree")
        _check_extras(source, fields)
    except (EOFError, struct.error) as error:
        raise SnapshotError(f"it ends at byte {source.position}, before it is whole ({error})") from None
    except UnicodeDecodeError:
        raise SnapshotError(f"before byte {source.position}: a path is not UTF-8") from None
    return Snapshot(sessions, znodes)


def _znode_of(path: str, fields: Fields, source: _Summed) -> Znode:
    data = fields.buffer()
    fields.long()  # which access list
    _, mzxid, ctime_ms, mtime_ms, version, _, _, owner, _ = _STAT.unpack(source.take(_STAT.size))
    return Znode(path, data, version, owner, ctime_ms, mtime_ms, mzxid)


def _check_seal(source: _Summed, fields: Fields, what: str) -> None:
    expected = source.checksum
    if fields.long() != expected or fields.string() != _ROOT:
        raise SnapshotError(f"before byte {source.position}: the checksum of {what} does not fit")


def _check_extras(source: _Summed, fields: Fields) -> None:
    """What later releases add, each with a seal of its own; none of it is needed."""
    for size in _EXTRAS:
        if source.is_at_end():
            return
        source.take(size)
        _check_seal(source, fields, "what follows the tree")


class _Summed:
    """Bytes as they come, with ZooKeeper's checksum of all before."""

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        self._ahead = b""
        self.position, self.checksum = 0, 1

    def take(self, length: int) -> bytes:
        if length < 0:
            raise EOFError("a negative length")
        found = self._ahead[:length]
        self._ahead = self._ahead[length:]
        while len(found) < length and (more := self._content.read(length - len(found))):
            found += more
        if len(found) < length:
            raise EOFError(f"{length} bytes were due")
        self.position += length
        self.checksum = zlib.adler32(found, self.checksum)
        return found

    def is_at_end(self) -> bool:
        self._ahead = self._ahead or self._content.read(1)
        return not self._ahead
