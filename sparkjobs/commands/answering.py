"""`klamm report`, `klamm logs analyze | slo`: what follows from the lines, by either engine."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from sparkjobs.commands.cli import engine_options, input_options, lab_folder
from sparkjobs.commands.inputs import LogInputs
from sparkjobs.commands.shared import example, inputs_from, progress, read_locally, steps, table, write_tables
from sparkjobs.engine.local.answers import answers_for
from sparkjobs.engine.local.line_lookup import lines_at
from sparkjobs.history.opened import answers_for_records
from sparkjobs.input.files import SCHEME
from sparkjobs.records.found import find_records
from sparkjobs.report.accounting import Input
from sparkjobs.report.certain import sentence_for
from sparkjobs.report.drawing import lasting
from sparkjobs.report.page import Quoting
from sparkjobs.report.verdict import OF_VERDICT, verdict_for
from sparkjobs.report.write import quoting_findings, write_report
from sparkjobs.rules.slo import DEFAULT_TARGET
from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.silver import Row, SilverQuarantine

#: lines in quarantine that a report may quote
QUARANTINE_SHOWN: Final = 10_000


class Answered(NamedTuple):
    """Every table of gold, and what it was concluded from."""

    answers: Mapping[str, Sequence[Row]]
    read: Input
    quote: Quoting
    made_by: str  # who concluded it


_LOCALLY: Final = "Concluded by processes of one machine, without Spark."


def register(logs: click.Group, top: click.Group) -> None:
    for command in (analyze, slo):
        logs.add_command(command)
    top.add_command(report)


def answered(
    inputs: LogInputs,
    engine: str,
    master: str | None,
    target: float,
    out: Path | None = None,
    only: Collection[str] = tuple(GOLD),
) -> Answered:
    """By the engine that was asked for, or suits. `only`: tables that are asked for; the others may be missing."""
    if master is None and inputs.engine(engine) == "local":
        if inputs.is_concluded_in_columns:
            return _concluded(inputs, target, only)
        silver = read_locally(inputs)
        ingested = silver.ingested
        answers = answers_for(ingested.events, target)
        read = Input(ingested.counts, ingested.quarantine, silver.skew, ingested.files)
        quote = quoting_findings(ingested.files, answers, partial(lines_at, ingested.files))
        return Answered(answers, read, quote, _LOCALLY)
    return _answered_by_spark(inputs, master, target, out or Path(gettempdir()))


def _concluded(inputs: LogInputs, target: float, only: Collection[str]) -> Answered:
    from sparkjobs.engine.local.conclude import conclude  # noqa: PLC0415 - needs numpy

    with progress("reading", inputs.size_bytes) as advance:
        done = conclude(inputs.files, target, only, on_bytes=lambda size: advance(size, "reading"))
    is_whole = done.answers.keys() >= GOLD.keys()
    look_up = partial(lines_at, done.files)
    quote = quoting_findings(done.files, done.answers, look_up) if is_whole else lambda file_id, line_no: None
    return Answered(done.answers, Input(done.counts, done.quarantine, done.skew, done.files), quote, _LOCALLY)


def _answered_by_spark(inputs: LogInputs, master: str | None, target: float, out: Path) -> Answered:
    from sparkjobs.engine.spark.session import session_for  # noqa: PLC0415

    spark = session_for(master)
    from sparkjobs.engine.spark import answers as spark_answers  # noqa: PLC0415
    from sparkjobs.engine.spark import clocks  # noqa: PLC0415
    from sparkjobs.engine.spark.frames import released, rows_of  # noqa: PLC0415
    from sparkjobs.engine.spark.ingest import ingest, staging_below  # noqa: PLC0415
    from sparkjobs.engine.spark.line_lookup import lines_of  # noqa: PLC0415

    with (
        staging_below(out) as staging,
        released() as keep,
        steps("parsing", "clocks", "answers", "quotes") as step,
    ):
        done = ingest(spark, inputs.files, staging, keep)
        step()
        with spark_answers.cached(done.events, is_scan=done.is_scan) as said:
            skew = clocks.skew_of(said)
            step()
            answers = spark_answers.answers_for(clocks.corrected(said, skew), target)
            step()
        quarantine = list(rows_of(done.quarantine.limit(QUARANTINE_SHOWN), SilverQuarantine))
        quote = quoting_findings(done.files, answers, partial(lines_of, done.events))
        step()
    where = "one machine" if str(spark.sparkContext.master).startswith("local") else "a cluster"  # no host's name
    made_by = f"Concluded by Spark {spark.version} on {where}."
    return Answered(answers, Input(done.counts, quarantine, skew, done.files), quote, made_by)


@click.command(
    short_help="What happened? One page, and the tables behind it.",
    epilog=example("klamm report --out report --redact"),
)
@input_options
@engine_options
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: lab_folder() / "report",
    show_default="var/report",
    help="Folder of the report; the dashboard of a local cluster links the default one.",
)
@click.option("--target", type=click.FloatRange(0, 100), default=DEFAULT_TARGET, show_default=True, help="Per cent.")
@click.option(
    "--redact",
    is_flag=True,
    help="Replace whom it names: hosts, clients, users, racks, folders.",
)
def report(master: str | None, engine: str, out: Path, target: float, redact: bool, **given: Any) -> None:
    """Which partitions, since when, was data lost, who was controller, which broker first, is it over.

    Writes report.html (one file, opens offline), report.json, the tables, and a digest that equal inputs share. Exit
    code 1 when no line was understood.
    """
    sources = find_records([*(name for name in given["named"] if not SCHEME.match(name)), *_of_the_lab()])
    inputs = inputs_from(given, master, [one.path for one in sources])
    if not inputs.files:  # records alone: they need no engine
        engine, master = "local", None
    done = answered(inputs, engine, master, target, out)
    records = answers_for_records(sources, given["cluster"]) if sources else None
    made_by = done.made_by if inputs.files else ""
    page = write_report(out, done.answers, done.quote, done.read, made_by=made_by, redact=redact, records=records)
    if records is None or inputs.files:
        click.echo(verdict_for(done.answers).sentence)
    if records is not None:
        click.echo(f"Known for certain: {sentence_for(records)}")
    click.echo(f"{page}")
    if not done.answers["broker_lives"] and not (records and records["record_partition_states"]):
        sys.exit(1)


def _of_the_lab() -> list[str]:
    """Where nothing was named, the lab's logs are read, and the history of its ZooKeeper with them."""
    was_named = click.get_current_context().get_parameter_source("named") is ParameterSource.COMMANDLINE
    return [] if was_named else [str(lab_folder() / "zookeeper" / "version-2")]


