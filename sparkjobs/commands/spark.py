"""The commands that only Spark serves: `klamm logs stream` and `klamm logs warmup`.

`stream` watches a folder of growing logs. `warmup` runs once on a machine, and Spark starts faster from then on.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from sparkjobs.commands.cli import input_options
from sparkjobs.commands.inputs import inputs_of, zones_of
from sparkjobs.commands.reports import answered
from sparkjobs.commands.shared import checked_layout, example, write_tables
from sparkjobs.engine.spark import session
from sparkjobs.engine.spark.session import JAVA, JAVA_OPTIONS, NoSparkError, is_submitted, session_for
from sparkjobs.input.files import NoLogsError, find_logs, survey
from sparkjobs.rules.slo import DEFAULT_TARGET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(logs: click.Group, top: click.Group) -> None:
    logs.add_command(stream)
    logs.add_command(warmup)


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


#: an outage and a request, so that every question finds something to do
_LOG: Final = """\
[2026-11-18 07:00:00,000] INFO [Broker id=2] Follower t-0 starts at leader epoch 0 from offset 0 with partition \
epoch 0 and high watermark 0. Current leader is 1. Previous leader None and previous leader epoch was -1. \
(state.change.logger)
[2026-11-18 07:00:01,000] TRACE [Controller id=2 epoch=1] Changed partition t-0 state from OnlinePartition to \
OfflinePartition (state.change.logger)
[2026-11-18 07:00:02,000] INFO [Controller id=2 epoch=1] Changed partition t-0 from OfflinePartition to \
OnlinePartition with state LeaderAndIsr(leader=2, leaderEpoch=1, isr=List(2), \
leaderRecoveryState=RECOVERED, partitionEpoch=1) (state.change.logger)
"""


@click.command(short_help="Once on a machine: lets Spark start faster.", epilog=example("klamm logs warmup"))
def warmup() -> None:
    """Keep Spark's classes as Java has them in memory, in a file of 130 MB in your cache folder.

    Each command that starts Spark here is two seconds faster from then on. Nothing rests on the file; delete it as you
    like. After another release of pyspark or Java, warm up anew.
    """
    if is_submitted():
        raise click.UsageError("warmup starts a Java of its own; run it without spark-submit")
    try:
        path = session.make_class_cache(_report)
    except session.NotCachedError as error:
        raise NoSparkError(str(error)) from error
    click.echo(f"{path}, {path.stat().st_size / 1e6:.0f} MB: Spark starts with it from now on")


def _report(java_options: str) -> SparkSession:
    spark = session_for("local[2]", {JAVA_OPTIONS: f"{JAVA} {java_options}"})
    with TemporaryDirectory(prefix="klamm-") as folder:
        (Path(folder) / "state-change.log").write_text(_LOG, encoding="utf-8")
        answered(inputs_of([folder], "kafka", (), None), "spark", "local[2]", DEFAULT_TARGET, Path(folder) / "out")
    return spark
