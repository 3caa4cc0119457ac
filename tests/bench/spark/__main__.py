"""Measure: `python -m tests.bench.spark --lines 1200000`. Ratios of one run; a second run of another day is another."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkjobs.files import Zones, find_logs, survey
from sparkjobs.local.ingest import ingest as ingest_locally
from sparkjobs.spark.ingest import raw_lines, stage
from sparkjobs.spark.session import session_for
from tests.bench.spark import peers
from tests.bench.spark.world import write_logs


def timed(question: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = question()
    return time.perf_counter() - start, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_200_000)
    parser.add_argument("--warm", type=int, default=2, help="runs in a warm session, of which the best counts")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        rows = measure(Path(folder) / "logs", given.lines, given.warm)
    if given.output == "json":
        json.dump(rows, sys.stdout, indent=1)
        return
    for row in rows:
        sys.stdout.write(f"| {row['what']} | {row['s']:.2f} s | {row['klines_s']:,.0f} | {row['ratio']:.2f} |\n")


def measure(folder: Path, lines: int, warm: int) -> list[dict[str, Any]]:
    """Each row with its ratio to the plain loop."""
    outages = write_logs(folder, lines)
    found: list[tuple[str, float]] = []
    expected = None
    for name, question in (
        ("windows: plain Python loop", peers.python_loop),
        ("windows: DuckDB", peers.duckdb_sql),
        ("windows: Polars", peers.polars_lazy),
    ):
        took_s, answer = timed(lambda question=question: question(folder))  # type: ignore[misc]
        expected = expected or answer
        assert answer == expected, (name, answer, expected)
        found.append((name, took_s))
    assert expected is not None
    assert expected[0] <= outages
    files = survey(find_logs([str(folder)]), "bench", Zones())
    took_s, local = timed(lambda: ingest_locally(files))
    found.append(("all columns: local engine, one core", took_s))
    start_s, spark = timed(lambda: session_for("local[2]"))
    cold_s, answer = timed(lambda: peers.spark_windows(spark, folder))
    assert answer == expected, (answer, expected)
    found.append(("windows: Spark, cold, with its start", start_s + cold_s))
    found.append(
        ("windows: Spark, warm", min(timed(lambda: peers.spark_windows(spark, folder))[0] for _ in range(warm)))
    )
    spark.conf.set("spark.sql.codegen.wholeStage", "false")

    def parse() -> None:
        stage(raw_lines(spark, files, {}), files).write.format("noop").mode("overwrite").save()

    found.append(("all columns: Spark, warm", min(timed(parse)[0] for _ in range(warm + 1))))
    assert len(local.events) == sum(file.lines for file in files) - sum(one.duplicates for one in local.counts)
    spark.stop()
    loop_s = found[0][1]
    return [
        {"what": name, "s": took_s, "klines_s": lines / took_s / 1_000, "ratio": took_s / loop_s}
        for name, took_s in found
    ]


if __name__ == "__main__":
    main()