@click.command(short_help="All answers as tables of JSON lines.", epilog=example("klamm logs analyze --out answers"))
@input_options
@engine_options
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the tables.")
@click.option("--target", type=click.FloatRange(0, 100), default=DEFAULT_TARGET, show_default=True, help="Per cent.")
@click.option(
    "--only",
    multiple=True,
    metavar="TABLE",
    type=click.Choice([*GOLD, "verdict"]),
    help="Only this table; several times for several. `verdict`: those that the verdict rests on.",
)
def analyze(master: str | None, engine: str, out: Path, target: float, only: tuple[str, ...], **given: Any) -> None:
    """Outages, failovers, tenures and the rest, a file each below --out, sorted: two runs can be compared by bytes.

    What is not asked for is not concluded, which takes less time.
    """
    wanted = {*only, *(OF_VERDICT if "verdict" in only else ())} & GOLD.keys() if only else GOLD.keys()
    answers = answered(inputs_from(given, master), engine, master, target, out, only=wanted).answers
    answers = {name: rows for name, rows in answers.items() if name in wanted}
    write_tables(out, answers)
    if answers.keys() >= set(OF_VERDICT):
        click.echo(verdict_for(answers).sentence)
    table(("TABLE", "ROWS"), [(name, len(rows)) for name, rows in answers.items()])


@click.command(
    short_help="Availability by topic and day; exit code 1 when below target.",
    epilog=example("klamm logs slo --target 99.5"),
)
@input_options
@engine_options
@click.option("--target", type=click.FloatRange(0, 100), default=DEFAULT_TARGET, show_default=True, help="Per cent.")
def slo(master: str | None, engine: str, target: float, **given: Any) -> None:
    """How much of the time each topic could be written to, and what is left of its error budget."""
    rows: list[Any] = list(answered(inputs_from(given, master), engine, master, target).answers["slo_daily"])
    if not rows:
        raise click.ClickException("no line names a partition; `klamm logs doctor` shows what was read")
    table(_SLO_HEADS, [_slo_row(one) for one in rows])
    if any(one.availability < target for one in rows):
        sys.exit(1)


_SLO_HEADS = ("DAY", "TOPIC", "PARTITIONS", "AVAILABLE", "OFFLINE", "FELT AT MOST", "BUDGET", "USED", "MET")


def _slo_row(day: Any) -> tuple[object, ...]:
    return (
        *(day.dt, day.topic or "(all)", day.partitions, f"{day.availability:.4f} %", lasting(day.unavailable_ms)),
        *(lasting(day.unavailable_hi_ms), lasting(day.budget_ms), f"{100 * day.budget_used:.0f} %"),
        "yes" if day.is_met else "NO",
    )
