"""ZooKeeper's own files: its transaction logs (`version-2/log.*`) and snapshots (`snapshot.ZXID`, of 3.4 to 3.9).

The module owns their binary formats. Both are in Jute: fields without names, one after the other, numbers big-endian.

It must never write, and never pass over damage. A transaction log ends where nothing is written yet, or within the
record that is being written now; anything else that does not fit is an error. The log is read directly because
TxnLogToolkit prints a transaction of several operations as raw bytes taken for text, and loses its versions. A test
holds this reader against the toolkit.

A snapshot is written while the tree goes on changing: it may hold effects of transactions after the zxid in its name. A
caller applies the log from that zxid and repeats what the snapshot already has. A snapshot that nothing follows after
the last node's mark is not whole, and one whose checksum does not fit is damaged: both are errors, and another snapshot
has to serve.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, Literal

import msgspec

from sparkjobs.records import RecordError

#: a znode's data is bounded by `jute.maxbuffer`, 1 MB by default
_MAX_BYTES: Final = 64 * 1024 * 1024


_MAX_ENTRIES: Final = 10_000


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
        if (count := self.integer()) > _MAX_ENTRIES:
            raise EOFError(f"an access list of {count} entries")
        return [(self.integer(), self.string(), self.string()) for _ in range(count)]


def fields_of(record: bytes, at: int = 0) -> Fields:
    """Returns the fields of a record that is in memory."""

    def take(length: int) -> bytes:
        nonlocal at
        at += length
        if at > len(record):
            raise EOFError("a field goes on after the record's end")
        return record[at - length : at]

    return Fields(take)


Kind = Literal["create", "set", "set_acl", "delete", "check", "session", "close", "error"]

_FILE_HEADER = struct.Struct(">4siq")  # magic, format, database id
_RECORD_HEADER = struct.Struct(">qi")  # adler32, length
_TXN_HEADER = struct.Struct(">qiqqi")  # session, cxid, zxid, time, type
_END_OF_RECORD = b"\x42"
_MAX_RECORD_BYTES = 64 * 1024 * 1024
_MULTI = 14
_CLOSE = -11
_DIGEST_VERSION, _DIGEST_BYTES = b"\0\0\0\x02", 12
_KINDS: dict[int, Kind] = {-11: "close", -10: "session", -1: "error", 2: "delete", 7: "set_acl", 13: "check"}
_KINDS |= {1: "create", 15: "create", 19: "create", 21: "create"}  # 19: container, 21: with a time to live
_KINDS |= {5: "set", 16: "set", 20: "delete"}  # 16: reconfig, 20: container
_MAY_BE_EPHEMERAL = (1, 15)


class TransactionLogError(RecordError):
    """The log is damaged or incomplete, or says something that this reader does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation that ZooKeeper did, or the `error` that a whole transaction came to (nothing of it was done)."""

    zxid: int  # its transaction's: operations of one transaction share it
    session: int
    at_ms: int
    kind: Kind
    path: str | None = None
    data: bytes | None = None
    version: int | None = None  # the znode's after it; of a `check`, one above the version that was asked for
    ephemeral_owner: int | None = None
    code: int | None = None  # of an `error`
    timeout_ms: int | None = None  # of a `session`
    is_asked_for: bool | None = None  # of a `close`: the owner of the session asked for it; it has not expired
    paths: tuple[str, ...] = ()  # the ephemeral znodes that went with a `close`, if the server says so (since 3.6)


def history(data_dir: Path) -> Iterator[Operation]:
    """All operations in the logs of one server, in order; it may be running."""
    last_zxid = None
    for path in sorted((data_dir / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
        for operation in operations_of_file(path.read_bytes):
            if last_zxid is not None and not _is_next(last_zxid, operation.zxid):
                raise TransactionLogError(f"{path}: {operation.zxid:#x} follows {last_zxid:#x}; what is between?")
            last_zxid = operation.zxid
            yield operation


def operations_of_file(read: Callable[[], bytes]) -> list[Operation]:
    """Returns the operations in the bytes of `read`. Half of a record that is being written looks damaged: damage
    counts only when a second read shows the same."""
    content = read()
    while True:
        try:
            return list(operations_in(io.BytesIO(content)))
        except TransactionLogError:
            if (again := read()) == content:
                raise
            content = again


def longest_history(data_dirs: Iterable[Path]) -> list[Operation]:
    """Returns the history of the server of an ensemble whose logs have most of the common transactions. A server that
    was away may have been given a snapshot in place of the missed ones, before an epoch or within it. A server that led
    may have written transactions that no other had before it lost the lead, and that never happened."""
    found: list[list[Operation]] = []
    gaps: list[TransactionLogError] = []
    for each in data_dirs:
        try:
            found.append(list(history(each)))
        except TransactionLogError as error:
            gaps.append(error)
    if not found:
        raise TransactionLogError(f"no server's log is whole: {'; '.join(map(str, gaps))}")
    written = [{one.zxid for one in operations} for operations in found]
    holders = Counter(chain.from_iterable(written))
    agreed = {zxid for zxid, count in holders.items() if count > len(found) // 2}
    return max(zip(written, found, strict=True), key=lambda log: (len(log[0] & agreed), len(log[0])))[1]


def _is_next(last_zxid: int, zxid: int) -> bool:
    # The upper half is the leader's epoch, and every one starts counting anew. In a server's own log something can be
    # missing all the same: one that was away for long got a snapshot instead. Then another server's log has it.
    return zxid in (last_zxid, last_zxid + 1) or zxid >> 32 > last_zxid >> 32


def operations_in(log: BinaryIO) -> Iterator[Operation]:
    """The operations of one log file."""
    return operations_between(log, 0, None)


def end_of_whole(log: BinaryIO, start: int) -> int:
    """Returns where the last whole transaction ends; `start` is where one before it did, or 0."""
    end = start
    for _ in _records_between(log, start, None):
        end = log.tell()
    return end


def operations_between(log: BinaryIO, start: int, end: int | None) -> Iterator[Operation]:
    """Those of the transactions that lie between two such ends."""
    for record in _records_between(log, start, end):
        try:
            yield from _operations_of(record)
        except (struct.error, EOFError, KeyError, UnicodeDecodeError) as error:
            raise TransactionLogError(f"before byte {log.tell()}: a record of an unknown form ({error!r})") from error


def _records_between(log: BinaryIO, start: int, end: int | None) -> Iterator[bytes]:
    header = log.read(_FILE_HEADER.size)
    if len(header) < _FILE_HEADER.size or header.strip(b"\0") == b"":
        return  # just being created
    magic, log_format, _ = _FILE_HEADER.unpack(header)
    if (magic, log_format) != (b"ZKLG", 2):
        raise TransactionLogError(f"not a transaction log of format 2: {header!r}")
    if start:
        log.seek(start)
    while (end is None or log.tell() < end) and (record := _next_record(log)) is not None:
        yield record


def _next_record(log: BinaryIO) -> bytes | None:
    header = log.read(_RECORD_HEADER.size)
    if len(header) < _RECORD_HEADER.size:
        return None
    checksum, length = _RECORD_HEADER.unpack(header)
    if length == 0:
        return None
    record, end = (log.read(length), log.read(1)) if 0 < length <= _MAX_RECORD_BYTES else (b"", b"?")
    if end in (b"", b"\0"):
        return None  # written up to somewhere here
    if end != _END_OF_RECORD or zlib.adler32(record) != checksum:
        raise TransactionLogError(f"before byte {log.tell()}: a damaged record")
    return record


def _operations_of(record: bytes) -> list[Operation]:
    session, cxid, zxid, at_ms, txn_type = _TXN_HEADER.unpack_from(record)
    body = fields_of(record, _TXN_HEADER.size)  # after the fields there is a digest of ZooKeeper's whole tree
    if txn_type == _CLOSE and not _says_which_znodes_went(record[_TXN_HEADER.size :]):
        return [Operation(zxid=zxid, session=session, at_ms=at_ms, kind="close", is_asked_for=cxid != 0)]
    if txn_type != _MULTI:
        operation = _operation_of(txn_type, body, zxid, session, at_ms)
        # the server's own request has no number of a client's
        return [replace(operation, is_asked_for=cxid != 0) if operation.kind == "close" else operation]
    parts = [(body.integer(), body.buffer()) for _ in range(body.integer())]
    operations = [_operation_of(kind, fields_of(part or b""), zxid, session, at_ms) for kind, part in parts]
    # The operations before the one that failed are in the log as if they had been done.
    return [operation for operation in operations if operation.kind == "error"][:1] or operations


def _says_which_znodes_went(rest: bytes) -> bool:
    """Of a session's end: servers before 3.6 do not, nor do later ones that were told not to. Then nothing follows, or
    only the digest, which begins with its version."""
    return rest != b"" and not (len(rest) == _DIGEST_BYTES and rest.startswith(_DIGEST_VERSION))


def _operation_of(txn_type: int, fields: Fields, zxid: int, session: int, at_ms: int) -> Operation:
    kind = _KINDS[txn_type]
    of = partial(Operation, zxid=zxid, session=session, at_ms=at_ms, kind=kind)
    # Arguments are evaluated from left to right, which is the order of the record's fields.
    match kind:
        case "create":
            path, data, _ = fields.string(), fields.buffer(), fields.acl()
            is_ephemeral = txn_type in _MAY_BE_EPHEMERAL and fields.boolean()
            operation = of(path=path, data=data, version=0, ephemeral_owner=session if is_ephemeral else None)
        case "set":
            operation = of(path=fields.string(), data=fields.buffer(), version=fields.integer())
        case "set_acl":
            path, _ = fields.string(), fields.acl()
            operation = of(path=path, version=fields.integer())
        case "check":
            operation = of(path=fields.string(), version=fields.integer())
        case "delete":
            operation = of(path=fields.string())
        case "close":
            operation = of(paths=tuple(fields.string() for _ in range(fields.integer())))
        case "session":
            operation = of(timeout_ms=fields.integer())
        case "error":
            operation = of(code=fields.integer())
    return operation


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
    source = _ChecksummedBytes(content)
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


def _znode_of(path: str, fields: Fields, source: _ChecksummedBytes) -> Znode:
    data = fields.buffer()
    fields.long()  # which access list
    _, mzxid, ctime_ms, mtime_ms, version, _, _, owner, _ = _STAT.unpack(source.take(_STAT.size))
    return Znode(path, data, version, owner, ctime_ms, mtime_ms, mzxid)


def _check_seal(source: _ChecksummedBytes, fields: Fields, what: str) -> None:
    expected = source.checksum
    if fields.long() != expected or fields.string() != _ROOT:
        raise SnapshotError(f"before byte {source.position}: the checksum of {what} does not fit")


def _check_extras(source: _ChecksummedBytes, fields: Fields) -> None:
    """Checks the parts that later releases add, each with a seal of its own; none of it is needed."""
    for size in _EXTRAS:
        if source.is_at_end():
            return
        source.take(size)
        _check_seal(source, fields, "what follows the tree")


class _ChecksummedBytes:
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
