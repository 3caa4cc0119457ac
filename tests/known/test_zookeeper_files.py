"""ZooKeeper's snapshots as five releases wrote them, and files that are no whole snapshot."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from pathlib import Path

import pytest

from sparkjobs.records.zookeeper_files import Snapshot, SnapshotError, operations_in, snapshot_in
from tests.recordings import Recording

DATA = Path(__file__).parents[1] / "data"
SNAPSHOTS = sorted((DATA / "zookeeper-snapshots").glob("*.gz"))


def content_of(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def snapshot_of(path: Path) -> Snapshot:
    return snapshot_in(io.BytesIO(content_of(path)))


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_a_snapshot_holds_the_tree_that_its_log_ends_with(path: Path) -> None:
    ((_, tree),) = Recording(DATA / "kafka-3.9.1").trees([0xBFD])
    found = {one.path: one for one in snapshot_of(path).znodes if not one.path.startswith("/zookeeper")}
    assert found.keys() == {name for name in tree if name != "/" and not name.startswith("/zookeeper")}
    for name, znode in found.items():
        expected = tree[name]
        assert (znode.data or b"", znode.version) == (expected.data, expected.version), name
        assert (znode.mtime_ms, znode.mzxid) == (expected.mtime_ms, expected.mzxid), name
        assert znode.ephemeral_owner == expected.owner, name


def test_all_releases_wrote_one_tree() -> None:
    assert len(SNAPSHOTS) == 5
    first, *others = (snapshot_of(path) for path in SNAPSHOTS)
    assert all(one.znodes == first.znodes and one.sessions == first.sessions for one in others)
    assert len(first.sessions) >= 3


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_a_snapshot_cut_short_or_changed_is_refused_by_name(path: Path) -> None:
    whole = content_of(path)
    for end in (0, 3, 20, 500, len(whole) // 2, len(whole) - 1):
        with pytest.raises(SnapshotError, match=r"whole|checksum"):
            snapshot_in(io.BytesIO(whole[:end]))
    for at in (0, 25, len(whole) // 3, len(whole) - 14):
        broken = bytearray(whole)
        broken[at] ^= 0x41
        with pytest.raises(SnapshotError):
            snapshot_in(io.BytesIO(broken))


def a_log(*records: tuple[int, int, int, bytes]) -> io.BytesIO:
    """Each by zxid, cxid, type and the rest."""
    content = b"ZKLG\0\0\0\x02" + bytes(8)
    for zxid, cxid, kind, rest in records:
        record = struct.pack(">qiqqi", 7, cxid, zxid, 1_000 + zxid, kind) + rest
        content += struct.pack(">qi", zlib.adler32(record), len(record)) + record + b"B"
    return io.BytesIO(content)


@pytest.mark.parametrize(
    ("rest", "paths"),
    [
        (b"", ()),  # before 3.6
        (b"\0\0\0\x02" + bytes(8), ()),  # since 3.6, told not to say it: a digest alone
        (b"\0\0\0\x01" + b"\0\0\0\x02/a" + b"\0\0\0\x02" + bytes(8), ("/a",)),
        (b"\0\0\0\x00", ()),
    ],
)
def test_the_end_of_a_session_is_read_as_each_release_writes_it(rest: bytes, paths: tuple[str, ...]) -> None:
    (found,) = operations_in(a_log((5, 0, -11, rest)))
    assert (found.kind, found.paths, found.is_asked_for, found.at_ms) == ("close", paths, False, 1_005)
