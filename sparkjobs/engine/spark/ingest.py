"""Silver from files, by Spark: what `sparkjobs.engine.local.ingest` does, for any amount of logs.

Lines are parsed once, into a staging table (`spark.staging`); duplicates and counts are found there, where columns are
cheap. Most logs have no line twice, and then silver is that table as it stands.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjobs.engine.local.ingest import Tally, count_of_copy
from sparkjobs.engine.spark.frames import Keep
from sparkjobs.engine.spark.staging import stage
from sparkjobs.parse import lines as rules
from sparkjobs.tables.silver import (
    CATALOG_VERSION,
    BronzeFile,
    SilverCount,
    SilverEvent,
    SilverQuarantine,
    columns_of,
)


class SparkIngested(NamedTuple):
    """Silver as DataFrames over the staged lines; `files` and `counts` are small, and known. `is_scan`: the events are
    columns of files, so that to ask for them again costs little."""

    files: list[BronzeFile]
    events: DataFrame
    quarantine: DataFrame
    counts: list[SilverCount]
    is_scan: bool


@contextmanager
def staging_below(out: Path) -> Iterator[Path]:
    """A folder for `ingest`, below one that a cluster's workers have to reach as well; nothing is left of it."""
    staging = out / f"_staging-{uuid4().hex[:12]}"
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def ingest(
    spark: SparkSession, files: Sequence[BronzeFile], staging: Path | str, keep: Keep = DataFrame.persist
) -> SparkIngested:
    """`staging` is a folder, new for each call, that must live as long as the result is used, as what is kept must."""
    return settled(stage(spark, files, staging), files, keep)


def settled(staged: DataFrame, files: Sequence[BronzeFile], keep: Keep = DataFrame.persist) -> SparkIngested:
    """Silver from staged lines: duplicates out, traces to their events, accounts closed."""
    copies, heads = _copies(staged, keep), _heads(staged, keep)
    tallies = _tallies(staged, copies)
    seen = [_with_fate(file, tallies) for file in files]
    counts = [row for file in seen for row in _counts(file, tallies[file.file_id])]
    events = staged if copies is None else staged.join(copies, "event_id", "left").filter(_is_first())
    if heads is not None:
        own = F.coalesce("trace", "head")
        joined = events.join(heads, ["file_id", "line_no"], "left")
        events = joined.select(*[own.alias(name) if name == "trace" else name for name in staged.columns])
    is_scan = copies is None and heads is None
    return SparkIngested(seen, as_said(events), _quarantine(staged), counts, is_scan)


def _some(few: DataFrame, keep: Keep) -> DataFrame | None:
    """Found once, as they are asked for again and again; nothing where there are none."""
    few = keep(few)
    if not few.isEmpty():
        return few
    few.unpersist()
    return None


def _copies(staged: DataFrame, keep: Keep) -> DataFrame | None:
    """Of each event that was read more than once: where its first copy stands. The beginnings of
    ids, which are quicker put together, say which it can be."""
    events = staged.filter(F.col("fate").isNull()).select("event_id", "file_id", "line_no")
    mark = F.substring("event_id", 1, 12)
    twice = _some(events.groupBy(mark.alias("mark")).count().filter("count > 1").select("mark"), keep)
    if twice is None:
        return None
    place = F.struct("file_id", "line_no")
    return _some(
        events.join(twice, mark == twice["mark"], "left_semi")
        .groupBy("event_id")
        .agg(F.count("*").alias("copies"), F.min(place).alias("first"))
        .filter(F.col("copies") > 1)
        .select("event_id", "first"),
        keep,
    )


def _heads(staged: DataFrame, keep: Keep) -> DataFrame | None:
    """Names of exceptions that came to a worker without the event above."""
    heads = staged.filter(F.col("trace_head").isNotNull())
    above = (F.col("line_no") - 1).alias("line_no")
    return _some(heads.select("file_id", above, F.col("trace_head").alias("head")), keep)


def _is_first() -> Column:
    return F.col("first").isNull() | (F.col("first") == F.struct("file_id", "line_no"))


def as_said(staged: DataFrame) -> DataFrame:
    """The events among staged lines; no clock is corrected yet."""
    derived = {
        "dt": F.date_format(F.timestamp_millis("ts_utc"), "yyyy-MM-dd"),
        "ts_adj": F.col("ts_utc"),
        "skew_ms": F.lit(None).cast("int"),
        "skew_err_ms": F.lit(None).cast("int"),
        "catalog_version": F.lit(CATALOG_VERSION),
    }
    return staged.filter(F.col("fate").isNull()).select(
        *[derived.get(name, F.col(name)).alias(name) for name in columns_of(SilverEvent)]
    )


def _quarantine(staged: DataFrame) -> DataFrame:
    known = {"reason": F.col("fate"), "catalog_version": F.lit(CATALOG_VERSION)}
    return staged.filter(F.col("fate").isNotNull() & (F.col("fate") != rules.CONTINUES)).select(
        *[known.get(name, F.col(name)).alias(name) for name in columns_of(SilverQuarantine)]
    )


def _tallies(staged: DataFrame, copies: DataFrame | None) -> Mapping[str, Tally]:
    fate = F.coalesce("fate", F.lit(""))
    if copies is not None:
        staged = staged.join(copies, "event_id", "left")
        fate = F.coalesce("fate", F.when(_is_first(), F.lit("")).otherwise(F.lit("duplicate")))
    rows = staged.groupBy("file_id", fate.alias("became")).count().collect()
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
