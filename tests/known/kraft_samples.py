"""Samples for KRaft's readers: the recordings, and batches made by hand."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import crc32c

KRAFT: Final = Path(__file__).parents[1] / "data" / "kraft"
DUMPS: Final = sorted(KRAFT.glob("*/*/dump/*/*.txt.gz"))


def dumped_file(dump: Path) -> Path:
    """Returns the file that a page of `kafka-dump-log` was printed of."""
    return dump.parents[2] / dump.parent.name / dump.name.replace(".txt", "")


def unzipped(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def surviving_log() -> bytes:
    """The whole log of the cluster of 4.3.1."""
    return unzipped(KRAFT / "4.3.1" / "controller-101" / "__cluster_metadata-0" / f"{0:020}.log.gz")


def varint(value: int) -> bytes:
    """Zig-zag, as in record batches."""
    left = (value << 1) ^ (value >> 63)
    found = b""
    while left > 0x7F:
        found, left = found + bytes([left & 0x7F | 0x80]), left >> 7
    return found + bytes([left])


def batch(base_offset: int, epoch: int, at_ms: int, values: Sequence[bytes], *, keys: Sequence[bytes] = ()) -> bytes:
    """A whole batch with its checksum; with keys, a control batch."""
    records = b""
    for delta, value in enumerate(values):
        key = varint(len(keys[delta])) + keys[delta] if keys else varint(-1)
        body = b"\0" + varint(0) + varint(delta) + key + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    count = len(values)
    attributes = 0x20 if keys else 0
    summed = struct.pack(">hiqqqhii", attributes, count - 1, at_ms, at_ms, -1, -1, -1, count) + records
    body = struct.pack(">ibI", epoch, 2, crc32c.crc32c(summed)) + summed
    return struct.pack(">qi", base_offset, len(body)) + body
