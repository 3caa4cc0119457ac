"""The tables on disk: what was ingested before is not read again, and a run that dies leaves nothing half done.

Each run appends a batch folder to each table; `bronze_files` is written last, so a content counts as read only when
all of its rows are there. Rows of batches without it are left out by `read_table` and removed by the next run.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from sparkjobs.schemas import TABLES, BronzeFile, SilverCount, spark_schema
from sparkjobs.spark.ingest import as_table, ingest


def ingest_into(spark: SparkSession, files: Sequence[BronzeFile], out: Path) -> list[SilverCount]:
    """The counts of this run."""
    out.mkdir(parents=True, exist_ok=True)
    known = {row.file_id for row in read_table(spark, out, "bronze_files").select("file_id").collect()}
    new = [file for file in files if file.file_id not in known]
    batch = uuid4().hex[:12]
    staging = out / f"_staging-{batch}"
    try:
        done = ingest(spark, new, staging)
        events = done.events
        if known:
            events = events.join(read_table(spark, out, "silver_events").select("event_id"), "event_id", "left_anti")
            events = events.select(*spark_schema(TABLES["silver_events"]).names)
        tables = {
            "silver_events": events,
            "silver_quarantine": done.quarantine,
            "silver_counts": as_table(spark, done.counts, SilverCount),
            "bronze_files": as_table(spark, done.files, BronzeFile),
        }
        for name, rows in tables.items():
            rows.write.parquet(f"{out}/{name}/batch={batch}")
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return done.counts


def read_table(spark: SparkSession, out: Path | str, name: str) -> DataFrame:
    """Of all batches that were finished; empty when there is none."""
    finished = [path.name for path in sorted(Path(out).glob("bronze_files/batch=*")) if (path / "_SUCCESS").exists()]
    schema = spark_schema(TABLES[name])
    paths = [f"{out}/{name}/{batch}" for batch in finished if (Path(out) / name / batch).exists()]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)
