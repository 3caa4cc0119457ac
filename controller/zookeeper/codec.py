"""Bytes of ZooKeeper's two hot messages, packed and parsed by hand: the transaction and the multi-read.

Knows the wire format and nothing else: no I/O, no aiozk, no session. Paths get the chroot here when packed and
lose it when parsed. A reply is parsed out of its whole frame from an offset, so that nothing is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from controller.core.operations import (
    Check,
    Create,
    Delete,
    Op,
    Set,
)
from controller.zookeeper.port import (
    Brief,
    Children,
    Denied,
    Node,
    NoNodeError,
    OpResult,
    Stat,
)

#: ZooKeeper's code for the operations after the refused one (those before it are marked 0)
NOT_REACHED: Final = -2

_CREATE, _DELETE, _GET_DATA, _SET_DATA, _GET_CHILDREN, _CHECK, _ERROR = 1, 2, 4, 5, 8, 13, -1
_INT = struct.Struct("!i")
_HEADER = struct.Struct("!i?i")  # of one operation: type, done, error
_OP = struct.Struct("!i?ii")  # the same and the length of the path, which always follows
_STAT = struct.Struct("!qqqqiiiqiiq")
_VERSION_OFFSET = 32  # in a stat
_BRIEF = struct.Struct("!24xqi32x")  # of a stat: its time and its version
_END = _HEADER.pack(_ERROR, True, -1)
_TRANSACTION = _INT.pack(14)
_MULTI_READ = _INT.pack(22)
_NO_WATCH = b"\0"
_EVERYBODY = struct.pack("!ii5si6s", 31, 5, b"world", 6, b"anyone")
_ACL = _INT.pack(1) + _EVERYBODY
#: the identity of the connection may do all; everybody may read
_CREATOR = struct.pack("!ii4si", 31, 4, b"auth", 0)
_OWNED = _INT.pack(2) + _CREATOR + struct.pack("!ii5si6s", 1, 5, b"world", 6, b"anyone")
_PRIVATE = _INT.pack(1) + _CREATOR
#: nodes that Kafka lets no other client read: below these there may be passwords
SENSITIVE = ("/config/users", "/config/brokers")
_DONE = OpResult(0)


def server_path_for(path: str, chroot: str) -> str:
    """A path as the server knows it."""
    return chroot + path if path != "/" else chroot or "/"


def client_path_for(path: str, chroot: str) -> str:
    """Returns a server's path as callers know it."""
    return path[len(chroot) :] or "/"


def acl_for(path: str, *, is_owned: bool) -> bytes:
    """Returns the ACL of a znode that is made now: everything for everybody, or Kafka's `zookeeper.set.acl`."""
    if not is_owned:
        return _ACL
    return _PRIVATE if path.startswith(SENSITIVE) else _OWNED


def pack_transaction(ops: Sequence[Op], chroot: str = "", *, is_owned: bool = False) -> bytes:
    """Operation 14, without the header that the connection puts before every request."""
    parts = [_TRANSACTION]
    for op in ops:
        path = (server_path_for(op.path, chroot) if chroot else op.path).encode()
        size = len(path)
        if isinstance(op, Set):
            head = _OP.pack(_SET_DATA, False, -1, size)
            parts += (head, path, _INT.pack(len(op.data)), op.data, _INT.pack(op.version))
        elif isinstance(op, Create):
            head = _OP.pack(_CREATE, False, -1, size)
            flags = op.ephemeral + 2 * op.sequential
            acl = acl_for(op.path, is_owned=True) if is_owned else _ACL
            parts += (head, path, _INT.pack(len(op.data)), op.data, acl, _INT.pack(flags))
        elif isinstance(op, Delete):
            parts += (_OP.pack(_DELETE, False, -1, size), path, _INT.pack(op.version))
        elif isinstance(op, Check):
            parts += (_OP.pack(_CHECK, False, -1, size), path, _INT.pack(op.version))
    parts.append(_END)
    return b"".join(parts)


def parse_transaction(frame: bytes, at: int, chroot: str = "") -> tuple[OpResult, ...]:
    """One result per operation; the version of a set is taken out of its stat without building that."""
    results: list[OpResult] = []
    while True:
        kind, is_done, _ = _HEADER.unpack_from(frame, at)
        at += _HEADER.size
        if is_done:
            return tuple(results)
        if kind == _SET_DATA:
            results.append(OpResult(0, _INT.unpack_from(frame, at + _VERSION_OFFSET)[0]))
            at += _STAT.size
        elif kind == _CREATE:
            path, at = parse_string(frame, at)
            results.append(OpResult(0, 0, client_path_for(path, chroot) if chroot else path))
        elif kind == _ERROR:
            results.append(OpResult(_INT.unpack_from(frame, at)[0]))
            at += _INT.size
        else:
            results.append(_DONE)


def refused_in(results: Sequence[OpResult]) -> tuple[int, int] | None:
    """Index and code of the operation that was the cause; None when the transaction was done."""
    for index, result in enumerate(results):
        if result.code not in (0, NOT_REACHED):
            return index, result.code
    return None


