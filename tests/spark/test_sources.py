"""The three formats for notebooks: their rows are those of the readers, in batch and as a stream, and the example of
the documentation runs."""

from __future__ import annotations

import gzip
import io
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.records.discovery import find_records
from sparkjobs.records.kraft_files import Batch, Message, Record, batches_in
from sparkjobs.records.zookeeper_files import operations_in
from tests.spark.reading import ingest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"


@pytest.fixture
def notebook(spark: SparkSession) -> SparkSession:
    from sparkjobs.sources import register

    register(spark)
    return spark


def ids_in(events: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in events.select("event_id", "line_no", "event").collect())


def test_events_are_those_of_an_ingest(notebook: SparkSession) -> None:
    logs = DATA / "kafka-3.9.1-info"
    found = notebook.read.format("klamm_events").option("cluster", "c").load(str(logs))
    expected = ingest(survey(find_logs([str(logs)]), "c", Zones())).events
    rows = {(row["file_id"], row["line_no"]): row.asDict() for row in found.collect()}
    assert len(rows) >= len(expected) > 100
    for event in expected:
        row = rows[event.file_id, event.line_no]
        for name in ("event_id", "ts_utc", "broker", "event", "topic", "partition", "leader", "line", "cluster"):
            assert row[name] == getattr(event, name), (name, event)


def test_an_unknown_zone_is_refused_before_anything_is_read(notebook: SparkSession) -> None:
    with pytest.raises(Exception, match="there is no time zone"):
        notebook.read.format("klamm_events").option("timezone", "Europe/Nowhere").load(str(DATA)).count()


def test_a_stream_takes_each_line_once_though_its_log_is_rotated_and_packed(
    notebook: SparkSession, tmp_path: Path
) -> None:
    [source] = (DATA / "kafka-3.9.1-info").glob("broker1/state-change.log.gz")
    lines = gzip.decompress(source.read_bytes()).splitlines(keepends=True)
    log = tmp_path / "logs" / "broker1" / "state-change.log"
    log.parent.mkdir(parents=True)
    third = len(lines) // 3

    def take() -> Counter[tuple[Any, ...]]:
        query = (
            notebook.readStream.format("klamm_events")
            .load(str(tmp_path / "logs"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "events"))
        )
        query.awaitTermination()
        return ids_in(notebook.read.parquet(str(tmp_path / "events")))

    def expected() -> Counter[tuple[Any, ...]]:
        return ids_in(notebook.read.format("klamm_events").load(str(tmp_path / "logs")))

    log.write_bytes(b"".join(lines[:third]))
    assert take() == expected() != Counter()
    log.write_bytes(b"".join(lines[: 2 * third]) + lines[2 * third][:20])  # half a line is none
    log.rename(log.with_name("state-change.log.1"))
    first = take()
    log.with_name("state-change.log.1").write_bytes(b"".join(lines[: 2 * third + 1]))
    packed = log.with_name("state-change.log.1")
    packed.with_name("state-change.log.1.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    log.write_bytes(b"".join(lines[2 * third + 1 :]))
    last = take()
    assert sum(first.values()) < sum(last.values())
    taken, there = (Counter((event_id, event) for event_id, _, event in one.elements()) for one in (last, expected()))
    assert taken == there


def test_records_are_those_of_the_readers_in_batch_and_as_they_grow(notebook: SparkSession, tmp_path: Path) -> None:
    zookeeper, kraft = DATA / "kafka-3.9.1-info" / "zookeeper", DATA / "kraft" / "4.3.1"
    for format_, folder, kind in (
        ("zookeeper_txnlog", zookeeper, "zookeeper log"),
        ("kraft_metadata", kraft, "kraft log"),
    ):
        sources = [one for one in find_records([str(folder)]) if one.kind == kind]
        expected = Counter[tuple[Any, ...]]()
        here = tmp_path / format_
        for number, one in enumerate(sources):
            with one.open() as content:
                if kind == "zookeeper log":
                    said = [(each.zxid, each.kind, each.path) for each in operations_in(content)]
                else:
                    said = [
                        (each.offset, batch.epoch, None if each.message is None else each.message.type)
                        for batch in batches_in(content)
                        for each in batch.records
                    ]
            expected += Counter(said)
            copy = here / str(number) / Path(one.path).name.removesuffix(".gz")
            copy.parent.mkdir(parents=True)
            with one.open() as content:
                copy.write_bytes(content.read())
        columns = ("zxid", "kind", "path") if kind == "zookeeper log" else ("offset", "epoch", "type")
        batch = notebook.read.format(format_).load(str(folder)).select(*columns)
        assert Counter(map(tuple, batch.collect())) == expected != Counter()
        assert _as_they_grow(notebook, format_, here, columns) == expected


def _as_they_grow(notebook: SparkSession, format_: str, here: Path, columns: tuple[str, ...]) -> Counter[Any]:
    """Each file cut somewhere within a record at first."""
    whole = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    out, checkpoint = here.with_name(f"{format_}-out"), here.with_name(f"{format_}-checkpoint")
    for share in (0.41, 1.0):
        for path, content in whole.items():
            path.write_bytes(content[: int(len(content) * share)])
        query = (
            notebook.readStream.format(format_)
            .load(str(here))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination()
    return Counter(map(tuple, notebook.read.parquet(str(out)).select(*columns).collect()))


def test_a_node_with_passwords_is_named_and_has_no_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparkjobs.records import kraft_files
    from sparkjobs.sources.records import KRAFT

    said = [Message("UserScramCredentialRecord", 0, {"salt": "s3"}), Message("FeatureLevelRecord", 0, {"name": "f"})]
    records = [Record(number, message, None) for number, message in enumerate(said)]
    monkeypatch.setattr(kraft_files, "batches_in", lambda log: [Batch(0, 1, 5, 9, False, records, 0, 100)])
    assert list(KRAFT.rows(io.BytesIO(), 0, None, "here")) == [
        (0, 5, 9, False, "USER_SCRAM_CREDENTIAL_RECORD", 0, None, None, "here"),
        (1, 5, 9, False, "FEATURE_LEVEL_RECORD", 0, '{"name":"f"}', None, "here"),
    ]


def test_the_example_of_the_documentation_runs(notebook: SparkSession, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    recorded = DATA / "kafka-3.9.1-info"
    shutil.copytree(recorded, tmp_path / "logs", ignore=shutil.ignore_patterns("zookeeper"))
    shutil.copytree(recorded / "zookeeper", tmp_path / "zookeeper")
    shutil.copytree(DATA / "kraft" / "4.3.1", tmp_path / "kraft")
    # a planner works where Spark was started, which is not here
    example, placed = re.subn(r'"(logs|zookeeper|kraft|events|checkpoint)"\)', rf'"{tmp_path}/\1")', example)
    assert placed == 7
    said: dict[str, Any] = {}
    exec(compile(example, "docs/notebooks.md", "exec"), said)
    assert {row["broker"] for row in said["controllers"].collect()} <= {"1", "2", "3", "4", "5"}
    assert said["controllers"].count() > 3
    assert said["changes"].count() > 0
    assert said["so_far"].count() == said["events"].count() > 100
