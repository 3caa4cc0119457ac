"""`klamm logs ingest | merge | doctor | explain`: the lines themselves, before any conclusion."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparkjobs.clocks.skew import zone_hint
from sparkjobs.commands.cli import engine_options, input_options
from sparkjobs.commands.shared import (
    Moment,
    concluded,
    example,
    executor_for,
    inputs_from,
    logs_read,
    moment_text,
    place_of,
    printable,
    table,
)
from sparkjobs.parse.lines import zone_of
from sparkjobs.report.story import places_of, story_for
from sparkjobs.report.write import quoting
from sparkjobs.rules.rules import Answers
from sparkjobs.tables.silver import SilverEvent, SilverSkew

if TYPE_CHECKING:
    from sparkjobs.engine.local.conclude import Concluded


def register(logs: click.Group, top: click.Group) -> None:
    for command in (ingest, merge, doctor, explain):
        logs.add_command(command)


@click.command(short_help="Logs to typed tables (Parquet).", epilog=example("klamm logs ingest --out tables"))
@input_options
@engine_options
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the tables.")
def ingest(master: str | None, engine: str, out: Path, **given: Any) -> None:
    """Read logs into silver_events, silver_quarantine, silver_counts, silver_skew and bronze_files below --out.

    Contents that are there already are not read again.
    """
    from sparkjobs.engine.spark.session import session_for  # noqa: PLC0415

    if engine == "local":
        raise click.UsageError("tables are written by Spark; --engine local is for the other commands")
    inputs = inputs_from(given, master)
    spark = session_for(master)
    from sparkjobs.engine.spark.tables import ingest_into  # noqa: PLC0415

    counts = ingest_into(spark, inputs.files, out)
    click.echo(
        f"{sum(one.lines for one in counts):,} lines of {len(counts)} files: "
        f"{sum(one.events for one in counts):,} events, {sum(one.continuations for one in counts):,} continuations, "
        f"{sum(one.duplicates for one in counts):,} duplicates, "
        f"{sum(one.quarantined for one in counts):,} in quarantine. Tables: {out}"
    )


@click.command(
    short_help="All lines of all files, in order of time.",
    epilog=example("klamm logs merge --topic orders --partitions 0,1 --where"),
)
@input_options
@engine_options
@click.option("--topic", help="Only lines that name this topic.")
@click.option("--partitions", help="Only these partitions of it: 0,1,2.")
@click.option("--from", "from_ms", type=Moment(), help="Not before this time.")
@click.option("--to", "to_ms", type=Moment(), help="Not after this time.")
@click.option("--where", is_flag=True, help="Say of each line where it stands.")
def merge(
    master: str | None,
    engine: str,
    topic: str | None,
    partitions: str | None,
    from_ms: int | None,
    to_ms: int | None,
    where: bool,
    **given: Any,
) -> None:
    """Merge logs of several brokers, as Kafka's StateChangeLogMerger did; of all versions, clocks corrected.

    The lines come out as they stand in the logs, with what belongs to them below; duplicates once.
    """
    wanted = _numbers(partitions)
    if wanted and topic is None:
        raise click.UsageError("--partitions needs --topic")
    inputs = inputs_from(given, master)
    with logs_read(inputs, engine, master) as logs:
        from sparkjobs.engine.local.asked_lines import Choice, merged  # noqa: PLC0415 - needs numpy

        for shown in merged(logs, Choice(topic, frozenset(wanted))):
            if (from_ms is not None and shown.at_ms < from_ms) or (to_ms is not None and shown.at_ms > to_ms):
                continue
            for line_no, line in enumerate(shown.lines, start=shown.place.line_no):
                click.echo((f"{place_of(inputs, shown.place.file_id, line_no)}: " if where else "") + line)


def _numbers(text: str | None) -> set[int]:
    if not text:
        return set()
    try:
        return {int(part) for part in text.split(",")}
    except ValueError:
        raise click.BadParameter(f"{text!r}; write it like 0,1,2", param_hint="--partitions") from None


_METHODS = {"round_trips": "round trips", "one_way": "pairs of lines of which one came first"}
_HEADS = (
    *("FILE", "STATUS", "KIND", "BROKER", "LAYOUT", "ZONE"),
    *("LINES", "EVENTS", "CONTINUED", "DUPLICATE", "QUARANTINED"),
)


@click.command(short_help="What these logs can answer, and what not.", epilog=example("klamm logs doctor"))
@input_options
@engine_options
def doctor(master: str | None, engine: str, **given: Any) -> None:
    """Say what was read, what was not understood and why, and what can be concluded from it.

    Exit code 1 when a file could not be read, or lines of state-change logs were not understood.
    """
    inputs = inputs_from(given, master)
    with executor_for(inputs, engine, master) as executor:
        done = concluded(executor, inputs, only=("coverage", "log_spans"))
    by_file = {count.path: count for count in done.counts}
    rows = []
    for file in done.files:
        for path in file.paths:
            count = by_file[path]
            zone = "-" if file.layout in (None, "klamm") else file.tz
            rows.append(
                (
                    *("/".join(path.split("/")[-2:]), file.status, file.kind, file.broker, file.layout, zone),
                    *(count.lines, count.events, count.continuations, count.duplicates, count.quarantined),
                )
            )
    table(_HEADS, sorted(rows, key=str))
    click.echo()
    _say_span(done)
    _say_zones(done)
    _say_clocks(done.skew)
    _say_coverage(done.answers)
    troubles = [f"{file.paths[0]}: {file.trouble}" for file in done.files if file.trouble]
    reasons = Counter(row.reason for row in done.quarantine)
    for trouble in troubles:
        click.echo(printable(f"Not read: {trouble}"))
    for reason, times in sorted(reasons.items()):
        first = next(row for row in done.quarantine if row.reason == reason)
        place = place_of(inputs, first.file_id, first.line_no)
        click.echo(f"In quarantine, {reason}: {times:,}, the first at {place}: {printable(first.line)[:120]}")
    if troubles or reasons.keys() & {"unknown_shape", "bad_timestamp"}:
        sys.exit(1)


def _say_span(done: Concluded) -> None:
    if not done.tallies:
        click.echo("No event at all.")
        return
    spans: list[Any] = list(done.answers["log_spans"])
    first, last = min(span.from_ms for span in spans), max(span.to_ms for span in spans)
    unlisted = sum(tally.times for tally in done.tallies if tally.event == "other")
    click.echo(
        f"From {moment_text(first)} to {moment_text(last)}; {unlisted:,} events say nothing that is asked about."
    )


def _say_zones(done: Concluded) -> None:
    """Prints the brokers for which a file's own zone does not hold."""
    for file in done.files:
        for broker in sorted(done.spoke.get(file.file_id, ())):
            if (zone := zone_of(file, broker)) != file.tz:
                click.echo(
                    printable(f"In {file.paths[0]} broker {broker} speaks as well: its lines are read as {zone}.")
                )


