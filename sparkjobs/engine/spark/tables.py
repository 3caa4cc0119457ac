"""Logs ingested into tables on disk: every column of every event, typed; and every other line, with the reason.

Content that was ingested before is not read again, and a run that dies leaves nothing half done. Each run appends a
batch folder to each table; `bronze_files` is written last, so a content counts as read only when all of its rows are
there, and `read_table` leaves out the rows of batches without it. `silver_skew` is about all batches, so each run
writes it whole and the last one counts; `ts_adj` stands in `silver_events` as it was known when they were written, and
`read_table` gives it as it is known now.

The digest says where each line goes, and which lines are copies. The workers write the rows themselves: through Spark
every line would go into the JVM, column by column, only to be written from there. Lines of one form become columns at
once; other lines are read one by one. Workers need pyarrow and this package.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjobs.engine.local.conclude import ClusterLogs, by_cluster
from sparkjobs.engine.local.digest import read_portions
from sparkjobs.engine.local.executor import DividedTask, Executor
from sparkjobs.engine.local.forms import NONE, EventLines
from sparkjobs.engine.local.packed_events import event_ids, ints_in
from sparkjobs.engine.local.stretches import Stretch
from sparkjobs.engine.spark.executor import SparkExecutor
from sparkjobs.engine.spark.file_access import literal, whole
from sparkjobs.engine.spark.frames import as_table, frame_of, rows_of
from sparkjobs.engine.spark.session import NoSparkError
from sparkjobs.engine.spark.silver import cached, corrected, skew_of
from sparkjobs.tables.arrow import arrow_type, batch_of
from sparkjobs.tables.silver import (
    CATALOG_VERSION,
    LINE_KEPT,
    TABLES,
    BronzeFile,
    SilverCount,
    SilverEvent,
    SilverQuarantine,
    SilverSkew,
    columns_of,
    spark_schema,
)

#: columns of a silver row that do not come from the line itself
_DERIVED: Final = frozenset({"dt", "ts_adj", "skew_ms", "skew_err_ms", "catalog_version"})
#: an event's columns that a line fills
STAGED: Final[dict[str, str]] = {name: kind for name, kind in columns_of(SilverEvent).items() if name not in _DERIVED}
SCHEMA: Final = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in STAGED.items()])
_FIELDS: Final = SilverEvent.__struct_fields__


class EventColumns:
    """Takes the lines of a stretch. `above`: lines of its file before its first. `traces`: exceptions that stand where
    the next portion of it begins, or the next stretch, by the numbers of their events' lines."""

    def __init__(self, file: BronzeFile, above: int, traces: Mapping[int, str]) -> None:
        self._file, self._above, self._heads = file, above, {number + 1: head for number, head in traces.items()}
        self._alike: list[Any] = []
        self._events: list[SilverEvent] = []
        self._others: list[SilverQuarantine] = []

    def take_alike(self, alike: EventLines) -> None:
        self._alike.append(_columns_of(alike, self._file))

    def take_event(self, event: SilverEvent, mark: int) -> None:
        self._events.append(event)

    def take_other(self, line_no: int, why: str, line: str) -> None:
        row = SilverQuarantine(
            cluster=self._file.cluster,
            file_id=self._file.file_id,
            line_no=line_no + self._above,
            reason=why,
            line=line[:LINE_KEPT],
        )
        self._others.append(row)

    def take_continuations(self, count: int, heads: dict[int, str]) -> None:
        self._heads |= heads

    def events(self) -> Any:
        """Returns a table of `SCHEMA`."""
        one_by_one = batch_of(SilverEvent, self._events).select(SCHEMA.names)
        table = pa.Table.from_batches([*self._alike, one_by_one], SCHEMA)
        line_nos = table["line_no"].to_numpy()
        if self._heads and len(own := np.flatnonzero(np.isin(line_nos + 1, [*self._heads]))):
            traces = table["trace"].to_pylist()
            for place in own.tolist():
                traces[place] = self._heads[int(line_nos[place]) + 1]
            table = _with(table, "trace", traces)
        return _with(table, "line_no", line_nos + self._above) if self._above else table

    def others(self) -> Any:
        """Returns a table of quarantine."""
        return pa.Table.from_batches([batch_of(SilverQuarantine, self._others)])


def _with(table: Any, name: str, values: Any) -> Any:
    field = SCHEMA.field(name)
    return table.set_column(SCHEMA.names.index(name), field, [pa.array(values, field.type)])


