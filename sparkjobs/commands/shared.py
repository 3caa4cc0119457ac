"""Code that commands share: reading logs with a progress bar, choosing the executor, times as people write them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import msgspec

from sparkjobs.commands.inputs import LogInputs, inputs_of
from sparkjobs.engine.local.executor import Executor, worker_count_for, workers_of
from sparkjobs.engine.spark.session import NoSparkError, is_submitted, session_for
from sparkjobs.parse.layouts import layout_for
from sparkjobs.rules.facts import Place
from sparkjobs.rules.rules import Answers
from sparkjobs.rules.slo import DEFAULT_TARGET
from sparkjobs.tables.gold import GOLD

if TYPE_CHECKING:
    from sparkjobs.engine.local.conclude import Concluded, Conclusion


def example(words: str) -> str:
    """Returns the last words of a command's help: a line that can be run as it stands where `klamm up` was."""
    return f"\b\nExample:\n  {words}"


def checked_layout(layout: str | None) -> str | None:
    """Returns the value of --layout. Raises click.BadParameter if it is no layout."""
    if layout is not None:
        try:
            layout_for(layout)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return layout


def inputs_from(given: dict[str, Any], master: str | None = None, records: Collection[str] = ()) -> LogInputs:
    """Returns the inputs from the options that all commands take. `records`: files among the given names that are no
    logs."""
    layout = checked_layout(given["layout"])
    return inputs_of(given["named"], given["cluster"], given["zones"], layout, master, records=records)


#: takes the progress since the last call, and the current activity
Advance = Callable[[float, str], None]


@contextmanager
def progress(what: str, total: float) -> Iterator[Advance]:
    """Shows a bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, now: None
        return
    from rich.console import Console  # noqa: PLC0415 - a tenth of a second that only a terminal's user should wait for
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, now: bar.update(task, advance=done, description=now)


def moment_text(at_ms: int | None) -> str:
    if at_ms is None:
        return "-"
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Moment(click.ParamType[int]):
    """`2026-11-18 07:49:10`, with T, fraction or zone if you like; UTC without one; or milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if re.fullmatch(r"\d{13}", value):
            return int(value)
        try:
            moment = datetime.fromisoformat(value.strip().replace(",", "."))
        except ValueError:
            self.fail(f"{value!r} is no time; write it like 2026-11-18T07:49:10 (UTC)", param, ctx)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


def place_of(inputs: LogInputs, file_id: str, line_no: int) -> str:
    """`broker1/state-change.log.gz:120`."""
    path = next((file.paths[0] for file in inputs.files if file.file_id == file_id), file_id[:12])
    return printable(f"{'/'.join(path.split('/')[-2:])}:{line_no}")


def printable(text: str) -> str:
    """Returns the text with a replacement for each character that a terminal might obey: names of files and lines may
    hold such characters."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def write_tables(out: Path, answers: Answers) -> None:
    """A file of JSON lines each, sorted."""
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in answers.items():
        (out / f"{name}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Plain columns, as klamm's other lists."""
    texts = [[*headers], *[["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headers))]
    for row in texts:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@contextmanager
def executor_for(inputs: LogInputs, engine: str, master: str | None, out: Path | None = None) -> Iterator[Executor]:
    """`engine`: auto, spark or local. `out`: a folder that the workers of a cluster see as well. Where Spark was not
    asked for and does not start, a line says why, and the work is done here."""
    must_be_spark = engine == "spark" or master is not None or inputs.is_remote
    if engine != "local" or must_be_spark:
        try:
            spark = session_for(master)
        except NoSparkError as error:
            if must_be_spark or is_submitted():
                raise
            click.echo(f"klamm: {' '.join(str(error).split())}: concluded without Spark", err=True)
        else:
            from sparkjobs.engine.spark.executor import SparkExecutor  # noqa: PLC0415 - needs pyspark

            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix="_copies-", dir=out) as copies:
                yield SparkExecutor(spark, Path(copies))
            return
    with workers_of(worker_count_for(inputs.size_bytes)) as workers:
        yield workers


@contextmanager
def logs_read(inputs: LogInputs, engine: str, master: str | None) -> Iterator[Conclusion]:
    """The logs of a cluster, for questions about their lines. `engine`: as for `executor_for`."""
    with executor_for(inputs, engine, master) as executor, progress("reading", inputs.size_bytes) as advance:
        with _numpy_named():
            from sparkjobs.engine.local.conclude import Conclusion  # noqa: PLC0415 - needs numpy
        yield Conclusion(executor, inputs.files, lambda size: advance(size, "reading"))


@contextmanager
def _numpy_named() -> Iterator[None]:
    """Where it is missing, the message says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"without {error.name} nothing is concluded from logs: pip install 'klamm[spark]'"
        ) from None


def concluded(
    executor: Executor,
    inputs: LogInputs,
    target: float = DEFAULT_TARGET,
    only: Collection[str] = tuple(GOLD),
    places_in: Callable[[Answers], Collection[Place]] = lambda answers: (),
    on_bytes: Callable[[int], None] = lambda size: None,
) -> Concluded:
    """Returns the conclusions from the logs."""
    with _numpy_named():
        from sparkjobs.engine.local.conclude import concluded_by  # noqa: PLC0415
    return concluded_by(executor, inputs.files, target, only, places_in, on_bytes)
