"""What a Spark worker makes of lines by their forms is what it makes of each by itself."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkjobs.input.files import (
    Zones,
    find_logs,
    open_content,
    survey,
)
from sparkjobs.parse.lines import LineReader
from sparkjobs.tables.silver import BronzeFile
from tests.bench.spark.world import write_logs
from tests.spark.test_engines import write_anything


def batches_of(files: list[BronzeFile], draw: random.Random) -> list[tuple[list[bytes], list[int], list[int]]]:
    """Lines of all files as Spark hands them out: in pieces, some of them of several files."""
    rows = []
    for number, file in enumerate(files):
        with open_content(file.paths[0]) as content:
            lines = content.read().split(b"\n")
        rows += [(line, number, line_no) for line_no, line in enumerate(lines, start=1) if line_no <= file.lines]
    found, start = [], 0
    while start < len(rows):
        size = draw.randrange(1, 2_000)
        values, numbers, lines_ = zip(*rows[start : start + size], strict=True)
        found.append((list(values), list(numbers), list(lines_)))
        start += size
    return found


def as_handed_out(share: tuple[list[bytes], list[int], list[int]]) -> Any:
    """A batch of a worker; each file is one block."""
    values, numbers, _ = share
    columns = {
        "value": pa.array(values, pa.binary()),
        "file_no": pa.array(numbers, pa.int32()),
        "block_start": pa.array([0] * len(values), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("seed", range(3))
def test_lines_by_their_forms_give_the_columns_that_each_gives_by_itself(seed: int, tmp_path: Path) -> None:
    from sparkjobs.engine.spark import lines as workers

    write_logs(tmp_path / "bench", 2_400)
    write_anything(tmp_path, random.Random(seed))
    files = survey(find_logs([str(tmp_path)]), "c", Zones("Europe/Berlin", {2: "UTC"}))
    readers = [LineReader(file) for file in files]
    shares = batches_of(files, random.Random(seed))
    found = workers.read_batches(map(as_handed_out, shares), files, workers.bases_of(files, {}))
    for (values, numbers, line_nos), batch in zip(shares, found, strict=True):
        rows = [
            dict(
                zip(
                    workers.STAGED,
                    workers.row_of(readers[number], value.decode("utf-8", "replace"), line_no),
                    strict=True,
                )
            )
            for value, number, line_no in zip(values, numbers, line_nos, strict=True)
        ]
        for above, row in pairwise(rows):
            if row["trace_head"] is not None and above["fate"] is None and above["file_id"] == row["file_id"]:
                above["trace"] = row["trace_head"]
            row["trace_head"] = None
        assert batch.schema.names == list(workers.STAGED)
        for name in workers.STAGED:
            said = [tuple(one) if isinstance(one, list) else one for one in batch.column(name).to_pylist()]
            assert said == [row[name] for row in rows], name
