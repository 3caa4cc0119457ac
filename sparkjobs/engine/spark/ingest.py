"""Silver from files, as tables: the digest says where each line goes, and which lines are copies; the workers write the
rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjobs.engine.local.conclude import ClusterLogs, by_cluster
from sparkjobs.engine.spark.executor import SparkExecutor
from sparkjobs.engine.spark.staging import Writing, events_in, quarantine_in, stage
from sparkjobs.tables.silver import (
    CATALOG_VERSION,
    BronzeFile,
    SilverCount,
    SilverEvent,
    SilverSkew,
    columns_of,
)


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
    """The events, with all columns of silver; no clock is corrected yet."""
    derived = {
        "dt": F.date_format(F.timestamp_millis("ts_utc"), "yyyy-MM-dd"),
        "ts_adj": F.col("ts_utc"),
        "skew_ms": F.lit(None).cast("int"),
        "skew_err_ms": F.lit(None).cast("int"),
        "catalog_version": F.lit(CATALOG_VERSION),
    }
    return staged.select(*[derived.get(name, F.col(name)).alias(name) for name in columns_of(SilverEvent)])
