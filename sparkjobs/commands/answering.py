"""`klamm logs analyze | slo`: what follows from the lines, by either engine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from sparkjobs.answers.local import answers_for
from sparkjobs.answers.slo import DEFAULT_TARGET
from sparkjobs.bundle import Bundle
from sparkjobs.cli import engine_options, input_options
from sparkjobs.commands.shared import bundle_from, read_locally, table
from sparkjobs.schemas import Row, SilverEvent


def register(logs: click.Group, top: click.Group) -> None:
    for command in (analyze, slo):
        logs.add_command(command)


def answers_of(bundle: Bundle, engine: str, master: str | None, target: float) -> Mapping[str, Sequence[Row]]:
    """Every table of gold."""
    if (bundle.engine(engine) if master is None else "spark") == "local":
        return answers_for(read_locally(bundle).ingested.events, target)
    return answers_for(read_by_spark(bundle, master), target)


def read_by_spark(bundle: Bundle, master: str | None) -> list[SilverEvent]:
    """Silver of the Spark engine, its clocks corrected, as rows of this process."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    from sparkjobs.skew import corrected, skew_of  # noqa: PLC0415
    from sparkjobs.spark.session import NoSparkError, session_for  # noqa: PLC0415

    try:
        spark = session_for(master)
    except NoSparkError as error:
        raise click.ClickException(str(error)) from None
    from sparkjobs.spark.ingest import ingest, rows_of  # noqa: PLC0415

    with TemporaryDirectory(prefix="klamm-") as staging:
        events = list(rows_of(ingest(spark, bundle.files, staging).events, SilverEvent))
    return corrected(events, skew_of(events))


@click.command(short_help="All answers as tables of JSON lines.")
@input_options
@engine_options
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the tables.")
@click.option("--target", type=click.FloatRange(0, 100), default=DEFAULT_TARGET, show_default=True, help="Per cent.")
def analyze(master: str | None, engine: str, out: Path, target: float, **given: Any) -> None:
    """Outages, failovers, tenures and the rest, a file each below --out, sorted: two runs can be compared by bytes."""
    answers = answers_of(bundle_from(given), engine, master, target)
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in answers.items():
        (out / f"{name}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))
    table(("TABLE", "ROWS"), [(name, len(rows)) for name, rows in answers.items()])


@click.command(short_help="Availability by topic and day; exit code 1 when below target.")
@input_options
@engine_options
@click.option("--target", type=click.FloatRange(0, 100), default=DEFAULT_TARGET, show_default=True, help="Per cent.")
def slo(master: str | None, engine: str, target: float, **given: Any) -> None:
    """How much of the time each topic could be written to, and what is left of its error budget."""
    rows = answers_of(bundle_from(given), engine, master, target)["slo_daily"]
    days = [msgspec.structs.asdict(row) for row in rows]
    if not days:
        raise click.ClickException("no line names a partition; `klamm logs doctor` shows what was read")
    columns = [name for name in days[0] if name not in ("cluster", "catalog_version")]
    table([name.upper() for name in columns], [[day[name] for name in columns] for day in days])
    if any(day["availability"] < target for day in days):
        sys.exit(1)
