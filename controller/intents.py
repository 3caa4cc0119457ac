"""Changes on their way into ZooKeeper: what each wants written, and which operations that comes to.

Pure: no I/O. `store.py` sends what this module spells out, and hands in what it read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from controller.core.changes import Change, Committed
from controller.core.cluster import Cluster
from controller.core.writes import Create, Delete, Op, Set
from controller.core.znodes import Ensure, Put, Remove, RemoveBelow, Write, writes_for
from controller.zk_model import Node

#: rough bytes of a write beside its path and data
_OP_OVERHEAD_BYTES = 32


class Intent(msgspec.Struct, gc=False):
    """One change on its way into ZooKeeper: what it wants written, and the writes that this comes to now."""

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

    def proofs_in(self, nodes: Mapping[str, Node | None]) -> Iterator[Node]:
        """Znodes as only this can have left them."""
        for write in self.wanted:
            node = nodes[write.path]
            if isinstance(write, Set) and node is not None and is_visible(write, node):
                yield node


def intents_for(cluster: Cluster, changes: Sequence[Change], stood: dict[int, Committed]) -> Iterator[Intent]:
    """What is to be written for a step; a change that needs no write stands. What one transaction ensures, those that
    leave after it find there: the server takes the requests of a session in their order."""
    ensured: set[str] = set()
    for index, change in enumerate(changes):
        wanted = writes = writes_for(cluster, change)
        if not wanted:
            stood[index] = Committed(change)
            continue
        if len(wanted) > 1:
            writes = tuple([one for one in wanted if not (isinstance(one, Ensure) and one.path in ensured)])
            ensured.update([one.path for one in wanted if isinstance(one, Ensure)])
        yield Intent(index, change, wanted, writes)


def ops_for(batch: Sequence[Intent]) -> tuple[list[Op], list[int]]:
    """The operations of a transaction, and for each change the position of its last one. A node that several
    changes ensure is made once."""
    ops: list[Op] = []
    last: list[int] = []
    ensured: set[str] = set()
    for intent in batch:
        for write in intent.writes:
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


def renewed(intent: Intent, nodes: Mapping[str, Node | None]) -> Intent | None:
    """The change with what was read taken into account; None when it conflicts."""
    writes: list[Write] = []
    for write in intent.wanted:
        node = nodes[write.path]
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
            case Remove(path=path):
                if node is not None:
                    writes.append(Delete(path, node.stat.version))
            case RemoveBelow():
                raise AssertionError(f"{write.path} was not spelled out")
            case Put(path=path, data=data):
                writes.append(write if node is None else Set(path, data, node.stat.version))
            case Ensure():
                if node is None:
                    writes.append(write)
    return Intent(intent.index, intent.change, intent.wanted, tuple(writes))


def is_visible(write: Write, node: Node | None) -> bool:
    """Whether what was written can be seen. Ours carries our controller epoch or our random id, so equal is ours."""
    match write:
        case Set(data=data, version=version):
            return node is not None and node.stat.version == version + 1 and node.data == data
        case Create(data=data) | Put(data=data):
            return node is not None and node.data == data
        case Delete() | Remove() | RemoveBelow():
            return node is None
        case _:
            return node is not None
