"""The outage question, answered by each: how many windows, and how many milliseconds in all.

A window is from `OnlinePartition to OfflinePartition` to the next `OfflinePartition to OnlinePartition` of a partition
in one file. Each function starts from raw text, but for the last, and returns (windows, milliseconds).
"""

from __future__ import annotations

import os
import re
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench.spark import process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

_LINE: Final = (
    r"^\[(.{23})\] \w+ \[Controller id=\d+ epoch=\d+\] Changed partition (\S+) (?:state )?from (\w+) to (\w+)"
)


def python_loop(folder: Path) -> tuple[int, int]:
    line_pattern, windows, total_ms = re.compile(_LINE), 0, 0
    for path in sorted(folder.glob("*.log")):
        since: dict[str, float] = {}
        with path.open(encoding="utf-8") as file:
            for line in file:
                if "OfflinePartition" not in line:
                    continue
                found = line_pattern.match(line)
                if found is None:
                    continue
                at_s = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
                if found[4] == "OfflinePartition":
                    since[found[2]] = at_s
                elif found[2] in since:
                    windows, total_ms = windows + 1, total_ms + round((at_s - since.pop(found[2])) * 1_000)
    return windows, total_ms


def duckdb_sql(folder: Path) -> tuple[int, int]:
    import duckdb

    [row] = duckdb.sql(f"""
        WITH raw AS (SELECT filename, column0 AS line FROM read_csv('{folder}/*.log', columns={{'column0': 'VARCHAR'}},
                     delim='\x01', header=false, quote='', escape='', filename=true)
                     WHERE contains(column0, 'OfflinePartition')),
        parsed AS (SELECT filename, regexp_extract(line, '{_LINE}', ['ts', 'name', 'was', 'is']) AS p FROM raw),
        ordered AS (SELECT p['is'] AS state, strptime(p['ts'], '%Y-%m-%d %H:%M:%S,%g') AS since,
                    lead(strptime(p['ts'], '%Y-%m-%d %H:%M:%S,%g')) OVER w AS back, lead(p['is']) OVER w AS next_state
                    FROM parsed WHERE p['name'] <> '' WINDOW w AS (PARTITION BY filename, p['name'] ORDER BY p['ts']))
        SELECT count(*), sum(epoch_ms(back) - epoch_ms(since)) FROM ordered
        WHERE state = 'OfflinePartition' AND next_state = 'OnlinePartition'""").fetchall()
    return int(row[0]), int(row[1])


def polars_lazy(folder: Path) -> tuple[int, int]:
    import polars as pl

    pattern = _LINE.replace("(.{23})", "(?<ts>.{23})").replace("(\\S+)", "(?<name>\\S+)")
    pattern = pattern.replace("from (\\w+) to (\\w+)", "from (?<was>\\w+) to (?<is>\\w+)")
    frame = (
        pl.scan_csv(
            f"{folder}/*.log",
            has_header=False,
            separator="\x01",
            quote_char=None,
            new_columns=["line"],
            include_file_paths="file",
        )
        .filter(pl.col("line").str.contains("OfflinePartition", literal=True))
        .select("file", pl.col("line").str.extract_groups(pattern).alias("p"))
        .unnest("p")
        .drop_nulls("name")
        .with_columns(pl.col("ts").str.to_datetime("%Y-%m-%d %H:%M:%S,%3f"))
        .sort("ts")
        .with_columns(
            pl.col("ts").shift(-1).over("file", "name").alias("until"),
            pl.col("is").shift(-1).over("file", "name").alias("next"),
        )
        .filter((pl.col("is") == "OfflinePartition") & (pl.col("next") == "OnlinePartition"))
        .select(pl.len(), (pl.col("until") - pl.col("ts")).sum().dt.total_milliseconds().alias("ms"))
        .collect()
    )
    return int(frame[0, 0]), int(frame[0, 1])


def spark_sql(spark: SparkSession, folder: Path) -> tuple[int, int]:
    """As the others: from raw text, only the columns of the question."""
    from pyspark.sql import functions as F  # noqa: N812

    lines = spark.read.text(str(folder)).select("value", F.col("_metadata.file_path").alias("file"))
    names = ("ts", "name", "was", "is")
    parts = [F.regexp_extract("value", _LINE, number).alias(name) for number, name in enumerate(names, start=1)]
    parsed = (
        lines.filter(F.col("value").contains("OfflinePartition"))
        .select("file", *parts)
        .filter("name <> ''")
        .withColumn("at_ms", F.unix_millis(F.to_timestamp("ts", "yyyy-MM-dd HH:mm:ss,SSS")))
    )
    return _windows_of(parsed, ("file", "name"), "is", ("at_ms",))


def spark_cold(folder: Path) -> tuple[float, float, tuple[int, int]]:
    """The same in a process that has nothing yet: seconds by the clock and of CPU until the answer, and the answer."""
    from sparkjobs.engine.spark.session import session_for

    start, cpu_s = time.perf_counter(), process.family_cpu_s(os.getpid())
    answer = spark_sql(session_for("local[2]"), folder)
    return time.perf_counter() - start, process.family_cpu_s(os.getpid()) - cpu_s, answer


def spark_silver(spark: SparkSession, out: Path) -> tuple[int, int]:
    """Of the tables that `klamm logs ingest` made of the logs, once for all questions."""
    from pyspark.sql import functions as F  # noqa: N812

    from sparkjobs.engine.spark.tables import read_table

    events = read_table(spark, out, "silver_events").filter(F.col("event") == "partition_changed")
    moves = events.select("file_id", "topic", "partition", "to_state", "line_no", F.col("ts_utc").alias("at_ms"))
    return _windows_of(moves, ("file_id", "topic", "partition"), "to_state", ("line_no",))


def _windows_of(moves: DataFrame, by: Sequence[str], state: str, order: Sequence[str]) -> tuple[int, int]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    of_partition = Window.partitionBy(*by).orderBy(*order)
    row = (
        moves.select(
            *(state, "at_ms"),
            F.lead(state).over(of_partition).alias("next_state"),
            F.lead("at_ms").over(of_partition).alias("until"),
        )
        .filter((F.col(state) == "OfflinePartition") & (F.col("next_state") == "OnlinePartition"))
        .agg(F.count("*"), F.sum(F.col("until") - F.col("at_ms")))
        .first()
    )
    assert row is not None
    return int(row[0]), int(row[1])
