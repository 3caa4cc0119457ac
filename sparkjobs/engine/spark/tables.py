"""The tables on disk: what was ingested before is not read again, and a run that dies leaves nothing half done.

Each run appends a batch folder to each table; `bronze_files` is written last, so a content counts as read only when
all of its rows are there. Rows of batches without it are left out by `read_table`. `silver_skew` is about all batches,
so each run writes it whole and the last one counts; `ts_adj` stands in `silver_events` as it was known when they were
written, and `read_table` gives it as it is known now.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from sparkjobs.engine.spark.file_access import literal, whole
from sparkjobs.engine.spark.frames import as_table, rows_of
from sparkjobs.engine.spark.ingest import ingest, staging_below
from sparkjobs.engine.spark.silver import cached, corrected, skew_of
from sparkjobs.tables.silver import (
    CATALOG_VERSION,
    TABLES,
    BronzeFile,
    SilverCount,
    SilverSkew,
    spark_schema,
)

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
    """In the order of their runs. What an earlier catalogue read is as if it were not there, and is read again."""
    return [path.name for path in sorted(out.glob(f"bronze_files/batch={_CATALOG}*")) if (path / "_SUCCESS").exists()]


def _stored(spark: SparkSession, out: Path, name: str, batches: Sequence[str]) -> DataFrame:
    paths = [literal(whole(f"{out}/{name}/{batch}")) for batch in batches if (out / name / batch).exists()]
    if not paths:
        return as_table(spark, [], TABLES[name])
    return spark.read.schema(spark_schema(TABLES[name])).parquet(*paths)
