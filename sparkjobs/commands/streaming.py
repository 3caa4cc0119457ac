"""`klamm logs stream`: a folder of growing logs, watched."""

from __future__ import annotations

import time
from pathlib import Path

import click

from sparkjobs.commands.cli import input_options
from sparkjobs.commands.inputs import zones_of
from sparkjobs.commands.shared import checked_layout, example, write_tables
from sparkjobs.input.files import NoLogsError, find_logs, survey


def register(logs: click.Group, top: click.Group) -> None:
    logs.add_command(stream)


@click.command(
    short_help="Watch growing logs; tell outages as they begin and end.",
    epilog=example("klamm logs stream --out alerts --once"),
)
@input_options
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Checkpoint and alerts.")
@click.option("--master", metavar="URL", help="A Spark cluster. Default: this machine.")
@click.option("--every", "every_s", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Take what is there and end; to be continued by the next call.")
@click.option(
    "--end", is_flag=True, help="Nothing will be appended any more: take all, and write every table to OUT/gold."
)
def stream(
    named: tuple[str, ...],
    cluster: str,
    zones: tuple[str, ...],
    layout: str | None,
    out: Path,
    master: str | None,
    every_s: float,
    once: bool,
    end: bool,
) -> None:
    """Follow logs as they grow and rotate. Alerts go to OUT/alerts.jsonl, a revision whenever an outage reads anew.
    What all of it comes to stands in OUT/aggregates.json; `klamm up --aggregate` has it kept, and brokers serve it.

    Ended and started again it goes on where it was. Ctrl-C ends it. With --end the last revisions and the tables are
    those of `klamm logs analyze` over the same logs.
    """
    from sparkjobs.engine.spark.session import session_for  # noqa: PLC0415

    layout = checked_layout(layout)
    spark = session_for(master)
    from sparkjobs.engine.spark.stream import Stream  # noqa: PLC0415

    watched = Stream(spark, out, cluster, zones_of(zones), layout)
    shown = len(watched.alerts.read_text(encoding="utf-8").splitlines()) if watched.alerts.exists() else 0
    watched.resume()
    while True:
        try:
            if watched.spool.advance(find_logs(named), is_end=end) or once or end:
                watched.run_once()
            if end:
                files = survey(find_logs(named), cluster, zones_of(zones), layout=layout)
                write_tables(out / "gold", watched.finish(files))
        except NoLogsError:
            if once or end:
                raise
        watched.write_aggregates(time.time_ns() // 1_000_000)
        for line in _new_alerts(watched.alerts, shown):
            click.echo(line)
            shown += 1
        if once or end:
            return
        time.sleep(every_s)


def _new_alerts(path: Path, shown: int) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()[shown:] if path.exists() else []