def _say_clocks(skew: list[SilverSkew]) -> None:
    hours: dict[tuple[int, int, int | None, str, int, str | None], list[int]] = {}
    for row in skew:
        if row.method in _METHODS:
            known = (row.broker, row.offset_ms, row.err_ms, row.method, row.samples, zone_hint(row))
            hours.setdefault(known, []).append(row.hour)
    for (broker, offset_ms, err_ms, method, samples, hint), found in sorted(hours.items(), key=str):
        when = f"in the hour of {moment_text(found[0])}" + (f" and {len(found) - 1} more" if found[1:] else "")
        click.echo(
            f"Clock of broker {broker} {when}: {offset_ms:+} ms, give or take {err_ms} ms "
            f"({samples} {_METHODS[method]}){f', {hint}' if hint else ''}."
        )
    assumed = sorted({row.broker for row in skew if row.method == "assumed"})
    if assumed:
        click.echo(
            f"Clocks of brokers {', '.join(map(str, assumed))} are taken as right: too few lines of theirs must have "
            "come before or after a line of another broker."
        )


def _say_coverage(answers: Answers) -> None:
    rows: list[Any] = list(answers["coverage"])
    for row in rows:
        if row.grade != "exact":
            click.echo(f"Of these logs, {row.question}: {row.grade}. {row.why[0].upper()}{row.why[1:]}.")


