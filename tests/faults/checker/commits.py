"""Commits, from their record: ZooKeeper's transaction log, or the fake in its place. It judges nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from controller.core.operations import (
    Check,
    Create,
    Delete,
    Op,
    Set,
)
from sparkjobs.records.zookeeper_files import Operation
from tests.faults.checker.history import Commit, Write


def from_operations(operations: Iterable[Operation], chroot: str = "") -> list[Commit]:
    """ZooKeeper's transaction log below a chroot as commits, without refused requests and sessions' beginnings."""
    commits = []
    for zxid, group in groupby(operations, key=lambda one: one.zxid):
        writes: list[Write] = []
        session = at_ms = 0
        for one in group:
            session, at_ms = one.session, one.at_ms
            below = (each for each in _writes_of(one) if each.path.startswith(f"{chroot}/"))
            writes += (each._replace(path=each.path.removeprefix(chroot)) for each in below)
        if writes:
            commits.append(Commit(zxid, session, at_ms, tuple(writes)))
    return commits


def _writes_of(one: Operation) -> Iterator[Write]:
    match one.kind:
        case "create":
            yield Write("create", one.path or "", one.data or b"", 0, is_ephemeral=bool(one.ephemeral_owner))
        case "set":
            yield Write("set", one.path or "", one.data or b"", one.version)
        case "delete":
            yield Write("delete", one.path or "")
        case "check":
            yield Write("check", one.path or "", expected=None if one.version is None else one.version - 1)
        case "close":
            yield from (Write("delete", path) for path in one.paths)


def from_ops(zxid: int, session: int, at_ms: int, ops: Sequence[Op], sent_ms: float | None = None) -> Commit:
    """A commit of the fake ZooKeeper."""
    writes: list[Write] = []
    for op in ops:
        match op:
            case Create(path=path, data=data, ephemeral=ephemeral):
                writes.append(Write("create", path, data, 0, is_ephemeral=ephemeral))
            case Set(path=path, data=data, version=version):
                writes.append(Write("set", path, data, None if version < 0 else version + 1, version))
            case Delete(path=path, version=version):
                writes.append(Write("delete", path, expected=version))
            case Check(path=path, version=version):
                writes.append(Write("check", path, expected=version))
    return Commit(zxid, session, at_ms, tuple(writes), sent_ms)
