"""`klamm logs warmup`: once on a machine, so that Spark starts faster ever after."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from sparkjobs.commands.answering import answered
from sparkjobs.commands.inputs import inputs_of
from sparkjobs.commands.shared import example
from sparkjobs.engine.spark import class_cache
from sparkjobs.engine.spark.session import (
    JAVA,
    JAVA_OPTIONS,
    NoSparkError,
    is_submitted,
    session_for,
)
from sparkjobs.rules.slo import DEFAULT_TARGET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def register(logs: click.Group, top: click.Group) -> None:
    logs.add_command(warmup)


@click.command(short_help="Once on a machine: lets Spark start faster.", epilog=example("klamm logs warmup"))
def warmup() -> None:
    """Keep Spark's classes as Java has them in memory, in a file of 130 MB in your cache folder.

    Each command that starts Spark here is two seconds faster from then on. Nothing rests on the file; delete it as you
    like. After another release of pyspark or Java, warm up anew.
    """
    if is_submitted():
        raise click.UsageError("warmup starts a Java of its own; run it without spark-submit")
    try:
        path = class_cache.make(_report)
    except class_cache.NotCachedError as error:
        raise NoSparkError(str(error)) from error
    click.echo(f"{path}, {path.stat().st_size / 1e6:.0f} MB: Spark starts with it from now on")


def _report(java_options: str) -> SparkSession:
    spark = session_for("local[2]", {JAVA_OPTIONS: f"{JAVA} {java_options}"})
    with TemporaryDirectory(prefix="klamm-") as folder:
        (Path(folder) / "state-change.log").write_text(_LOG, encoding="utf-8")
        answered(inputs_of([folder], "kafka", (), None), "spark", "local[2]", DEFAULT_TARGET, Path(folder) / "out")
    return spark
