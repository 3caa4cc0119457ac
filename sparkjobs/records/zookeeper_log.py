"""ZooKeeper's own history: what its transaction logs say was done, by which session and in which order.

Owns the binary format of `version-2/log.*`. It must never write, and never pass over damage: a log ends where nothing
is written yet, or within the record that is being written now; whatever else does not fit is an error.

The format is read directly because TxnLogToolkit prints a transaction of several operations as raw bytes taken for
text, out of which versions cannot be had again. A test holds this reader against the toolkit.
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
from typing import BinaryIO, Literal

from sparkjobs.records.errors import RecordError
from sparkjobs.records.jute import Fields, fields_of

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
    is_asked_for: bool | None = None  # of a `close`: somebody who had the session did; it has not expired
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
    """The operations in what `read` finds. Half of a record that is being written looks damaged: only what is the same
    when it is read again is."""
    content = read()
    while True:
        try:
            return list(operations_in(io.BytesIO(content)))
        except TransactionLogError:
            if (again := read()) == content:
                raise
            content = again


def longest_history(data_dirs: Iterable[Path]) -> list[Operation]:
    """Of the servers of an ensemble, the one with most in its logs of what most of them have: one that was away may
    have been given a snapshot in place of what it missed, before an epoch or within it, and one that led may have
    written what nobody else had before it lost the lead, and what never happened."""
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
    """Where the last whole transaction ends; `start` is where one before it did, or 0."""
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
    body = fields_of(record, _TXN_HEADER.size)  # what follows the fields is a digest of ZooKeeper's whole tree
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
