"""KRaft's files, record by record, against the output of Kafka's own dump tool; and damaged files."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjobs.records import RecordError
from sparkjobs.records.kraft_files import (
    Batch,
    UnknownRecordError,
    batches_in,
    frames_in,
    message_by_schema,
    message_in,
)
from tests.known.kraft_samples import DUMPS, KRAFT, batch, dumped_file, surviving_log, unzipped

#: `| offset: 12 CreateTime: 1795 … headerKeys: [] payload: {…}`, or the name of a control record and its content
PRINTED = re.compile(
    r"\| offset: (?P<offset>\d+) CreateTime: (?P<at>\d+) .*?headerKeys: \[\] "
    r"(?:payload: (?P<data>\{.*\})|controlType: (?P<kind>\w+)\(\d+\)|(?P<name>\w+):? (?P<control>\{.*\}))$"
)
HEAD = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*partitionLeaderEpoch: (\d+) .*isControl: (\w+) "
    r".*position: (\d+) CreateTime: (\d+) size: (\d+) "
)
NAMES = {"LeaderChange": "LeaderChangeMessage", "KRaftVersion": "KRaftVersionRecord", "KRaftVoters": "VotersRecord"}
NAMES |= {"SnapshotHeader": "SnapshotHeaderRecord", "SnapshotFooter": "SnapshotFooterRecord"}
NO_OP = b"\x01\x14\x00\x00"


def batches_of(content: bytes) -> list[Batch]:
    return list(batches_in(io.BytesIO(content)))


def test_there_are_dumps_of_every_file() -> None:
    files = {path for path in KRAFT.glob("*/*/*/*") if path.name.endswith((".log.gz", ".checkpoint.gz"))}
    assert files == {dumped_file(dump) for dump in DUMPS}
    assert len(files) >= 20


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: "/".join(path.parts[-5:]))
def test_a_file_is_read_as_kafkas_own_tool_prints_it(dump: Path) -> None:
    lines = unzipped(dump).decode().splitlines()
    batches = batches_of(unzipped(dumped_file(dump)))
    heads = [found.groups() for line in lines if (found := HEAD.match(line))]
    assert heads == [
        (*map(str, (one.base_offset, one.last_offset, len(one.records), one.epoch)),
         str(one.is_control).lower(), *map(str, (one.position, one.at_ms, one.size_bytes)))
        for one in batches
    ]  # fmt: skip
    printed = [found for line in lines if line.startswith("| offset") and (found := PRINTED.match(line))]
    assert len(printed) == sum(line.startswith("| offset") for line in lines)
    records = [(record, one.at_ms) for one in batches for record in one.records]
    for said, (record, at_ms) in zip(printed, records, strict=True):
        assert (int(said["offset"]), int(said["at"])) == (record.offset, at_ms)
        message = record.message
        assert message is not None
        if said["data"]:
            found: dict[str, Any] = {"type": message.type, "version": message.version, "data": message.fields}
            assert json.loads(said["data"]) == found
        elif said["name"]:
            assert (NAMES[said["name"]], json.loads(said["control"])) == (message.name, message.fields)
        else:
            assert (said["kind"], message.name) == ("LEADER_CHANGE", "LeaderChangeMessage")


def test_every_type_and_version_reads_as_kafkas_own_code_wrote_it() -> None:
    seen = set()
    with gzip.open(KRAFT / "messages.jsonl.gz") as lines:
        for line in lines:
            said = json.loads(line)
            message = message_in(bytes.fromhex(said["bytes"]))
            assert (message.type, message.version, message.fields) == (said["type"], said["version"], said["data"])
            seen.add((message.type, message.version))
    assert len(seen) == 37


@pytest.mark.parametrize("kept", [0, 11, 12, 60, 61, 90, 200])
def test_a_tail_that_is_being_written_ends_the_log(kept: int) -> None:
    whole = surviving_log()
    expected = [one for one in batches_of(whole) if one.position + one.size_bytes <= kept]
    assert batches_of(whole[:kept]) == expected
    assert batches_of(batch(0, 1, 5, [NO_OP]) + bytes(1_000)) == batches_of(batch(0, 1, 5, [NO_OP]))


def outcome(read: Callable[[bytes], object], value: bytes) -> object:
    try:
        return read(value)
    except RecordError as error:
        return type(error), str(error)


def partition_changes() -> list[bytes]:
    """Of every version, and with each field."""
    with gzip.open(KRAFT / "messages.jsonl.gz") as lines:
        said = [json.loads(line) for line in lines]
    found = [bytes.fromhex(one["bytes"]) for one in said if one["type"] == "PARTITION_CHANGE_RECORD"]
    head, replicas = found[0][:23], b"\x04" + b"".join(number.to_bytes(4, "big") for number in (1, 2, 3))
    return [*found, head + b"\x03\x00\x0d" + replicas + b"\x01\x04\xff\xff\xff\xff\x05\x01\x01"]


@given(st.sampled_from(partition_changes()), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3))
def test_a_partition_change_is_read_the_fast_way_as_by_the_table(value: bytes, harm: list[tuple[int, int]]) -> None:
    spoiled = bytearray(value)
    for at, byte in harm:
        if 3 <= at < len(spoiled):
            spoiled[at] = byte
    assert outcome(message_in, bytes(spoiled)) == outcome(message_by_schema, bytes(spoiled))


@pytest.mark.parametrize("read_bytes", [1, 60, 61, 100, 1000])
def test_a_file_is_read_alike_in_pieces_of_any_size(read_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = surviving_log()[:20_000]
    whole = batches_of(content)
    monkeypatch.setattr("sparkjobs.records.kraft_files._READ_BYTES", read_bytes)
    assert batches_of(content) == whole
    assert [one.position for one in frames_in(io.BytesIO(content))] == [one.position for one in whole]


def test_records_in_a_large_batch_have_their_offsets() -> None:
    """From the 65th on their distance takes two bytes, from the 8193rd on three."""
    (found,) = batches_of(batch(100, 1, 5, [NO_OP] * 9000))
    assert [one.offset for one in found.records] == list(range(100, 9100))
    assert {one.message for one in found.records if one.message is None} == set()
    assert {one.message.name for one in found.records if one.message is not None} == {"NoOpRecord"}


@pytest.mark.parametrize("at", [17, 21, 40, 64])
def test_damage_is_named_and_the_records_before_it_are_read(at: int) -> None:
    first, second = batch(0, 1, 5, [NO_OP]), bytearray(batch(1, 1, 6, [NO_OP]))
    second[at] ^= 0x01
    batches = batches_in(io.BytesIO(first + second))
    assert next(batches).base_offset == 0
    with pytest.raises(RecordError, match=f"at byte {len(first)}: a damaged batch"):
        next(batches)


def test_a_length_that_no_batch_has_is_refused_before_it_is_read() -> None:
    for length in (1, 48, 1 << 30):
        with pytest.raises(RecordError, match=f"a batch of {length} bytes"):
            batches_of((7).to_bytes(8, "big") + length.to_bytes(4, "big") + bytes(100))


def test_a_record_of_a_later_release_is_named_and_not_guessed() -> None:
    later = [b"\x01\x70\x00\x00", b"\x01\x05\x09\x00", NO_OP]
    (found,) = batches_of(batch(0, 1, 5, later))
    assert [one.unknown for one in found.records] == [
        "metadata record 112 is unknown here",
        "PartitionChangeRecord of version 9: versions 0 to 2 are known here",
        None,
    ]
    with pytest.raises(UnknownRecordError, match="frame version 2"):
        message_in(b"\x02\x14\x00\x00")


def test_unknown_tags_are_passed_over_and_too_many_bytes_are_not() -> None:
    assert message_in(b"\x01\x14\x00\x01\x09\x02ab").fields == {}
    with pytest.raises(RecordError, match="NoOpRecord of version 0 has 2 bytes too many"):
        message_in(NO_OP + b"ab")
    with pytest.raises(RecordError, match="does not fit its schema: 200 bytes were due"):
        message_in(b"\x01\x02\x00\xc9\x01ab")
    # a list whose length is more than the rest
    with pytest.raises(RecordError, match="a list of 268435454"):
        message_in(b"\x01\x03\x00" + bytes(20) + b"\xff\xff\xff\x7f")
