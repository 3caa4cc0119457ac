"""Who concludes: Spark wherever it starts, and otherwise, or if that is asked for, processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from sparkjobs.commands.inputs import LogInputs
from sparkjobs.engine.executor import Executor
from sparkjobs.engine.local.answers import Answers
from sparkjobs.engine.local.workers import worker_count_for, workers_of
from sparkjobs.engine.spark.session import NoSparkError, is_submitted, session_for
from sparkjobs.rules.facts import Place
from sparkjobs.rules.slo import DEFAULT_TARGET
from sparkjobs.tables.gold import GOLD

if TYPE_CHECKING:
    from sparkjobs.engine.local.conclude import Concluded


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


def concluded(
    executor: Executor,
    inputs: LogInputs,
    target: float = DEFAULT_TARGET,
    only: Collection[str] = tuple(GOLD),
    places_in: Callable[[Answers], Collection[Place]] = lambda answers: (),
    on_bytes: Callable[[int], None] = lambda size: None,
) -> Concluded:
    """What follows from the logs."""
    try:
        from sparkjobs.engine.local.conclude import concluded_by  # noqa: PLC0415 - needs numpy
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"without {error.name} nothing is concluded from logs: pip install 'klamm[spark]'"
        ) from None
    return concluded_by(executor, inputs.files, target, only, places_in, on_bytes)