def write_whole(table: Any, path: Path) -> None:
    """Write a file so that its name exists only when the file is whole. A second writer writes the same content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"_{path.name}-{uuid4().hex[:12]}")
    pq.write_table(table, unfinished, compression="zstd")
    unfinished.replace(path)


def _columns_of(alike: EventLines, file: BronzeFile) -> Any:
    template, size = alike.template, len(alike)
    start, lines = template.ts, alike.whole()
    known: dict[str, Any] = {
        "ts_utc": alike.ts_utc,
        "line_no": alike.line_no,
        "ts_raw": alike.parts((start, start + 23)),
        "event_id": list(event_ids(alike, file)),
        "line": lines if len(lines[0]) <= LINE_KEPT else [line[:LINE_KEPT] for line in lines],
    }
    return pa.RecordBatch.from_arrays([_column(field, alike, known, size) for field in SCHEMA], schema=SCHEMA)


def _column(field: Any, alike: EventLines, known: Mapping[str, Any], size: int) -> Any:
    name, template = field.name, alike.template
    if name in template.numbers:
        values = alike.number(name)
        return pa.array(values, pa.int64(), mask=values == NONE).cast(field.type)
    if name in template.lists:
        return pa.array(list(map(ints_in, alike.parts(template.lists[name]))), field.type)
    if name in template.texts:
        said, which = alike.words(name)
        return pa.array(said, field.type).take(pa.array(which))
    if name in known:
        return pa.array(known[name], field.type)  # Arrow takes bytes for text; a template's lines are of ASCII only
    value = template.same.get(name)
    return pa.nulls(size, field.type) if value is None else pa.array([value], field.type).take(_zeros(size))


def _zeros(size: int) -> Any:
    return pa.array(np.zeros(size, np.int8))


class Writing(NamedTuple):
    """A stretch that is to be written to a folder, under a name of its own."""

    stretch: Stretch
    folder: str
    name: str
    above: int = 0
    traces: Mapping[int, str] = {}

    def at(self, path: str) -> Writing:
        """A copy of the file lies there."""
        return self._replace(stretch=self.stretch.at(path))

    def reading(self, content: Iterable[bytes]) -> Writing:
        """Returns this task with the content of the stretch."""
        return self._replace(stretch=self.stretch.reading(content))


def stage(executor: Executor, tasks: Sequence[Writing], target: Path) -> None:
    """Write the tasks' rows in place of the old ones. Raises NoSparkError where the written rows cannot be seen here:
    then each worker has such a folder for itself."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    told = executor.divide(written, tasks, {}).told
    require_here(target, [name for portions in told for names in portions for name in names])


def written(task: Writing) -> Iterator[DividedTask]:
    """Tells which files are there by now."""
    columns = partial(_columns, task)
    for number, (found, _, _) in enumerate(read_portions(task.stretch, columns)):
        names = [f"{table}/{task.name}-{number:04}.parquet" for table in ("events", "quarantine")]
        for name, table in zip(names, (found.events(), found.others()), strict=True):
            write_whole(table, Path(task.folder) / name)
        yield DividedTask(names, {})
    _give_back_memory()


def _columns(task: Writing, first_line: int) -> EventColumns:
    return EventColumns(task.stretch.file, task.above, task.traces)


def require_here(target: Path, names: Iterable[str]) -> None:
    """Raises NoSparkError where something of it is not."""
    if not all((target / name).exists() for name in names):
        raise NoSparkError(
            f"the cluster's workers wrote to {target}, and nothing of it is here: --out has to name a folder that they "
            "and this process share"
        )


def events_in(spark: SparkSession, targets: Iterable[Path]) -> DataFrame:
    """Returns the events that were staged there."""
    return _table_in(spark, [target / "events" for target in targets], STAGED)


def quarantine_in(spark: SparkSession, targets: Iterable[Path]) -> DataFrame:
    return _table_in(spark, [target / "quarantine" for target in targets], columns_of(SilverQuarantine))


def _table_in(spark: SparkSession, folders: Sequence[Path], columns: Mapping[str, str]) -> DataFrame:
    paths = [literal(whole(str(folder))) for folder in folders if folder.exists()]
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return spark.read.schema(schema).parquet(*paths) if paths else frame_of(spark, [], columns)


def _give_back_memory() -> None:
    """A worker waits a minute for its next task, and the work after the staging needs the memory that it took."""
    pa.default_memory_pool().release_unused()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # the C library of GNU, not every other
        libc.malloc_trim(0)


class SparkIngested(NamedTuple):
    """Silver as DataFrames over the staged lines; `files` and `counts` are small, and known."""

    files: list[BronzeFile]
    events: DataFrame
    quarantine: DataFrame
    counts: list[SilverCount]
    skew: list[SilverSkew]  # as these files alone have it


