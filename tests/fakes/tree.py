"""The fake's znodes: refusals as in PrepRequestProcessor, writes as in DataTree, no sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from controller.core.operations import (
    Check,
    Create,
    Delete,
    Op,
    Set,
)
from controller.zookeeper.codec import NOT_REACHED, acl_for, client_path_for
from controller.zookeeper.port import (
    BadVersionError,
    Brief,
    Denied,
    EventKind,
    NoAuthError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OpResult,
    Stat,
    WatchEvent,
)
from tests.fakes.acls import CREATE, DELETE, OPEN, READ, WRITE, Acl, Identities, InvalidAclError, acl_in, allows

_BAD_ARGUMENTS, _NO_CHILDREN_FOR_EPHEMERALS, _INVALID_ACL = -8, -108, -114


def brief_of(node: Node | Denied | None) -> Brief | Denied | None:
    """Returns the part of a node that `brief_many` reads."""
    if node is None or isinstance(node, Denied):
        return node
    return Brief(node.data, node.stat.version, node.stat.mtime_ms, node.zxid)


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
    acl: Acl = OPEN
    acl_version: int = 0

    @property
    def stat(self) -> Stat:
        changes = 2 * self.creates - len(self.children)
        times = (self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms)
        versions = (self.version, changes, self.acl_version)
        return Stat(*times, *versions, self.owner, len(self.data), len(self.children), pzxid=self.pzxid)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The client of a transaction: its session, the identities that its connection has proved (None: the test, which
    may do all), and the protection of the nodes that it makes."""

    session_id: int = 0
    identities: Identities | None = None
    owns: bool = False
    chroot: str = ""

    def acl_for(self, path: str) -> Acl:
        return acl_in(acl_for(client_path_for(path, self.chroot), is_owned=self.owns), self.identities)


@dataclass(frozen=True, slots=True)
class Told:
    """Events for watches, and the ACL of their znode: only clients that may read it are told."""

    event: WatchEvent
    acl: Acl


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    """Every znode by its path. `apply` does all of a transaction or nothing."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0, 0, 0)}
        self._undo: list[Callable[[], object]] = []
        self._events: list[Told] = []

    def apply(
        self, ops: Sequence[Op], zxid: int, now_ms: int, asker: RequestContext, refusal_of: Callable[[Op], int | None]
    ) -> tuple[tuple[OpResult, ...], list[Told]]:
        """Returns a result for each operation, and the events for watches (none if it was refused)."""
        self._undo, self._events = [], []
        results: list[OpResult] = []
        for index, op in enumerate(ops):
            try:
                if (code := refusal_of(op)) is not None:
                    raise OpRefusedError(code)
                results.append(self._apply_one(op, zxid, now_ms, asker))
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
        """Returns the events that SetWatches fires at once."""
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

    def _apply_one(self, op: Op, zxid: int, now_ms: int, asker: RequestContext) -> OpResult:
        if isinstance(op, Create):
            return self._create(op, zxid, now_ms, asker)
        if isinstance(op, Delete):
            return self._delete(op, zxid, asker)
        node = self._found(op.path)
        _demand(node, READ if isinstance(op, Check) else WRITE, asker)
        _same_version(op, node)
        return OpResult(0) if isinstance(op, Check) else self._set(op, node, zxid, now_ms)

    def _found(self, path: str) -> Znode:
        node = self.nodes.get(path)
        if node is None:
            raise OpRefusedError(NoNodeError.code)
        return node

    def _create(self, op: Create, zxid: int, now_ms: int, asker: RequestContext) -> OpResult:
        parent_path = parent_of(op.path)
        try:
            acl = asker.acl_for(op.path)
        except InvalidAclError:
            raise OpRefusedError(_INVALID_ACL) from None
        parent = self._found(parent_path)
        _demand(parent, CREATE, asker)
        path = f"{op.path}{parent.creates:010d}" if op.sequential else op.path
        if path in self.nodes:
            raise OpRefusedError(NodeExistsError.code)
        if parent.owner:
            raise OpRefusedError(_NO_CHILDREN_FOR_EPHEMERALS)
        name, before = path.rpartition("/")[2], (parent.creates, parent.pzxid)
        owner = asker.session_id if op.ephemeral else 0
        self.nodes[path] = Znode(op.data, zxid, zxid, now_ms, now_ms, zxid, owner=owner, acl=acl)
        parent.children[name] = None
        parent.creates, parent.pzxid = parent.creates + 1, zxid

        def undo() -> None:
            del self.nodes[path], parent.children[name]
            parent.creates, parent.pzxid = before

        self._undo.append(undo)
        self._tell((EventKind.CREATED, path), (EventKind.CHILDREN, parent_path))
        return OpResult(0, 0, path)

    def _delete(self, op: Delete, zxid: int, asker: RequestContext) -> OpResult:
        path = op.path
        if path == "/":
            raise OpRefusedError(_BAD_ARGUMENTS)
        parent_path = parent_of(path)
        parent, name = self._found(parent_path), path.rpartition("/")[2]
        _demand(parent, DELETE, asker)  # before it is looked whether there is anything to delete
        node = self._found(path)
        _same_version(op, node)
        if node.children:
            raise OpRefusedError(NotEmptyError.code)
        doomed = node.acl
        before = parent.pzxid
        del self.nodes[path], parent.children[name]
        parent.pzxid = zxid

        def undo() -> None:
            self.nodes[path] = node
            parent.children[name] = None
            parent.pzxid = before

        self._undo.append(undo)
        self._events += [
            Told(WatchEvent(EventKind.DELETED, path), doomed),
            Told(WatchEvent(EventKind.CHILDREN, parent_path), parent.acl),
        ]
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
        self._events += [Told(WatchEvent(kind, path), self.nodes[path].acl) for kind, path in events]


def _demand(node: Znode, perm: int, asker: RequestContext) -> None:
    if not allows(node.acl, perm, asker.identities):
        raise OpRefusedError(NoAuthError.code)


def _same_version(op: Set | Delete | Check, node: Znode) -> None:
    if op.version not in (-1, node.version):
        raise OpRefusedError(BadVersionError.code)
