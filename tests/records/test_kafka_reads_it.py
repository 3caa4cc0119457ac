"""Kafka's own tool reads our files: `DumpLogSegments` of 3.9.1, which looks into every record and every index entry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from brokerstub.lab.kafka import jars, tool
from brokerstub.records.disks import FolderDisk
from brokerstub.records.log import Log, LogConfig
from tests.real_brokers.cluster import JARS
from tests.records.support import START, a_batch, recorded
from tests.records.test_batches import CLIENTS

pytestmark = [pytest.mark.java, pytest.mark.maven]
FOLDER = "orders-0"
#: its output about an index
WRONG = re.compile("mismatch|out of order|not found", re.IGNORECASE)
CONFIG = LogConfig(segment_bytes=4_000, index_interval_bytes=200)


async def dumped(tmp_path: Path, suffix: str, *options: str) -> str:
    files = ",".join(map(str, sorted((tmp_path / FOLDER).glob(f"*{suffix}"))))
    code, said = await tool(await jars(JARS), tmp_path, "kafka.tools.DumpLogSegments", "--files", files, *options)
    assert code == 0, said
    return said


async def test_kafka_reads_the_segments_and_finds_the_indexes_right(tmp_path: Path) -> None:
    log = Log(FolderDisk(tmp_path), FOLDER, CONFIG)
    for client in CLIENTS:
        for batch in recorded(f"{client}.bin"):
            log.append(batch, 1, START)
    for index in range(40):
        log.append(a_batch([b"one", b"two"], timestamp=START + 1_000_000 + 1_000 * index), 2, START)
    log.settle()
    count = len(list((tmp_path / FOLDER).glob("*.index")))
    assert count >= 3

    said = await dumped(tmp_path, ".log", "--deep-iteration")
    assert [int(one) for one in re.findall(r"^\| offset: (\d+)", said, re.MULTILINE)] == list(range(log.end_offset))
    assert {*re.findall(r"isvalid: (\w+)", said)} == {"true"}
    assert {*re.findall(r"partitionLeaderEpoch: (\d+)", said)} == {"1", "2"}

    said = await dumped(tmp_path, ".index")
    assert said.count("Dumping") == count
    assert "offset: " in said
    assert WRONG.search(said) is None, said

    said = await dumped(tmp_path, ".timeindex")
    assert said.count("Dumping") == count
    assert "timestamp: " in said
    assert WRONG.search(said) is None, said