@contextmanager
def staging_below(out: Path) -> Iterator[Path]:
    """A folder for `ingest`, below one that a cluster's workers have to reach as well; nothing is left of it."""
    staging = out / f"_staging-{uuid4().hex[:12]}"
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def ingest(spark: SparkSession, files: Sequence[BronzeFile], staging: Path) -> SparkIngested:
    """`staging` is a folder, new for each call, that must live as long as the result is used."""
    executor, targets = SparkExecutor(spark, staging / "copies"), list[Path]()
    seen, counts, skew = list[BronzeFile](), list[SilverCount](), list[SilverSkew]()
    for number, its in enumerate(by_cluster(files)):
        logs = ClusterLogs(executor, its)
        targets.append(staging / f"lines-{number}")
        tasks = [
            Writing(stretch, str(targets[-1].absolute()), f"part-{place:06}", above.lines, above.traces)
            for place, (stretch, above) in enumerate(zip(logs.stretches, logs.known.aboves, strict=True))
        ]
        stage(executor, tasks, targets[-1])
        of_cluster, its_counts, _ = logs.accounts()
        seen += of_cluster
        counts += its_counts
        skew += logs.skew()
    return SparkIngested(seen, as_said(events_in(spark, targets)), quarantine_in(spark, targets), counts, skew)


def as_said(staged: DataFrame) -> DataFrame:
    """Returns the events, with all columns of silver; no clock is corrected yet."""
    derived = {
        "dt": F.date_format(F.timestamp_millis("ts_utc"), "yyyy-MM-dd"),
        "ts_adj": F.col("ts_utc"),
        "skew_ms": F.lit(None).cast("int"),
        "skew_err_ms": F.lit(None).cast("int"),
        "catalog_version": F.lit(CATALOG_VERSION),
    }
    return staged.select(*[derived.get(name, F.col(name)).alias(name) for name in columns_of(SilverEvent)])


#: how a batch that this catalogue has read is named
_CATALOG: Final = f"c{CATALOG_VERSION}-"


def ingest_into(spark: SparkSession, files: Sequence[BronzeFile], out: Path) -> list[SilverCount]:
    """The counts of this run."""
    out.mkdir(parents=True, exist_ok=True)
    known = {row.file_id for row in read_table(spark, out, "bronze_files").select("file_id").collect()}
    new = [file for file in files if file.file_id not in known]
    if not new:
        return []
    batch = f"{_CATALOG}{len(_finished(out)):06}-{uuid4().hex[:12]}"
    with staging_below(out) as staging:
        done = ingest(spark, new, staging)
        events, skew = done.events, done.skew
        if known:
            before = _stored(spark, out, "silver_events", _finished(out))
            events = events.join(before.select("event_id"), "event_id", "left_anti").select(*before.columns)
            with cached(before.unionByName(events)) as said:
                skew = skew_of(said)
        tables = {
            "silver_events": corrected(events, skew),
            "silver_quarantine": done.quarantine,
            "silver_counts": as_table(spark, done.counts, SilverCount),
            "silver_skew": as_table(spark, skew, SilverSkew),
            "bronze_files": as_table(spark, done.files, BronzeFile),
        }
        for name, rows in tables.items():
            rows.write.parquet(whole(f"{out}/{name}/batch={batch}"))
    return done.counts


def read_table(spark: SparkSession, out: Path | str, name: str) -> DataFrame:
    """Of all batches that were finished; empty when there is none."""
    finished = _finished(Path(out))
    rows = _stored(spark, Path(out), name, finished[-1:] if name == "silver_skew" else finished)
    if name == "silver_events":
        return corrected(rows, list(rows_of(read_table(spark, out, "silver_skew"), SilverSkew)))
    return rows


def _finished(out: Path) -> list[str]:
    """Returns the finished batches in the order of their runs. Batches that an earlier catalogue read are left out, and
    their logs are read again."""
    return [path.name for path in sorted(out.glob(f"bronze_files/batch={_CATALOG}*")) if (path / "_SUCCESS").exists()]


def _stored(spark: SparkSession, out: Path, name: str, batches: Sequence[str]) -> DataFrame:
    paths = [literal(whole(f"{out}/{name}/{batch}")) for batch in batches if (out / name / batch).exists()]
    if not paths:
        return as_table(spark, [], TABLES[name])
    return spark.read.schema(spark_schema(TABLES[name])).parquet(*paths)
