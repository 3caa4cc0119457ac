"""Records that were spoiled, by chance or by intent: each is named, none ends the answers, and memory is bounded."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkjobs.history.as_of import answers_for_records
from sparkjobs.records import RecordError, discovery
from sparkjobs.records.discovery import find_records
from sparkjobs.records.kraft_files import MAX_BATCH_BYTES, frames_in
from sparkjobs.tables.arrow import batch_of
from sparkjobs.tables.record import RECORD
from tests.known.kraft_samples import KRAFT, batch, surviving_log
from tests.known.test_moments import DATA, METADATA

KRAFT_LOG = surviving_log()
ZOOKEEPER_LOG = gzip.decompress(sorted((DATA / "kafka-3.9.1" / "zookeeper").glob("log.*.gz"))[0].read_bytes())
SNAPSHOT = gzip.decompress((DATA / "zookeeper-snapshots" / "snapshot.bfd-3.9.5.gz").read_bytes())
(CHECKPOINT_PATH,) = (KRAFT / "4.3.1" / "controller-101" / METADATA).glob("*0442-*.checkpoint.gz")
CHECKPOINT = gzip.decompress(CHECKPOINT_PATH.read_bytes())
#: enough of a log for its answers to be of all kinds
FUZZED_BYTES = 24_000
PLACES = {
    "metadata log": (f"{METADATA}/{0:020}.log", KRAFT_LOG),
    "metadata snapshot": (f"{METADATA}/{CHECKPOINT_PATH.name.removesuffix('.gz')}", CHECKPOINT),
    "transaction log": ("version-2/log.1", ZOOKEEPER_LOG),
    "snapshot": ("version-2/snapshot.bfd", SNAPSHOT),
}


def told(folder: Path) -> dict[str, list[Any]]:
    return answers_for_records(find_records([str(folder)]), "kafka")  # type: ignore[return-value]


def laid(folder: Path, name: str, content: bytes) -> Path:
    (path := folder / name).parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def troubles(folder: Path) -> list[str]:
    return [one.said for one in told(folder)["record_sources"] if one.kind == "trouble"]


@pytest.mark.parametrize("kind", PLACES)
def test_a_flipped_bit_is_named_with_its_file(kind: str, tmp_path: Path) -> None:
    name, content = PLACES[kind]
    spoiled = bytearray(content)
    spoiled[len(content.rstrip(b"\0")) // 2] ^= 0x10
    path = laid(tmp_path, name, bytes(spoiled))
    (said,) = troubles(tmp_path)
    assert str(path) in said


@pytest.mark.parametrize("kind", PLACES)
def test_a_compressed_file_that_was_cut_is_named(kind: str, tmp_path: Path) -> None:
    name, content = PLACES[kind]
    packed = gzip.compress(content)
    path = laid(tmp_path, f"{name}.gz", packed[: len(packed) // 2])
    said = troubles(tmp_path)
    assert any(str(path) in words for words in said)
    assert "without its end" not in said


@pytest.mark.parametrize(
    ("kind", "at", "said"),
    [("metadata log", 16, "a batch of format"), ("transaction log", 7, "format"), ("snapshot", 7, "format")],
)
def test_another_version_is_named(kind: str, at: int, said: str, tmp_path: Path) -> None:
    name, content = PLACES[kind]
    spoiled = bytearray(content)
    spoiled[at] = 9
    path = laid(tmp_path, name, bytes(spoiled))
    (words,) = troubles(tmp_path)
    assert str(path) in words
    assert said in words


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of znodes of zeros, which packs to a thousandth."""
    monkeypatch.setattr(discovery, "_UNPACKED_BYTES", 4 << 20)
    head = struct.pack(">4siq", b"ZKSN", 2, 0) + struct.pack(">ii", 0, 0)
    node = struct.pack(">i", 2) + b"/a" + struct.pack(">i", 1 << 20) + bytes((1 << 20) + 8 + 60)
    path = laid(tmp_path, "version-2/snapshot.bfd.gz", gzip.compress(head + node * 40))
    (said,) = troubles(tmp_path)
    assert str(path) in said
    assert "it unpacks to more than 200 times its size" in said


def test_a_batch_is_as_large_as_kafka_writes_it() -> None:
    import io

    with pytest.raises(RecordError, match="a batch of"):
        list(frames_in(io.BytesIO(struct.pack(">qi", 7, MAX_BATCH_BYTES + 1) + bytes(100))))


def test_more_nodes_than_a_cluster_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkjobs.records.kraft_history.MOST_NODES", 2)
    monkeypatch.setattr("sparkjobs.records.zookeeper_history.MOST_SERVERS", 2)
    for number in range(3):
        laid(tmp_path, f"{number}/{METADATA}/{0:020}.log", batch(0, 1, 5, [b"\x01\x14\x00\x00"]))
        laid(tmp_path, f"{number}/version-2/log.1", ZOOKEEPER_LOG[:2_000])
    assert sorted(troubles(tmp_path)) == [
        "ZooKeeper's files in 3 folders: name those of one ensemble, 2 at most",
        "metadata logs in 3 folders: name those of one cluster, 2 at most",
    ]


def test_each_of_many_files_is_looked_at(tmp_path: Path) -> None:
    """Some are empty, and some are nothing that a record is."""
    laid(tmp_path, f"{METADATA}/{0:020}.log", KRAFT_LOG)
    for number in range(1, 40):
        laid(tmp_path, f"{METADATA}/{number:020}.log", b"" if number % 2 else b"nothing like it, but long enough" * 3)
    answers = told(tmp_path)
    assert len([one for one in answers["record_sources"] if one.kind == "trouble"]) == 19
    assert len(answers["record_partition_states"]) > 100


def sealed(content: bytes) -> bytes:
    """With checksums that fit, as somebody writes it who wants it to be believed."""
    fixed, at = bytearray(content), 0
    while at + 61 <= len(fixed):
        (length,) = struct.unpack_from(">i", fixed, at + 8)
        end = at + 12 + length
        if length < 49 or end > len(fixed):
            break
        struct.pack_into(">I", fixed, at + 17, crc32c.crc32c(bytes(fixed[at + 21 : end])))
        at = end
    return bytes(fixed)


@pytest.mark.parametrize(
    ("kind", "seal"),
    [(kind, seal) for kind in PLACES for seal in (bytes, sealed) if "metadata" in kind or seal is bytes],
)
def test_answers_and_their_tables_come_of_whatever_lies_there(
    kind: str, seal: Callable[[bytes], bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    name, content = PLACES[kind][0], PLACES[kind][1][:FUZZED_BYTES]
    used = len(content.rstrip(b"\0"))

    @given(st.integers(0, 1 << 32), st.integers(1, 40), st.integers(0, used))
    @settings(deadline=None, max_examples=settings.default.max_examples // 20)
    def spoil(seed: int, harms: int, cut: int) -> None:
        chance, spoiled = Random(seed), bytearray(content[: used if cut % 3 else cut])
        for _ in range(harms if spoiled else 0):
            spoiled[chance.randrange(len(spoiled))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        folder = tmp_path_factory.mktemp("spoiled")
        laid(folder, name, seal(bytes(spoiled)))
        for table, rows in told(folder).items():
            batch_of(RECORD[table], rows)

    spoil()
