"""Finds the files that are records by their content, and the node of each.

A file of another kind is passed over. One that lies where a record must lie and cannot be read is named with its
trouble: nothing is left out in silence.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final, Literal, cast

import msgspec

from sparkjobs.records import RecordError
from sparkjobs.records.kraft_files import CHECKPOINT_NAME, batches_in
from sparkjobs.records.zookeeper_files import operations_in

Kind = Literal["zookeeper log", "zookeeper snapshot", "kraft log", "kraft snapshot"]

#: the possible names of a record's file: the rest is not opened
_NAMES: Final = re.compile(
    r"(log\.[0-9a-f]+|snapshot\.[0-9a-f]+|\d{20}\.log(\.deleted)?|.*\.checkpoint)(\.gz)?", re.ASCII
)
_ZXID: Final = re.compile(r"(?:log|snapshot)\.([0-9a-f]+)", re.ASCII)
_PROPERTIES_BYTES: Final = 64 * 1024
#: records shrink to a tenth; what was allocated ahead is not read
_UNPACKED_TIMES, _UNPACKED_BYTES = 200, 64 * 1024 * 1024
_KINDS: Final[dict[bytes, Kind]] = {b"ZKLG": "zookeeper log", b"ZKSN": "zookeeper snapshot"}
_METADATA_FOLDER: Final = "__cluster_metadata"
#: the errors of reading a damaged or vanished file
TROUBLES: Final = (OSError, EOFError, zlib.error, RecordError)


class Source(msgspec.Struct, frozen=True):
    """One file. `first` is its first zxid or offset; of a snapshot, the first that is not in it."""

    path: str
    kind: Kind
    first: int
    epoch: int | None = None  # of a KRaft snapshot
    trouble: str | None = None  # it cannot be read at all

    @property
    def folder(self) -> str:
        """A folder is of one node."""
        return str(Path(self.path).parent)

    def open(self) -> BinaryIO:
        """Returns its content, whether it is compressed or not."""
        with Path(self.path).open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
        return cast(BinaryIO, Unpacked(self.path)) if is_gzip else Path(self.path).open("rb")


class Unpacked(gzip.GzipFile):
    """A compressed file. Records that fill it to so many times its size are a bomb: RecordError."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "rb")
        self._limit_bytes = max(_UNPACKED_BYTES, _UNPACKED_TIMES * Path(path).stat().st_size)

    def read(self, size: int | None = -1) -> bytes:
        """As much as asked for. What stands before a cut is given, and the next read raises."""
        if size is None or size < 0:
            return super().read(size)
        pieces: list[bytes] = []
        left = size
        while left > 0:
            try:
                piece = super().read1(left)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                if not pieces:
                    raise
                break
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        if self.tell() > self._limit_bytes:
            raise RecordError(f"it unpacks to more than {_UNPACKED_TIMES} times its size: no record does")
        return b"".join(pieces)


def find_records(named: Iterable[str]) -> list[Source]:
    """Of the files and folders that were named, in the order of their names. No link leads out of a folder."""
    paths: set[Path] = set()
    for name in named:
        path = Path(name)
        if path.is_dir():
            root = path.resolve()
            inside = (one for one in path.rglob("*") if _NAMES.fullmatch(one.name) and one.is_file())
            paths |= {one for one in inside if one.resolve().is_relative_to(root)}
        elif _NAMES.fullmatch(path.name) and path.is_file():
            paths.add(path)
    found = (source_of(path) for path in sorted(paths))
    return [one for one in found if one is not None]


def source_of(path: Path) -> Source | None:
    """Returns the kind of the file, or None if it is no record."""
    blank, head = Source(str(path), "kraft log", 0), b""
    try:
        with blank.open() as content:
            head = content.read(8)
        if head[:4] in _KINDS:
            return _zookeepers(blank, head)
        if len(head) < 8 or not _is_number_name(path.name):
            return None
        return _krafts(blank, path)
    except TROUBLES as error:
        kind = _KINDS.get(head[:4], blank.kind)
        if kind == blank.kind and _METADATA_FOLDER not in str(path):
            return None
        return msgspec.structs.replace(blank, kind=kind, trouble=f"{type(error).__name__}: {error}")


def _is_number_name(name: str) -> bool:
    return name[:20].isdecimal()


def _zookeepers(blank: Source, head: bytes) -> Source:
    name = Path(blank.path).name
    in_name = _ZXID.match(name)
    if head.startswith(b"ZKSN"):
        if in_name is None:
            trouble = "its name does not say its zxid: call it snapshot.ZXID"
            return msgspec.structs.replace(blank, kind="zookeeper snapshot", trouble=trouble)
        return msgspec.structs.replace(blank, kind="zookeeper snapshot", first=int(in_name[1], 16) + 1)
    with blank.open() as content:
        first = next((one.zxid for one in operations_in(content)), None)
    if first is None:  # nothing is in it yet
        first = int(in_name[1], 16) if in_name else 0
    return msgspec.structs.replace(blank, kind="zookeeper log", first=first)


def _krafts(blank: Source, path: Path) -> Source | None:
    with blank.open() as content:
        first = next(batches_in(content), None)
    if first is None or not any(record.message for record in first.records):
        return None  # a log of data, or nothing
    names = {record.message.name for record in first.records if record.message}
    if "SnapshotHeaderRecord" not in names:
        return msgspec.structs.replace(blank, first=first.base_offset)
    in_name = CHECKPOINT_NAME.match(path.name)
    if in_name is None:
        return None
    return msgspec.structs.replace(blank, kind="kraft snapshot", first=int(in_name[1]), epoch=int(in_name[2]))


def properties_beside(folder: str) -> dict[str, str]:
    """Of `meta.properties`, which lies in the folder or above it."""
    for place in (Path(folder), Path(folder).parent):
        path = place / "meta.properties"
        if path.is_file() and path.stat().st_size <= _PROPERTIES_BYTES:
            lines = path.read_text("utf-8", "replace").splitlines()
            pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
            return {key.strip(): value.strip() for key, _, value in pairs}
    return {}


def name_of_node(folder: str) -> str:
    """By `meta.properties`, otherwise by its folder."""
    known = properties_beside(folder)
    number = known.get("node.id") or known.get("broker.id")
    return number if number is not None else folder
