"""Measure: `python -m tests.bench.spark`. Ratios of one run; a run of another day is another."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sparkjobs.input.files import Zones, find_logs, survey
from tests.bench.spark import peers, process
from tests.bench.spark.world import another_day, write_logs

KLAMM: Final = (sys.executable, "-m", "sparkjobs")


class Took(NamedTuple):
    """`cpu_s`: of all processes, which says more than the clock on a machine that is busy."""

    s: float
    cpu_s: float


class Row(msgspec.Struct, frozen=True):
    """One measurement; `ratio` is to the plain loop over the same lines, of CPU time."""

    part: str
    what: str
    s: float
    klines_s: float
    ratio: float
    cpu_s: float
    klines_cpu_s: float
    peak_mb: float | None = None
    driver_mb: float | None = None


class Bench:
    """One input, and the time that the plain loop takes for it."""

    def __init__(self, folder: Path, lines: int, warm: int, times: int) -> None:
        self.folder, self.lines, self.warm, self.times = folder / "logs", lines, warm, times
        self._large, self._out = folder / "large", folder / "out"
        self.outages = write_logs(self.folder, lines)
        self.loop, self.expected = timed(lambda: peers.python_loop(self.folder))
        assert self.expected[0] <= self.outages

    def row(self, part: str, what: str, took: Took, times: int = 1) -> Row:
        lines, loop = self.lines * times, self.loop
        ratio = took.cpu_s / times / loop.cpu_s
        return Row(part, what, took.s, lines / took.s / 1_000, ratio, took.cpu_s, lines / took.cpu_s / 1_000)

    def of_command(self, part: str, what: str, *words: str, times: int = 1) -> Row:
        """A command, from its start to its end; the short ones without anybody looking at them."""
        run = process.run_unwatched if "local" in words else process.run
        spent = run((*KLAMM, *words))
        row = self.row(part, what, Took(spent.s, spent.cpu_s), times)
        return msgspec.structs.replace(row, peak_mb=spent.peak_mb, driver_mb=spent.driver_mb)

    def windows(self) -> Iterator[Row]:
        """How many windows without a leader, and how long: every engine answers the same."""
        yield self.row("windows", "plain Python loop", self.loop)
        for name, question in (("DuckDB", peers.duckdb_sql), ("Polars", peers.polars_lazy)):
            took, answer = timed(lambda question=question: question(self.folder))  # type: ignore[misc]
            assert answer == self.expected, (name, answer, self.expected)
            yield self.row("windows", name, took)
        yield self.row("windows", "Spark SQL, cold, with its start", self._cold())
        process.run((*KLAMM, "logs", "warmup"))
        yield self.row("windows", "Spark SQL, cold, with its start, after `klamm logs warmup`", self._cold())
        from sparkjobs.engine.spark.session import session_for

        spark = session_for("local[2]")
        self._asked(lambda: peers.spark_sql(spark, self.folder))
        took = min(self._asked(lambda: peers.spark_sql(spark, self.folder)) for _ in range(self.warm))
        yield self.row("windows", "Spark SQL, warm", took)
        from sparkjobs.engine.spark.tables import ingest_into

        ingest_into(spark, survey(find_logs([str(self.folder)]), "bench", Zones()), self._out / "silver")
        silver = lambda: peers.spark_silver(spark, self._out / "silver")  # noqa: E731
        took = min(self._asked(silver) for _ in range(self.warm + 1))
        yield self.row("windows", "Spark, warm, of the tables of `klamm logs ingest`", took)
        spark.stop()

    def _cold(self) -> Took:
        """By a process that has not begun."""
        with ProcessPoolExecutor(1, get_context("spawn")) as process_of_its_own:
            s, cpu_s, answer = process_of_its_own.submit(peers.spark_cold, self.folder).result()
        assert answer == self.expected, (answer, self.expected)
        return Took(s, cpu_s)

    def _asked(self, question: Callable[[], tuple[int, int]]) -> Took:
        took, answer = timed(question)
        assert answer == self.expected, (answer, self.expected)
        return took

    def parse(self) -> Iterator[Row]:
        """Every column of every line, typed, in a table."""
        from sparkjobs.engine.spark.session import session_for
        from sparkjobs.engine.spark.tables import ingest

        files = survey(find_logs([str(self.folder)]), "bench", Zones())
        spark = session_for("local[2]")
        took = min(timed(lambda: ingest(spark, files, self._out / "staged"))[0] for _ in range(self.warm + 1))
        yield self.row("all columns", "Spark, warm, into Parquet, every line accounted for", took)
        spark.stop()

    def report(self) -> Iterator[Row]:
        """The commands; of the local engine also the quick one, which concludes only the verdict."""
        logs, out = str(self.folder), str(self._out)
        verdict = ("logs", "analyze", "--engine", "local", "--only", "verdict", "--out", f"{out}/verdict")
        process.run((*KLAMM, *verdict, str(next(self.folder.iterdir()))))  # compiles Python files
        yield self.of_command("klamm logs analyze", "local engine: verdict, outages, tenures", *verdict, logs)
        for engine in ("local", "spark"):
            words = ("report", logs, "--engine", engine, "--out", f"{out}/{engine}")
            yield self.of_command("klamm report", f"{engine} engine, cold", *words)
        self._agree(self._out)

    def memory(self) -> Iterator[Row]:
        """Many times the input in the same memory."""
        for what, folder, times in self._once_and_more():
            out = f"{self._out}/{times}"
            verdict = (
                "logs",
                "analyze",
                str(folder),
                "--engine",
                "local",
                "--only",
                "verdict",
                "--out",
                f"{out}/local",
            )
            yield self.of_command("klamm logs analyze", f"local engine, the input {what}", *verdict, times=times)
            ingest = ("logs", "ingest", str(folder), "--out", f"{out}/tables")
            yield self.of_command("klamm logs ingest", f"Spark, the input {what}", *ingest, times=times)

    def growth(self) -> Iterator[Row]:
        """The report of many times the input, by both executors."""
        for what, folder, times in self._once_and_more():
            out = f"{self._out}/{times}"
            for engine in ("spark", "local"):
                words = ("report", str(folder), "--engine", engine, "--out", f"{out}/{engine}")
                yield self.of_command("klamm report", f"{engine} engine, the input {what}", *words, times=times)
            self._agree(Path(out))

    def _once_and_more(self) -> Iterator[tuple[str, Path, int]]:
        yield "once", self.folder, 1
        if not self._large.exists():
            for day in range(self.times):
                another_day(self.folder, self._large / str(day), day)
        yield f"{self.times} times", self._large, self.times

    def _agree(self, out: Path) -> None:
        digests = {(out / engine / "digest.txt").read_text() for engine in ("local", "spark")}
        assert len(digests) == 1, "the engines do not agree"


PARTS: Final = {
    "windows": Bench.windows,
    "parse": Bench.parse,
    "report": Bench.report,
    "growth": Bench.growth,
    "memory": Bench.memory,
}


def timed(question: Callable[[], Any]) -> tuple[Took, Any]:
    start, cpu_s = time.perf_counter(), process.family_cpu_s(os.getpid())
    answer = question()
    return Took(time.perf_counter() - start, process.family_cpu_s(os.getpid()) - cpu_s), answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which; all when none is named")
    parser.add_argument("--lines", type=int, default=1_200_000)
    parser.add_argument("--warm", type=int, default=2, help="runs in a warm session, of which the best counts")
    parser.add_argument(
        "--times", type=int, default=3, help="how often the large input holds the small one; the goal: 10"
    )
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    given = parser.parse_args()
    # as it is installed: with its modules compiled, without which each process is half a second slower
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"  # nothing is warm yet
        bench = Bench(Path(folder), given.lines, given.warm, given.times)
        size_mb = sum(path.stat().st_size for path in bench.folder.iterdir()) / 1e6
        sys.stderr.write(f"{given.lines:,} lines, {size_mb:,.0f} MB, {bench.outages:,} outages\n")
        if given.output == "table":
            sys.stdout.write(
                "| Question | By | s | klines/s | CPU s | klines/CPU s | of the loop's CPU | MB | of the driver |\n"
                "|---|---|---|---|---|---|---|---|---|\n"
            )
        for part in given.parts or PARTS:
            for row in PARTS[part](bench):
                rows.append(row)
                if given.output == "table":
                    sys.stdout.write(f"{_as_line(row)}\n")
                    sys.stdout.flush()
    if given.output == "json":
        sys.stdout.write(json.dumps(msgspec.to_builtins(rows), indent=1))


def _as_line(row: Row) -> str:
    peak, driver = ("" if size is None else f"{size:,.0f}" for size in (row.peak_mb, row.driver_mb))
    clock = f"{row.s:.2f} | {row.klines_s:,.0f} | {row.cpu_s:.2f} | {row.klines_cpu_s:,.0f}"
    return f"| {row.part} | {row.what} | {clock} | {row.ratio:.1f} | {peak} | {driver} |"


if __name__ == "__main__":
    main()
