"""What a Spark worker makes of its lines: a row for each, typed as the staging table, by the one reader there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkjobs.engine.local.ingest import ingest
from sparkjobs.input.files import (
    Zones,
    find_logs,
    lines_of,
    open_content,
    survey,
)
from sparkjobs.tables.silver import SilverEvent

DATA = Path(__file__).parents[1] / "data"


def test_a_worker_gives_every_line_a_row_with_the_declared_types() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from sparkjobs.engine.spark.lines import STAGED, bases_of, read_batches

    files = survey(find_logs([str(DATA / "kafka-3.9.1-info" / "broker3")]), "c", Zones())
    batches = []
    for number, file in enumerate(files):
        with open_content(file.paths[0]) as content:
            values = [line.encode() for line in lines_of(content)]
        rows = {"value": values, "file_no": [number] * len(values), "block_start": [0] * len(values)}
        batches += pa.table(rows).to_batches(max_chunksize=700)
    found = [row for batch in read_batches(batches, files, bases_of(files, {})) for row in batch.to_pylist()]
    assert list(found[0]) == list(STAGED)
    expected = ingest(files)
    assert len(found) == sum(count.lines for count in expected.counts)
    events = {(row["file_id"], row["line_no"]): row for row in found if row["fate"] is None}
    assert len(events) == sum(count.events + count.duplicates for count in expected.counts)
    heads = {(row["file_id"], row["line_no"]): row["trace_head"] for row in found if row["trace_head"]}
    for event in expected.events:
        row = events[event.file_id, event.line_no]
        said = {name: getattr(event, name) for name in STAGED if name in SilverEvent.__struct_fields__}
        found_of_it = {name: tuple(row[name]) if isinstance(row[name], list) else row[name] for name in said}
        head = heads.get((event.file_id, event.line_no + 1))
        assert found_of_it | {"trace": row["trace"] or head} == said
    assert any(event.trace for event in expected.events)
    assert len(heads) <= len(batches)