def pack_get_many(paths: Sequence[str], chroot: str = "") -> bytes:
    """Operation 22 with one getData for each path. It can arm no watch."""
    parts = [_MULTI_READ]
    pack = _OP.pack
    for path in paths:
        raw = server_path_for(path, chroot).encode() if chroot or path == "/" else path.encode()
        parts += (pack(_GET_DATA, False, -1, len(raw)), raw, _NO_WATCH)
    parts.append(_END)
    return b"".join(parts)


def parse_get_many(frame: bytes, at: int, paths: Sequence[str], zxid: int) -> list[Node | Denied | None]:
    """In the order of `paths`; a node that does not exist is None."""
    found: list[Node | Denied | None] = []
    for _ in paths:
        node, at = _parse_read(frame, at, zxid)
        found.append(node)
    return found


def parse_brief_many(frame: bytes, at: int, paths: Sequence[str], zxid: int) -> list[Brief | Denied | None]:
    """As `parse_get_many`. The hot loop of a load, hence in one piece."""
    found: list[Brief | Denied | None] = []
    for _ in paths:
        kind, _, code, size = _OP.unpack_from(frame, at)
        if kind != _GET_DATA:
            found.append(_absence_of(code, zxid))
            at += _HEADER.size + _INT.size  # the code once more
            continue
        start = at + _OP.size
        end = start + max(size, 0)
        mtime_ms, version = _BRIEF.unpack_from(frame, end)
        found.append(Brief(frame[start:end], version, mtime_ms, zxid))
        at = end + _BRIEF.size
    return found


def pack_children_many(paths: Sequence[str], chroot: str = "") -> bytes:
    """Operation 22 with getChildren for each path, and getData for its stat: a multi-read has no getChildren2."""
    parts = [_MULTI_READ]
    for path in paths:
        raw = server_path_for(path, chroot).encode()
        for kind in (_GET_CHILDREN, _GET_DATA):
            parts += (_OP.pack(kind, False, -1, len(raw)), raw, _NO_WATCH)
    parts.append(_END)
    return b"".join(parts)


def parse_children_many(frame: bytes, at: int, paths: Sequence[str], zxid: int) -> list[Children | Denied | None]:
    """In the order of `paths`; a node that does not exist is None."""
    found: list[Children | Denied | None] = []
    for _ in paths:
        names: tuple[str, ...] | Denied | None
        kind, _, code = _HEADER.unpack_from(frame, at)
        at += _HEADER.size
        if kind == _GET_CHILDREN:
            names, at = parse_names(frame, at)
        else:
            names, at = _absence_of(code, zxid), at + _INT.size
        node, at = _parse_read(frame, at, zxid)
        if names is None or node is None:
            found.append(None)
        elif isinstance(names, Denied):
            found.append(names)
        else:
            found.append(node if isinstance(node, Denied) else Children(names, node.stat, zxid))
    return found


def _parse_read(frame: bytes, at: int, zxid: int) -> tuple[Node | Denied | None, int]:
    kind, _, code = _HEADER.unpack_from(frame, at)
    at += _HEADER.size
    if kind == _GET_DATA:
        return parse_node(frame, at, zxid)
    return _absence_of(code, zxid), at + _INT.size  # the code once more


def _absence_of(code: int, zxid: int) -> Denied | None:
    return None if code == NoNodeError.code else Denied(code, zxid)


def parse_node(frame: bytes, at: int, zxid: int) -> tuple[Node, int]:
    """Data and stat, as getData answers them. A znode without data (ZooKeeper knows null) reads as empty."""
    (size,) = _INT.unpack_from(frame, at)
    start = at + _INT.size
    end = start + max(size, 0)
    return Node(frame[start:end], Stat(*_STAT.unpack_from(frame, end)), zxid), end + _STAT.size


def parse_stat(frame: bytes, at: int) -> Stat:
    return Stat(*_STAT.unpack_from(frame, at))


def parse_string(frame: bytes, at: int) -> tuple[str, int]:
    """Returns a string and where the next thing starts."""
    (size,) = _INT.unpack_from(frame, at)
    start = at + _INT.size
    end = start + max(size, 0)
    return frame[start:end].decode(), end


def parse_names(frame: bytes, at: int) -> tuple[tuple[str, ...], int]:
    """Returns a vector of strings and where the next thing starts."""
    (count,) = _INT.unpack_from(frame, at)
    at += _INT.size
    names = []
    for _ in range(count):
        name, at = parse_string(frame, at)
        names.append(name)
    return tuple(names), at


def pack_create(path: str, data: bytes, chroot: str, *, flags: int, is_owned: bool) -> bytes:
    """Operation 15: create, and answer with the stat."""
    server_path = server_path_for(path, chroot).encode()
    parts = (_INT.pack(15), _INT.pack(len(server_path)), server_path, _INT.pack(len(data)), data)
    return b"".join((*parts, acl_for(path, is_owned=is_owned), _INT.pack(flags)))
