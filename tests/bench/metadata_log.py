"""`python -m tests.bench.metadata_log [--mib 1024]`: how long a large metadata log of KRaft takes to read.

The log is made once: the records of a recorded cluster (Kafka 4.3.1 under faults) as often as it takes, with offsets
and times that go on, in segments of 1 GiB as Kafka's. It is read by `klamm what-if kill --at end` and by `klamm explain
--at end`, or by the words that are given. Printed are seconds, CPU time and the largest memory of the process.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import crc32c

from sparkjobs.records.kraft_files import batches_in

ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = ROOT / "tests/data/kraft/4.3.1/controller-101/__cluster_metadata-0/00000000000000000000.log.gz"
FOLDER: Final = ROOT / "var/bench-metadata"
#: repeated, a record of another kind would make a cluster anew or take it away
REPEATED: Final = frozenset(
    {"PartitionChangeRecord", "BrokerRegistrationChangeRecord", "NoOpRecord", "ConfigRecord", "ProducerIdsRecord"}
)
SEGMENT_BYTES: Final = 1 << 30
GAP_MS: Final = 500


def batches_of(recorded: bytes) -> Iterator[tuple[bytes, int, bool]]:
    """Each batch as it lies in the file, how many offsets it takes, and whether it may come again."""
    with gzip.open(RECORDED) as content:
        for one in batches_in(content):
            names = {record.message.name for record in one.records if record.message is not None}
            size = one.last_offset - one.base_offset + 1
            yield recorded[one.position : one.position + one.size_bytes], size, names <= REPEATED


def made(folder: Path, mib: int) -> Path:
    """Returns a folder with a log of that size."""
    log_folder = folder / f"{mib}" / "__cluster_metadata-0"
    if (log_folder / ".done").exists():
        return log_folder
    shutil.rmtree(log_folder, ignore_errors=True)
    log_folder.mkdir(parents=True)
    all_of_it = list(batches_of(gzip.decompress(RECORDED.read_bytes())))
    again = [(bytearray(data), size) for data, size, is_again in all_of_it if is_again]
    data = b"".join(one for one, _, _ in all_of_it)
    offset = sum(size for _, size, _ in all_of_it)
    (at_ms,) = struct.unpack_from(">q", all_of_it[-1][0], 27)
    (epoch,) = struct.unpack_from(">i", all_of_it[-1][0], 12)
    log = (log_folder / f"{0:020}.log").open("wb")
    left, in_segment = mib << 20, len(data)
    log.write(data)
    while left > 0:
        pieces = []
        for one, size in again:
            struct.pack_into(">q", one, 0, offset)
            struct.pack_into(">i", one, 12, epoch)
            struct.pack_into(">qq", one, 27, at_ms, at_ms)
            struct.pack_into(">I", one, 17, crc32c.crc32c(memoryview(one)[21:]))
            pieces.append(bytes(one))
            offset += size
            at_ms += GAP_MS
        round_ = b"".join(pieces)
        if in_segment + len(round_) > SEGMENT_BYTES:
            log.close()
            in_segment = 0
        if log.closed:
            log = (log_folder / f"{offset - sum(size for _, size in again):020}.log").open("wb")
        log.write(round_)
        in_segment += len(round_)
        left -= len(round_)
    log.close()
    (log_folder / ".done").write_text(f"{offset}\n")
    return log_folder


def measured(words: list[str]) -> str:
    """Runs a command; returns a row about it."""
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "sparkjobs", *words], capture_output=True, text=True, check=False)
    took_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{' '.join(words[:3]):40} {took_s:7.1f} s {cpu_s:7.1f} s CPU {after.ru_maxrss / 1024:7.0f} MiB at most"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("words", nargs="*", help="another command, and FOLDER for the log's")
    given = parser.parse_args()
    folder = made(given.folder, given.mib)
    size = sum(one.stat().st_size for one in folder.glob("*.log"))
    records = (folder / ".done").read_text().strip()
    click.echo(f"{size / (1 << 20):.0f} MiB, {records} records; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    commands = [
        ["what-if", "kill", "1", "3", str(folder), "--at", "end"],
        ["explain", "orders-0", "--at", "end", str(folder)],
    ]
    if given.words:
        commands = [[str(folder) if one == "FOLDER" else one for one in given.words]]
    for words in commands:
        click.echo(measured(words))


if __name__ == "__main__":
    main()
