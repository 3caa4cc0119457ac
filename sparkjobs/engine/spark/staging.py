"""Lines read once, into tables of their typed columns. The workers write the files themselves: through Spark every line
would go into the JVM, column by column, only to be written from there."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sparkjobs.engine.executor import Divided, Executor
from sparkjobs.engine.local.digest import read_portions
from sparkjobs.engine.local.stretches import Stretch
from sparkjobs.engine.spark.columns import STAGED, EventColumns, write_whole
from sparkjobs.engine.spark.frames import frame_of
from sparkjobs.engine.spark.paths import literal, whole
from sparkjobs.engine.spark.session import NoSparkError
from sparkjobs.tables.silver import SilverQuarantine, columns_of


class Writing(NamedTuple):
    """A stretch that is to be written to a folder, under a name of its own."""

    stretch: Stretch
    folder: str
    name: str
    above: int = 0
    traces: Mapping[int, str] = {}

    def at(self, path: str) -> Writing:
        """A copy of the file lies there."""
        return self._replace(stretch=self.stretch.at(path))

    def reading(self, content: Iterable[bytes]) -> Writing:
        """With what is in the stretch."""
        return self._replace(stretch=self.stretch.reading(content))


def stage(executor: Executor, tasks: Sequence[Writing], target: Path) -> None:
    """In place of what is there. Raises NoSparkError where what was written is not to be seen here: each worker has
    such a folder for itself."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    told = executor.divide(written, tasks, {}).told
    require_here(target, [name for portions in told for names in portions for name in names])


def written(task: Writing) -> Iterator[Divided]:
    """Tells which files are there by now."""
    columns = partial(_columns, task)
    for number, (found, _, _) in enumerate(read_portions(task.stretch, columns)):
        names = [f"{table}/{task.name}-{number:04}.parquet" for table in ("events", "quarantine")]
        for name, table in zip(names, (found.events(), found.others()), strict=True):
            write_whole(table, Path(task.folder) / name)
        yield Divided(names, {})
    _give_back_memory()


def _columns(task: Writing, first_line: int) -> EventColumns:
    return EventColumns(task.stretch.file, task.above, task.traces)


def require_here(target: Path, names: Iterable[str]) -> None:
    """Raises NoSparkError where something of it is not."""
    if not all((target / name).exists() for name in names):
        raise NoSparkError(
            f"the cluster's workers wrote to {target}, and nothing of it is here: --out has to name a folder that they "
            "and this process share"
        )


def events_in(spark: SparkSession, targets: Iterable[Path]) -> DataFrame:
    """What was staged there."""
    return _table_in(spark, [target / "events" for target in targets], STAGED)


def quarantine_in(spark: SparkSession, targets: Iterable[Path]) -> DataFrame:
    return _table_in(spark, [target / "quarantine" for target in targets], columns_of(SilverQuarantine))


def _table_in(spark: SparkSession, folders: Sequence[Path], columns: Mapping[str, str]) -> DataFrame:
    paths = [literal(whole(str(folder))) for folder in folders if folder.exists()]
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return spark.read.schema(schema).parquet(*paths) if paths else frame_of(spark, [], columns)


def _give_back_memory() -> None:
    """A worker waits a minute for its next task, and what comes after the staging needs the room that it took."""
    pa.default_memory_pool().release_unused()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # the C library of GNU, not every other
        libc.malloc_trim(0)
