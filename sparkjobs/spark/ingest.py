"""Silver from files, by Spark: what `sparkjobs.local.ingest` does, for any amount of logs.

Lines are parsed once, into a staging table; duplicates, traces and counts are found there, where columns are cheap.
Each line knows its number: blocks of a file are counted first, in a pass that parses nothing.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import uuid4

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjobs.local.ingest import Tally, count_of_copy
from sparkjobs.parse import lines as rules
from sparkjobs.schemas import (
    CATALOG_VERSION,
    BronzeFile,
    Row,
    SilverCount,
    SilverEvent,
    SilverQuarantine,
    columns_of,
)
from sparkjobs.spark.frames import frame_of
from sparkjobs.spark.lines import STAGED, parsed
from sparkjobs.spark.paths import as_spark_reads, literal, uri_of, whole
from sparkjobs.spark.session import NoSparkError

if TYPE_CHECKING:
    from collections.abc import Mapping

_R = TypeVar("_R", bound=Row)


class SparkIngested(NamedTuple):
    """Silver as DataFrames over the staged lines; `files` and `counts` are small, and known."""

    files: list[BronzeFile]
    events: DataFrame
    quarantine: DataFrame
    counts: list[SilverCount]


@contextmanager
def staging_below(out: Path) -> Iterator[Path]:
    """A folder for `ingest`, below one that a cluster's workers have to reach as well; nothing is left of it."""
    staging = out / f"_staging-{uuid4().hex[:12]}"
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def ingest(spark: SparkSession, files: Sequence[BronzeFile], staging: Path | str) -> SparkIngested:
    """`staging` is a folder, new for each call, that must live as long as the result is used."""
    return settled(stage(spark, files, staging), files)


def stage(spark: SparkSession, files: Sequence[BronzeFile], staging: Path | str) -> DataFrame:
    """The lines of those files that can be read, parsed once."""
    readable = as_spark_reads(spark, files, Path(staging) / "plain")
    if not readable:
        return frame_of(spark, [], STAGED)
    stage_into(spark, readable, f"{staging}/lines")
    return staged_in(spark, f"{staging}/lines")


def staged_in(spark: SparkSession, target: str) -> DataFrame:
    """What was staged there. Raises NoSparkError where that is not to be seen: each worker had such a folder."""
    try:
        return spark.read.parquet(literal(target))
    except AnalysisException as error:
        if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
            raise
        raise NoSparkError(
            f"the cluster's workers wrote to {target}, and nothing of it is here: --out has to name a folder that they "
            "and this process share (for `klamm logs slo`, TMPDIR does)"
        ) from None


def stage_into(
    spark: SparkSession, files: Sequence[BronzeFile], target: str, above: Mapping[str, int] | None = None
) -> None:
    """Parse each line once. `above`: how many lines stand before a file's first, where it is a piece of a log."""
    parsed(raw_lines(spark, files, above or {}), files).write.mode("overwrite").parquet(target)


def settled(staged: DataFrame, files: Sequence[BronzeFile]) -> SparkIngested:
    """Silver from staged lines: duplicates out, traces to their events, accounts closed."""
    copies = _copies(staged).persist()  # few, and asked for again and again
    tallies = _tallies(staged, copies)
    seen = [_with_fate(file, tallies) for file in files]
    counts = [row for file in seen for row in _counts(file, tallies[file.file_id])]
    return SparkIngested(seen, _events(staged, copies), _quarantine(staged), counts)


def raw_lines(spark: SparkSession, files: Sequence[BronzeFile], above: Mapping[str, int]) -> DataFrame:
    """Each line with its number and the place of its file among `files`, of which Spark reads the first path."""
    paths = [file.paths[0] for file in files]
    uris = {path: uri_of(spark, path) for path in paths}
    lines = spark.read.text([literal(whole(path)) for path in paths], lineSep="\n").select(
        F.col("value"),
        F.col("_metadata.file_path").alias("path"),
        F.col("_metadata.file_block_start").alias("block_start"),
        F.monotonically_increasing_id().alias("row_id"),
    )
    blocks = lines.groupBy("path", "block_start").agg(F.min("row_id").alias("first"), F.count("*").alias("n")).collect()
    file_nos = {uris[path]: number for number, path in enumerate(paths)}
    placed, so_far = [], defaultdict[str, int](int, {uris[path]: count for path, count in above.items()})
    for path, block_start, first, count in sorted(blocks):
        placed.append((path, block_start, first - so_far[path] - 1, file_nos[path]))
        so_far[path] += count
    columns = {"path": "string", "block_start": "bigint", "shift": "bigint", "file_no": "int"}
    return lines.join(F.broadcast(frame_of(spark, placed, columns)), ["path", "block_start"]).select(
        "value", "file_no", (F.col("row_id") - F.col("shift")).alias("line_no")
    )


