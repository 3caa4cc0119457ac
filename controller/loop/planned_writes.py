"""Changes on their way into ZooKeeper: the writes that each wants, and the operations that these become.

Pure: no I/O. `store.py` sends the operations of this module, and hands in the nodes that it read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Change, Committed
from controller.core.operations import (
    Create,
    Delete,
    Op,
    Set,
)
from controller.core.project.znodes import (
    Ensure,
    Put,
    Remove,
    RemoveBelow,
    Write,
)
from controller.zookeeper.port import Denied, Node

#: rough bytes of a write beside its path and data
_OP_OVERHEAD_BYTES = 32


class PlannedWrite(msgspec.Struct, gc=False):
    """One change on its way into ZooKeeper: the writes that it wants, and the operations that they are now."""

    index: int
    change: Change
    wanted: tuple[Write, ...]
    writes: tuple[Write, ...]

    @property
    def size(self) -> int:
        size = 0
        for write in self.writes:
            size += _OP_OVERHEAD_BYTES + len(write.path) + len(getattr(write, "data", b""))
        return size

    @property
    def paths(self) -> list[str]:
        return [write.path for write in self.wanted]

    def proofs_in(self, nodes: Mapping[str, Node | Denied | None]) -> Iterator[Node]:
        """Znodes as only this can have left them."""
        for write in self.wanted:
            node = nodes[write.path]
            if isinstance(write, Set) and isinstance(node, Node) and is_visible(write, node):
                yield node


def planned_writes_for(
    cluster: Cluster, changes: Sequence[Change], stood: dict[int, Committed]
) -> Iterator[PlannedWrite]:
    """Returns the planned writes of a step; a change without a write stands. Nodes that one transaction ensures exist
    for those that leave after it: the server takes the requests of a session in their order."""
    ensured: set[str] = set()
    for index, change in enumerate(changes):
        wanted = writes = change.writes(cluster)
        if not wanted:
            stood[index] = Committed(change)
            continue
        if len(wanted) > 1:
            writes = tuple([one for one in wanted if not (isinstance(one, Ensure) and one.path in ensured)])
            ensured.update([one.path for one in wanted if isinstance(one, Ensure)])
        yield PlannedWrite(index, change, wanted, writes)


def ops_for(batch: Sequence[PlannedWrite]) -> tuple[list[Op], list[int]]:
    """Returns the operations of a transaction, and for each change the position of its last one. A node that several
    changes ensure is made once."""
    ops: list[Op] = []
    last: list[int] = []
    ensured: set[str] = set()
    for planned in batch:
        for write in planned.writes:
            if type(write) is Set:  # nearly all writes of a broker death
                ops.append(write)
                continue
            match write:
                case Ensure(path=path):
                    if path not in ensured:
                        ensured.add(path)
                        ops.append(Create(path, b""))
                case Put(path=path, data=data):
                    ops.append(Create(path, data))
                case Remove() | RemoveBelow():
                    raise AssertionError(f"{write.path} was not read before it is removed")
                case _:
                    ops.append(write)
        last.append(len(ops) - 1)
    return ops, last


class RefusedWrite(msgspec.Struct, frozen=True):
    """A change that ZooKeeper refuses to write, and no reading explains why: which operation it was, and the code."""

    change: Change
    verb: str  # create, read, write or delete
    path: str
    code: int
    #: of a deletion that is refused: foreign children of the znode
    below: tuple[str, ...] = ()


_VERBS: Mapping[type, str] = {Create: "create", Ensure: "create", Put: "write", Set: "write"}


def verb_of(write: Write | Op) -> str:
    return _VERBS.get(type(write), "delete")


def owners_of(batch: Sequence[PlannedWrite], last: Sequence[int], position: int, op: Op) -> list[PlannedWrite]:
    """Returns the change that owns the operation, and others that want the same znode written: it is refused to them,
    too."""
    owner = batch[bisect_left(last, position)]
    return [planned for planned in batch if planned is owner or op.path in planned.paths]


def denied_in(planned: PlannedWrite, nodes: Mapping[str, Node | Denied | None]) -> tuple[str, int] | None:
    """Returns the znode that may not be read, and the code, if the change has one that it must know."""
    for write in planned.wanted:
        node = nodes[write.path]
        if isinstance(node, Denied) and not isinstance(write, Ensure):  # it is there, and that is enough
            return write.path, node.code
    return None


def renewed(planned: PlannedWrite, nodes: Mapping[str, Node | Denied | None]) -> PlannedWrite | None:
    """Returns the change with the read nodes taken into account; None when it conflicts."""
    writes: list[Write] = []
    for write in planned.wanted:
        node = nodes[write.path]
        if isinstance(write, Ensure):
            if node is None:
                writes.append(write)
            continue
        assert not isinstance(node, Denied)
        match write:
            case Set(version=version):
                if node is None or node.stat.version != version:
                    return None
                writes.append(write)
            case Create():
                if node is not None:
                    return None
                writes.append(write)
            case Delete(version=version):
                if node is not None and node.stat.version != version:
                    return None
                if node is not None:
                    writes.append(write)
            case Remove(path=path) | RemoveBelow(path=path):
                if node is not None:
                    writes.append(Delete(path, node.stat.version))
            case Put(path=path, data=data):
                writes.append(write if node is None else Set(path, data, node.stat.version))
    return PlannedWrite(planned.index, planned.change, planned.wanted, tuple(writes))


def is_visible(write: Write, node: Node | None) -> bool:
    """Returns whether a write can be seen. Ours carries our controller epoch or our random id, so equal is ours."""
    match write:
        case Set(data=data, version=version):
            return node is not None and node.stat.version == version + 1 and node.data == data
        case Create(data=data) | Put(data=data):
            return node is not None and node.data == data
        case Delete() | Remove() | RemoveBelow():
            return node is None
        case _:
            return node is not None
