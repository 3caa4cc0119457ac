"""`klamm report`, `klamm logs analyze | slo`: the conclusions from the lines."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from sparkjobs.commands.cli import engine_options, input_options, lab_folder
from sparkjobs.commands.inputs import LogInputs
from sparkjobs.commands.shared import concluded, example, executor_for, inputs_from, progress, table, write_tables
from sparkjobs.history.as_of import answers_for_records
from sparkjobs.history.log_join import joined
from sparkjobs.input.files import SCHEME
from sparkjobs.records.discovery import find_records
from sparkjobs.report.exact_facts import knows, phases_of, sentence_for
from sparkjobs.report.markup import lasting
from sparkjobs.report.page import Input, Quoting
from sparkjobs.report.verdict import OF_VERDICT, is_blind, verdict_for
from sparkjobs.report.write import places_of_findings, quoting, write_report
from sparkjobs.rules.slo import DEFAULT_TARGET
from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.silver import Row


class ReportAnswers(NamedTuple):
    """Every table of gold, and the input that it was concluded from."""

    answers: Mapping[str, Sequence[Row]]
    read: Input
    quote: Quoting
    made_by: str  # a sentence that names the executor; empty where there was no log


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
) -> ReportAnswers:
    """Answers by the requested executor, or by Spark where it starts. `only`: the requested tables; the others may be
    missing."""
    if not inputs.files:
        return ReportAnswers({name: [] for name in GOLD}, Input(), quoting([], {}), "")
    is_whole = not GOLD.keys() - {*only}
    places_in = places_of_findings if is_whole else (lambda answers: ())
    with executor_for(inputs, engine, master, out) as executor, progress("reading", inputs.size_bytes) as advance:
        done = concluded(executor, inputs, target, only, places_in, lambda size: advance(size, "reading"))
    read = Input(done.counts, done.quarantine, done.skew, done.files)
    return ReportAnswers(done.answers, read, quoting(done.files, done.lines), f"Concluded by {executor.name}.")


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
    done = answered(inputs, engine, master, target, out)
    records = joined(answers_for_records(sources, given["cluster"]), done.answers) if sources else None
    page = write_report(out, done.answers, done.quote, done.read, made_by=done.made_by, redact=redact, records=records)
    if records is not None:
        click.echo(f"Known for certain: {sentence_for(records)}")
        if records["record_migration_phases"]:
            table(("PHASE", "FROM", "TO", "CONTROLLERS", "KNOWN"), phases_of(records))
    if records is None or (inputs.files and not (knows(records) and is_blind(done.answers))):
        click.echo(f"{'From logs: ' if records is not None else ''}{verdict_for(done.answers).sentence}")
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
