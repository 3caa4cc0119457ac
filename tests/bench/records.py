"""`python -m tests.bench.records [--mib 512] [--folder DIR]`: the speed of a log of records on this machine.

Appended as a leader does (one batch a call, checksum and header checked, offsets set), appended as a follower does
(a megabyte of batches a call), read as a consumer does (a megabyte a call), and opened after the process died, which
reads all that is not settled, with its checksums. Nothing is synced, as in Kafka by default; the last row is the file
system alone: the same bytes written in the same pieces, and nothing else done. One run: machines differ, and so do
minutes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import click
from crc32c import crc32c

from brokerstub.records.batches import HEADER_BYTES, batches_in
from brokerstub.records.disks import FolderDisk
from brokerstub.records.log import Log, LogConfig
from tests.records.support import START, a_batch

MIB = 1 << 20
RECORD_BYTES = 1024
CONFIG = LogConfig(segment_bytes=128 * MIB)


@click.command()
@click.option("--mib", default=512, show_default=True, help="Of records, in each row.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False, exists=True), help="On the disk to measure.")
def main(mib: int, folder: Path | None) -> None:
    """Prints a row for batches of 1 and of 16 records of 1 KiB."""
    click.echo(f"{'':42}{'MiB/s':>8}{'batches/s':>11}{'records/s':>11}")
    for records in (1, 16):
        with tempfile.TemporaryDirectory(dir=folder) as path:
            _measure(Path(path), records, mib)


def _measure(folder: Path, records: int, mib: int) -> None:
    values = [Random(index).randbytes(RECORD_BYTES) for index in range(records)]
    batch = a_batch(values)
    count = max(1, mib * MIB // len(batch))

    def row(name: str, act: Callable[[], None]) -> None:
        began = time.perf_counter()
        act()
        seconds = time.perf_counter() - began
        size = count * len(batch) / MIB
        click.echo(
            f"{name + f', {records} a batch':42}{size / seconds:8,.0f}{count / seconds:11,.0f}"
            f"{count * records / seconds:11,.0f}"
        )

    disk = FolderDisk(folder)
    leader = Log(disk, "leader-0", CONFIG)
    follower = Log(disk, "follower-0", CONFIG)

    def append() -> None:
        for _ in range(count):
            leader.append(batch, 0, START)

    def follow() -> None:
        while follower.end_offset < leader.end_offset:
            follower.append_fetched(leader.read(follower.end_offset, MIB), START)

    def read() -> None:
        offset = 0
        while data := leader.read(offset, MIB):
            (*_, (_, last)) = batches_in(data)
            offset = last.next_offset

    def reopen() -> None:
        log = Log(disk, "leader-0", CONFIG)
        assert (log.recovered, log.end_offset) == (None, count * records)

    def write_only() -> None:
        file = os.open(folder / "plain", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for _ in range(count):
            os.write(file, batch)
        os.close(file)

    def sum_only() -> None:
        covered = memoryview(batch)[HEADER_BYTES:]
        for _ in range(count):
            crc32c(covered)

    row("appended by a leader", append)
    row("read and appended by a follower", follow)
    row("read by a consumer", read)
    row("opened again, nothing settled", reopen)
    row("checksums alone", sum_only)
    row("the file system alone", write_only)


if __name__ == "__main__":
    main()
