"""Of several servers' logs the most complete one is read."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from sparkjobs.records.zookeeper_files import longest_history

_ERROR = -1


def a_log(folder: Path, zxids: Iterable[int]) -> Path:
    """Of a server without transactions that could be carried out."""
    (folder / "version-2").mkdir(parents=True)
    records = (struct.pack(">qiqqii", 1, 0, zxid, 0, _ERROR, -101) for zxid in zxids)
    packed = (struct.pack(">qi", zlib.adler32(one), len(one)) + one + b"B" for one in records)
    (folder / "version-2" / "log.100000001").write_bytes(struct.pack(">4siq", b"ZKLG", 2, 0) + b"".join(packed))
    return folder


def epoch(number: int, first: int, last: int) -> list[int]:
    return [(number << 32) + counter for counter in range(first, last + 1)]


def test_a_leaders_lone_writes_before_it_lost_the_lead_never_happened(tmp_path: Path) -> None:
    stood = [*epoch(1, 1, 5), *epoch(2, 1, 3), *epoch(3, 1, 4)]
    # it was given a snapshot afterwards, and goes on behind it
    alone = [*epoch(1, 1, 5), *epoch(2, 1, 8), *epoch(3, 3, 4)]
    logs = [a_log(tmp_path / name, zxids) for name, zxids in (("alone", alone), ("a", stood), ("b", stood))]
    assert [one.zxid for one in longest_history(logs)] == stood


def test_a_server_that_got_a_snapshot_lacks_transactions_of_another(tmp_path: Path) -> None:
    stood = [*epoch(1, 1, 5), *epoch(2, 1, 3)]
    logs = [a_log(tmp_path / "behind", stood[:3]), a_log(tmp_path / "a", stood)]
    assert [one.zxid for one in longest_history(logs)] == stood
