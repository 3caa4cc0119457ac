"""Real Kafka clusters, recorded: every write ZooKeeper accepted, and the tree as it stood at any zxid.

Reads `tests/data/*/zookeeper.jsonl.gz` (the READMEs beside them say how they were made) and nothing else. In them the
version of a `set` is the one it made, and that of a `check` is one above the version that was asked for.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import groupby
from pathlib import Path

import msgspec

from controller.core.project.znodes import CONTROLLER_EPOCH
from controller.zookeeper.port import Stat


class Write(msgspec.Struct, frozen=True):
    """One line. Lines of one zxid are one transaction; an `error` among them means that nothing was done."""

    zxid: int
    at_ms: int
    session: str
    op: str  # session, close, error, check, create, set, delete
    path: str = ""
    data: str | None = None
    version: int = 0
    ephemeral: bool = False


class Znode(msgspec.Struct, frozen=True):
    """A znode as it stood; `owner` is 0 unless it is ephemeral."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    pzxid: int
    owner: int = 0

    @property
    def stat(self) -> Stat:
        """Returns the stat of a client's read; no test here looks at the numbers of children."""
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            children_version=0,
            acl_version=0,
            ephemeral_owner=self.owner,
            data_length=len(self.data),
            children_count=0,
            pzxid=self.pzxid,
        )


Tree = Mapping[str, Znode]


class Recording:
    """One cluster's history."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._path = folder / "zookeeper.jsonl.gz"

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def transactions(self) -> list[tuple[Write, ...]]:
        """Returns the writes in the order of zxids. Refused transactions are left out: they changed nothing."""
        with gzip.open(self._path) as lines:
            writes = [msgspec.json.decode(line, type=Write) for line in lines]
        grouped = (tuple(group) for _, group in groupby(writes, key=lambda write: write.zxid))
        return [group for group in grouped if all(write.op != "error" for write in group)]

    @cached_property
    def claims(self) -> list[int]:
        """The zxids that set `/controller_epoch`."""
        return [w.zxid for group in self.transactions for w in group if (w.op, w.path) == ("set", CONTROLLER_EPOCH)]

    def values(self) -> Iterator[tuple[str, bytes]]:
        """Every path and value ever written, empty ones too."""
        for group in self.transactions:
            for write in group:
                if write.op in ("create", "set"):
                    yield write.path, (write.data or "").encode()

    def trees(self, zxids: Collection[int]) -> Iterator[tuple[int, Tree]]:
        """The tree just after each of these zxids, in their order. One pass."""
        wanted = sorted(zxids, reverse=True)
        tree: dict[str, Znode] = {}
        for group in self.transactions:
            while wanted and wanted[-1] < group[0].zxid:
                yield wanted.pop(), dict(tree)
            for write in group:
                _replay(tree, write)
        for zxid in reversed(wanted):
            yield zxid, dict(tree)


def _replay(tree: dict[str, Znode], write: Write) -> None:
    data, zxid, at_ms = (write.data or "").encode(), write.zxid, write.at_ms
    match write.op:
        case "create":
            assert write.path not in tree
            owner = int(write.session, 16) if write.ephemeral else 0
            tree[write.path] = Znode(data, 0, zxid, zxid, at_ms, at_ms, zxid, owner)
            _touch_parent(tree, write.path, zxid)
        case "set":
            old = tree[write.path]
            assert write.version == old.version + 1, f"{write.path} skips versions at zxid {zxid}"
            tree[write.path] = msgspec.structs.replace(
                old, data=data, version=write.version, mzxid=zxid, mtime_ms=at_ms
            )
        case "delete":
            del tree[write.path]
            _touch_parent(tree, write.path, zxid)
        case "check":
            assert tree[write.path].version == write.version - 1
        case "close":
            for path in [path for path, znode in tree.items() if znode.owner == int(write.session, 16)]:
                del tree[path]
                _touch_parent(tree, path, zxid)


def _touch_parent(tree: dict[str, Znode], path: str, zxid: int) -> None:
    parent = path.rpartition("/")[0]
    if parent in tree:
        tree[parent] = msgspec.structs.replace(tree[parent], pzxid=zxid)


RECORDINGS = [Recording(Path(__file__).parent / "data" / name) for name in ("kafka-3.9.1", "kafka-3.9.1-info")]
