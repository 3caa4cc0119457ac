"""A worker's rows of its lines: a row for each event, typed as silver, equal to the row of each line by itself."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from sparkjobs.engine.local import digest, stretches
from sparkjobs.engine.local.packed_events import StretchContext
from sparkjobs.engine.local.stretches import stretches_of
from sparkjobs.input.files import Zones, find_logs, lines_of, open_content, survey
from sparkjobs.parse.lines import CONTINUES, LineReader, is_trace_head
from sparkjobs.tables.silver import LINE_KEPT, BronzeFile, SilverEvent
from tests.bench.spark.world import write_logs
from tests.spark.test_engines import write_anything

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")


def one_by_one(file: BronzeFile) -> tuple[list[SilverEvent], dict[int, str]]:
    """Events in order, with exceptions; reasons of other lines, without those that belong to an event."""
    reader, events, others = LineReader(file), dict[int, SilverEvent](), dict[int, str]()
    with open_content(file.paths[0]) as content:
        for line_no, line in enumerate(lines_of(content), start=1):
            read = reader.read(line, line_no, is_cut=line_no == file.lines and not file.is_whole)
            if isinstance(read, SilverEvent):
                events[line_no] = read
            elif read is not CONTINUES:
                others[line_no] = read
            elif line_no - 1 in events and is_trace_head(text := reader.unwrap(line) or ""):
                events[line_no - 1] = msgspec.structs.replace(events[line_no - 1], trace=text[:LINE_KEPT])
    return list(events.values()), others


@pytest.mark.parametrize("seed", range(3))
def test_lines_by_their_forms_give_the_columns_that_each_gives_by_itself(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    from sparkjobs.engine.local.conclude import ClusterLogs
    from sparkjobs.engine.local.executor import SingleProcess
    from sparkjobs.engine.spark.tables import SCHEMA, STAGED, Writing, written

    monkeypatch.setattr(stretches, "STRETCH_BYTES", 9_000)
    monkeypatch.setattr(stretches, "PIECE_BYTES", 2_000)
    monkeypatch.setattr(digest, "PORTION_BYTES", 5_000)
    write_logs(tmp_path / "logs" / "bench", 2_400)
    write_anything(tmp_path / "logs", random.Random(seed))
    traces = 0
    for file in survey(find_logs([str(tmp_path / "logs")]), "c", Zones("Europe/Berlin", {2: "UTC"})):
        logs, folder = ClusterLogs(SingleProcess(), [file]), tmp_path / file.file_id
        for number, (stretch, above) in enumerate(zip(stretches_of(file, {}), logs.known.aboves, strict=True)):
            assert isinstance(above, StretchContext)
            names = [*written(Writing(stretch, str(folder), f"part-{number}", above.lines, above.traces))]
            assert sorted(name for divided in names for name in divided.told) == sorted(
                str(path.relative_to(folder)) for path in folder.rglob(f"part-{number}-*")
            )
        found = pq.read_table(folder / "events")
        assert found.schema.equals(SCHEMA)
        events, others = one_by_one(file)
        rows = sorted(found.to_pylist(), key=lambda row: row["line_no"])
        assert len(rows) == len(events)
        for row, event in zip(rows, events, strict=True):
            said = {name: getattr(event, name) for name in STAGED}
            assert {name: tuple(one) if isinstance(one, list) else one for name, one in row.items()} == said
        odd = pq.read_table(folder / "quarantine").to_pylist()
        assert {row["line_no"]: row["reason"] for row in odd} == others
        traces += sum(event.trace is not None for event in events)
    assert traces > 5