def _copies(staged: DataFrame) -> DataFrame:
    """Of each event that was read more than once: where its first copy stands."""
    place = F.struct("file_id", "line_no")
    return (
        staged.filter(F.col("fate").isNull())
        .groupBy("event_id")
        .agg(F.count("*").alias("copies"), F.min(place).alias("first"))
        .filter(F.col("copies") > 1)
        .select("event_id", "first")
    )


def _is_first(first: str = "first") -> Column:
    return F.col(first).isNull() | (F.col(first) == F.struct("file_id", "line_no"))


def _events(staged: DataFrame, copies: DataFrame) -> DataFrame:
    heads = staged.filter(F.col("trace_head").isNotNull()).select(
        "file_id", (F.col("line_no") - 1).alias("line_no"), F.col("trace_head").alias("trace")
    )
    first = staged.join(copies, "event_id", "left").filter(_is_first())
    return as_said(first.join(heads, ["file_id", "line_no"], "left"))


def as_said(staged: DataFrame) -> DataFrame:
    """The events among staged lines, with their traces where there is such a column; no clock is corrected yet."""
    derived = {
        "dt": F.date_format(F.timestamp_millis("ts_utc"), "yyyy-MM-dd"),
        "ts_adj": F.col("ts_utc"),
        "skew_ms": F.lit(None).cast("int"),
        "skew_err_ms": F.lit(None).cast("int"),
        "catalog_version": F.lit(CATALOG_VERSION),
    }
    if "trace" not in staged.columns:
        derived["trace"] = F.lit(None).cast("string")
    return staged.filter(F.col("fate").isNull()).select(
        *[derived.get(name, F.col(name)).alias(name) for name in columns_of(SilverEvent)]
    )


def _quarantine(staged: DataFrame) -> DataFrame:
    known = {"reason": F.col("fate"), "catalog_version": F.lit(CATALOG_VERSION)}
    return staged.filter(F.col("fate").isNotNull() & (F.col("fate") != rules.CONTINUES)).select(
        *[known.get(name, F.col(name)).alias(name) for name in columns_of(SilverQuarantine)]
    )


def _tallies(staged: DataFrame, copies: DataFrame) -> Mapping[str, Tally]:
    fate = F.when(F.col("fate").isNotNull(), F.col("fate")).when(_is_first(), F.lit("")).otherwise(F.lit("duplicate"))
    rows = staged.join(copies, "event_id", "left").groupBy("file_id", fate.alias("became")).count().collect()
    found = defaultdict[str, Tally](Tally)
    for file_id, became, count in rows:
        tally = found[file_id]
        tally.lines += count
        if became == "":
            tally.events += count
        elif became == "duplicate":
            tally.duplicates += count
        elif became == rules.CONTINUES:
            tally.continuations += count
        else:
            tally.quarantined += count
    return found


def _with_fate(file: BronzeFile, tallies: Mapping[str, Tally]) -> BronzeFile:
    """A file that was surveyed and gave no line has gone since."""
    if file.status != "read" or tallies[file.file_id].lines:
        return file
    return msgspec.structs.replace(file, status="vanished", trouble="gone when it was to be read")


def _counts(file: BronzeFile, tally: Tally) -> list[SilverCount]:
    copies = [] if file.status != "read" else file.paths[1:]
    return [tally.row(file, file.paths[0]), *(count_of_copy(file, path, tally.lines) for path in copies)]


def rows_of(rows: DataFrame, table: type[_R]) -> Iterator[_R]:
    """A DataFrame's rows as the local engine makes them, one partition of it in memory at a time."""
    lists = {name for name, kind in columns_of(table).items() if kind.startswith("array")}
    for row in rows.toLocalIterator():
        given = row.asDict()
        for name in lists:
            given[name] = None if given[name] is None else tuple(given[name])
        yield table(**given)


def places_in(events: DataFrame, answers: Mapping[str, Sequence[Row]]) -> DataFrame:
    """The events that rows of gold point at."""
    places = {
        (row.file_id, row.line_no)  # type: ignore[attr-defined]
        for rows in answers.values()
        for row in rows
        if "file_id" in row.__struct_fields__
    }
    wanted = frame_of(events.sparkSession, sorted(places), {"file_id": "string", "line_no": "bigint"})
    return events.join(F.broadcast(wanted), ["file_id", "line_no"], "left_semi")
