"""`klamm logs stream`: a folder of growing logs, watched."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from sparkjobs.bundle import zones_of
from sparkjobs.cli import input_options
from sparkjobs.commands.shared import example
from sparkjobs.files import NoLogsError, find_logs
from sparkjobs.schemas import Row, SilverEvent


def register(logs: click.Group, top: click.Group) -> None:
    logs.add_command(stream)


def outages_in(events: Iterable[SilverEvent]) -> Sequence[Row]:
    """What alerts are about."""
    from sparkjobs.answers.local import answers_for  # noqa: PLC0415

    return answers_for(events)["partition_outages"]


@click.command(
    short_help="Watch growing logs; tell outages as they begin and end.",
    epilog=example("klamm logs stream --out alerts --once"),
)
@input_options
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Checkpoint and alerts.")
@click.option("--master", metavar="URL", help="A Spark cluster. Default: this machine.")
@click.option("--every", "every_s", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Take what is there and end.")
def stream(
    named: tuple[str, ...],
    cluster: str,
    zones: tuple[str, ...],
    layout: str | None,
    out: Path,
    master: str | None,
    every_s: float,
    once: bool,
) -> None:
    """Follow logs as they grow and rotate. Alerts go to OUT/alerts.jsonl, a revision whenever an outage reads anew.

    Ended and started again it goes on where it was. Ctrl-C ends it.
    """
    from sparkjobs.spark.session import session_for  # noqa: PLC0415

    spark = session_for(master)
    from sparkjobs.spark.stream import Stream  # noqa: PLC0415

    watched = Stream(spark, out, cluster, zones_of(zones), outages_in, layout)
    shown = len(watched.alerts.read_text(encoding="utf-8").splitlines()) if watched.alerts.exists() else 0
    while True:
        try:
            if watched.spool.advance(find_logs(named)) or once:
                watched.run_once()
        except NoLogsError:
            if once:
                raise
        for line in _new_alerts(watched.alerts, shown):
            click.echo(line)
            shown += 1
        if once:
            return
        time.sleep(every_s)


def _new_alerts(path: Path, shown: int) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()[shown:] if path.exists() else []
