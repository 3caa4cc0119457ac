"""Measure: `python -m tests.bench.spark`. Ratios of one run; a run of another day is another."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkjobs.files import Zones, find_logs, survey
from tests.bench.spark import peers, process
from tests.bench.spark.world import another_day, write_logs

KLAMM: Final = (sys.executable, "-m", "sparkjobs")
DAYS: Final = 10  # what the large input is to the small one


class Row(msgspec.Struct, frozen=True):
    """One measurement; `ratio` is to the plain loop over the same lines."""

    part: str
    what: str
    s: float
    klines_s: float
    ratio: float
    peak_mb: float | None = None


class Bench:
    """One input, and what the plain loop takes for it."""

    def __init__(self, folder: Path, lines: int, warm: int) -> None:
        self.folder, self.lines, self.warm = folder / "logs", lines, warm
        self._large, self._out = folder / "large", folder / "out"
        self.outages = write_logs(self.folder, lines)
        self.loop_s, self.expected = timed(lambda: peers.python_loop(self.folder))
        assert self.expected[0] <= self.outages

    def row(self, part: str, what: str, took_s: float, peak_mb: float | None = None, times: int = 1) -> Row:
        lines, loop_s = self.lines * times, self.loop_s * times
        return Row(part, what, took_s, lines / took_s / 1_000, took_s / loop_s, peak_mb)

    def windows(self) -> Iterator[Row]:
        """How many windows without a leader, and how long: every engine answers the same."""
        yield self.row("windows", "plain Python loop", self.loop_s)
        for name, question in (("DuckDB", peers.duckdb_sql), ("Polars", peers.polars_lazy)):
            took_s, answer = timed(lambda question=question: question(self.folder))  # type: ignore[misc]
            assert answer == self.expected, (name, answer, self.expected)
            yield self.row("windows", name, took_s)
        from sparkjobs.spark.session import session_for

        start_s, spark = timed(lambda: session_for("local[2]"))
        took_s, answer = timed(lambda: peers.spark_windows(spark, self.folder))
        assert answer == self.expected, (answer, self.expected)
        yield self.row("windows", "Spark, cold, with its start", start_s + took_s)
        took_s = min(timed(lambda: peers.spark_windows(spark, self.folder))[0] for _ in range(self.warm))
        yield self.row("windows", "Spark, warm", took_s)
        spark.stop()

    def parse(self) -> Iterator[Row]:
        """Every column of every line, typed, and thrown away."""
        from sparkjobs.local.ingest import ingest
        from sparkjobs.spark.ingest import raw_lines
        from sparkjobs.spark.lines import parsed
        from sparkjobs.spark.session import session_for

        files = survey(find_logs([str(self.folder)]), "bench", Zones())
        took_s, _ = timed(lambda: ingest(files))
        yield self.row("all columns", "local engine", took_s)
        spark = session_for("local[2]")

        def parse() -> None:
            parsed(raw_lines(spark, files, {}), files).write.format("noop").mode("overwrite").save()

        yield self.row("all columns", "Spark, warm", min(timed(parse)[0] for _ in range(self.warm + 1)))
        spark.stop()

    def report(self) -> Iterator[Row]:
        """The command, from its start to its end."""
        for engine in ("local", "spark"):
            command = (*KLAMM, "report", str(self.folder), "--engine", engine, "--out", f"{self._out}/{engine}")
            spent = process.run(command)
            yield self.row("klamm report", f"{engine} engine, cold", spent.s, spent.peak_mb)
        digests = {(self._out / engine / "digest.txt").read_text() for engine in ("local", "spark")}
        assert len(digests) == 1, "the engines do not agree"

    def memory(self) -> Iterator[Row]:
        """Ten times the input in the same memory."""
        for day in range(DAYS):
            another_day(self.folder, self._large / str(day), day)
        for what, folder, times in (("once", self.folder, 1), (f"{DAYS} times", self._large, DAYS)):
            spent = process.run((*KLAMM, "logs", "ingest", str(folder), "--out", f"{self._out}/tables-{times}"))
            yield self.row("klamm logs ingest", f"Spark, the input {what}", spent.s, spent.peak_mb, times)


PARTS: Final = {"windows": Bench.windows, "parse": Bench.parse, "report": Bench.report, "memory": Bench.memory}


def timed(question: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = question()
    return time.perf_counter() - start, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which; all when none is named")
    parser.add_argument("--lines", type=int, default=1_200_000)
    parser.add_argument("--warm", type=int, default=3, help="runs in a warm session, of which the best counts")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    given = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        bench = Bench(Path(folder), given.lines, given.warm)
        size_mb = sum(path.stat().st_size for path in bench.folder.iterdir()) / 1e6
        sys.stderr.write(f"{given.lines:,} lines, {size_mb:,.0f} MB, {bench.outages:,} outages\n")
        if given.output == "table":
            sys.stdout.write("| Question | By | s | klines/s | of the loop's time | MB |\n|---|---|---|---|---|---|\n")
        for part in given.parts or PARTS:
            for row in PARTS[part](bench):
                rows.append(row)
                if given.output == "table":
                    sys.stdout.write(f"{_as_line(row)}\n")
                    sys.stdout.flush()
    if given.output == "json":
        sys.stdout.write(json.dumps(msgspec.to_builtins(rows), indent=1))


def _as_line(row: Row) -> str:
    peak = "" if row.peak_mb is None else f"{row.peak_mb:,.0f}"
    return f"| {row.part} | {row.what} | {row.s:.2f} | {row.klines_s:,.0f} | {row.ratio:.2f} | {peak} |"


if __name__ == "__main__":
    main()