@click.command(
    short_help="What happened to a partition around a time.", epilog=example("klamm logs explain orders-0 --within 60")
)
@click.argument("which", metavar="TOPIC-PARTITION")
@input_options
@engine_options
@click.option("--at", "at_ms", type=Moment(), help="The time in question. Default: its last change.")
@click.option("--within", "within_s", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds.")
def explain(master: str | None, engine: str, which: str, at_ms: int | None, within_s: float, **given: Any) -> None:
    """Tell a partition's story across all brokers, in corrected time, with the lines quoted."""
    topic, _, number = which.rpartition("-")
    if not topic or not number.isdecimal():
        raise click.BadParameter(f"{which!r}; write it like orders-0", param_hint="TOPIC-PARTITION")
    inputs, name = inputs_from(given, master), (topic, int(number))
    with logs_read(inputs, engine, master) as logs:
        from sparkjobs.engine.local.asked_lines import Choice, told_about  # noqa: PLC0415 - needs numpy

        done = logs.answers(places_in=partial(places_of, topic=topic, partition=int(number)))
        events = told_about(logs, Choice(topic, frozenset({int(number)}), _TOLD, _AROUND), done.skew)
    changes = [event for event in events if event.event in _TOLD and (event.topic, event.partition) == name]
    if not changes:
        raise click.ClickException(f"no line says anything about {which}; `klamm logs doctor` shows what was read")
    at_ms = changes[-1].ts_adj if at_ms is None else at_ms
    reach_ms = round(within_s * 1_000)
    near = [event for event in events if abs(event.ts_adj - at_ms) <= reach_ms]
    before = [event for event in changes if event.ts_adj < at_ms - reach_ms]
    for line in story_for(done.answers, topic, int(number), at_ms, quoting(done.files, done.lines)):
        click.echo(printable(line))
    click.echo(f"\nWhat all brokers wrote about it, {within_s:g} s before and after:")
    for event in [*before[-1:], *near]:
        click.echo(printable(f"{moment_text(event.ts_adj)}  {_words(event)}"))
        click.echo(f"    {place_of(inputs, event.file_id, event.line_no)}: {printable(event.line[:300])}")


_TOLD = frozenset(
    {
        *("partition_changed", "partition_change_failed", "leader_elected", "unclean_elected", "election_failed"),
        *("isr_changed", "leader_started", "follower_started", "replicas_offline", "preferred_election_done"),
        *("isr_version_conflict", "reassignment_started", "reassignment_done"),
    }
)
_AROUND = frozenset(
    {
        *("controller_elected", "controller_resigned", "controller_moved", "failover_done", "session_expired"),
        *("brokers_changed", "server_starting", "server_stopping", "server_stopped", "broker_changed"),
    }
)


def _words(event: SilverEvent) -> str:
    who = f"{'controller' if event.role == 'controller' else 'broker'} {event.broker}"
    said = event.event.replace("_", " ")
    parts = [f"{event.from_state} to {event.to_state}" if event.from_state else event.to_state]
    parts += [None if event.leader is None else "no leader" if event.leader < 0 else f"leader {event.leader}"]
    parts += [f"leader epoch {event.leader_epoch}" if event.leader_epoch is not None else None]
    parts += [f"ISR {list(event.isr)}" if event.isr else None, event.reason]
    parts += [f"came {list(event.added)}" if event.event == "brokers_changed" and event.added else None]
    parts += [f"went {list(event.removed)}" if event.event == "brokers_changed" and event.removed else None]
    detail = ", ".join(part for part in parts if part)
    return f"{who}: {said}{': ' if detail else ''}{detail}"
