"""The fake's znodes: what ZooKeeper's PrepRequestProcessor refuses and what its DataTree does, nothing of sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from controller.core.writes import Check, Create, Delete, Op, Set
from controller.zk_codec import NOT_REACHED
from controller.zk_model import (
    BadVersionError,
    EventKind,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OpResult,
    Stat,
    WatchEvent,
)

_BAD_ARGUMENTS, _NO_CHILDREN_FOR_EPHEMERALS = -8, -108


class OpRefusedError(Exception):
    """One operation was refused, with ZooKeeper's code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Znode:
    data: bytes
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    pzxid: int
    version: int = 0
    creates: int = 0  # of children, ever: the next sequence number
    owner: int = 0
    children: dict[str, None] = field(default_factory=dict)

    @property
    def stat(self) -> Stat:
        changes = 2 * self.creates - len(self.children)
        times = (self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms)
        return Stat(*times, self.version, changes, 0, self.owner, len(self.data), len(self.children), pzxid=self.pzxid)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    """Every znode by its path. `apply` does all of a transaction or nothing."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0, 0, 0)}
        self._undo: list[Callable[[], object]] = []
        self._events: list[WatchEvent] = []

    def apply(
        self, ops: Sequence[Op], zxid: int, now_ms: int, session_id: int
    ) -> tuple[tuple[OpResult, ...], list[WatchEvent]]:
        """A result for each operation, and what watches have to tell (nothing if it was refused)."""
        self._undo, self._events = [], []
        results: list[OpResult] = []
        for index, op in enumerate(ops):
            try:
                results.append(self._apply_one(op, zxid, now_ms, session_id))
            except OpRefusedError as refused:
                for undo in reversed(self._undo):
                    undo()
                codes = [0] * index + [refused.code] + [NOT_REACHED] * (len(ops) - index - 1)
                return tuple(OpResult(code) for code in codes), []
        return tuple(results), self._events

    def seed(self, path: str, data: bytes, stat: Stat | None, zxid: int, now_ms: int) -> None:
        """Put a znode there, parents too, with the given past. No watch tells of it."""
        node = Znode(data, zxid, zxid, now_ms, now_ms, zxid)
        if stat is not None:
            node = Znode(data, stat.czxid, stat.mzxid, stat.ctime_ms, stat.mtime_ms, stat.pzxid, stat.version)
            node.owner = stat.ephemeral_owner
        if path in self.nodes:
            node.children, node.creates = self.nodes[path].children, self.nodes[path].creates
        elif parent_of(path) not in self.nodes:
            self.seed(parent_of(path), b"", None, zxid, now_ms)
        self.nodes[path] = node
        if path != "/":
            parent, name = self.nodes[parent_of(path)], path.rpartition("/")[2]
            parent.children[name] = None
            number = int(name[-10:]) + 1 if name[-10:].isdecimal() else 0
            parent.creates = max(parent.creates, len(parent.children), number)

    def ephemerals_of(self, session_id: int) -> list[str]:
        return [path for path, node in self.nodes.items() if node.owner == session_id]

    def changes_since(
        self, zxid: int, present: Sequence[str], absent: Sequence[str], parents: Sequence[str] = ()
    ) -> list[WatchEvent]:
        """What SetWatches fires at once."""
        events = []
        for path in present:
            node = self.nodes.get(path)
            if node is None or node.mzxid > zxid:
                events.append(WatchEvent(EventKind.DELETED if node is None else EventKind.CHANGED, path))
        events += [WatchEvent(EventKind.CREATED, path) for path in absent if path in self.nodes]
        for path in parents:
            node = self.nodes.get(path)
            if node is None or node.pzxid > zxid:
                events.append(WatchEvent(EventKind.DELETED if node is None else EventKind.CHILDREN, path))
        return events

    def _apply_one(self, op: Op, zxid: int, now_ms: int, session_id: int) -> OpResult:
        if isinstance(op, Create):
            return self._create(op, zxid, now_ms, session_id)
        node = self.nodes.get(op.path)
        if node is None:
            raise OpRefusedError(NoNodeError.code)
        if op.version not in (-1, node.version):
            raise OpRefusedError(BadVersionError.code)
        if isinstance(op, Check):
            return OpResult(0)
        if isinstance(op, Delete):
            return self._delete(op.path, node, zxid)
        return self._set(op, node, zxid, now_ms)

    def _create(self, op: Create, zxid: int, now_ms: int, session_id: int) -> OpResult:
        parent_path = parent_of(op.path)
        parent = self.nodes.get(parent_path)
        if parent is None:
            raise OpRefusedError(NoNodeError.code)
        path = f"{op.path}{parent.creates:010d}" if op.sequential else op.path
        if path in self.nodes:
            raise OpRefusedError(NodeExistsError.code)
        if parent.owner:
            raise OpRefusedError(_NO_CHILDREN_FOR_EPHEMERALS)
        name, before = path.rpartition("/")[2], (parent.creates, parent.pzxid)
        self.nodes[path] = Znode(op.data, zxid, zxid, now_ms, now_ms, zxid, owner=session_id if op.ephemeral else 0)
        parent.children[name] = None
        parent.creates, parent.pzxid = parent.creates + 1, zxid

        def undo() -> None:
            del self.nodes[path], parent.children[name]
            parent.creates, parent.pzxid = before

        self._undo.append(undo)
        self._tell((EventKind.CREATED, path), (EventKind.CHILDREN, parent_path))
        return OpResult(0, 0, path)

    def _delete(self, path: str, node: Znode, zxid: int) -> OpResult:
        if path == "/":
            raise OpRefusedError(_BAD_ARGUMENTS)
        if node.children:
            raise OpRefusedError(NotEmptyError.code)
        parent_path = parent_of(path)
        parent, name = self.nodes[parent_path], path.rpartition("/")[2]
        before = parent.pzxid
        del self.nodes[path], parent.children[name]
        parent.pzxid = zxid

        def undo() -> None:
            self.nodes[path] = node
            parent.children[name] = None
            parent.pzxid = before

        self._undo.append(undo)
        self._tell((EventKind.DELETED, path), (EventKind.CHILDREN, parent_path))
        return OpResult(0)

    def _set(self, op: Set, node: Znode, zxid: int, now_ms: int) -> OpResult:
        before = (node.data, node.version, node.mzxid, node.mtime_ms)

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime_ms = before

        self._undo.append(undo)
        node.data, node.version, node.mzxid, node.mtime_ms = op.data, node.version + 1, zxid, now_ms
        self._tell((EventKind.CHANGED, op.path))
        return OpResult(0, node.version)

    def _tell(self, *events: tuple[EventKind, str]) -> None:
        self._events += [WatchEvent(kind, path) for kind, path in events]
