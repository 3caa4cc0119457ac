"""Lines parsed once, into a table of the typed columns. The workers write its files themselves: through Spark every
line would go back into the JVM, column by column, only to be written from there.

A file is there under its name when all of it is; a task that is tried again writes the same file again.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjobs.engine.spark.frames import frame_of
from sparkjobs.engine.spark.lines import (
    SCHEMA,
    STAGED,
    Bases,
    bases_of,
    read_batches,
    staged_schema,
)
from sparkjobs.engine.spark.paths import (
    as_spark_reads,
    literal,
    uri_of,
    whole,
)
from sparkjobs.engine.spark.session import NoSparkError
from sparkjobs.tables.silver import BronzeFile

#: of so many lines columns are put together: fewer are larger, more take more memory
_ROW_GROUP: Final = 60_000


def stage(spark: SparkSession, files: Sequence[BronzeFile], staging: Path | str) -> DataFrame:
    """The lines of those files that can be read."""
    readable = as_spark_reads(spark, files, Path(staging) / "plain")
    if not readable:
        return frame_of(spark, [], STAGED)
    target = Path(staging) / "lines"
    stage_into(spark, readable, target)
    return staged_in(spark, [target])


def staged_in(spark: SparkSession, targets: Iterable[Path]) -> DataFrame:
    """What was staged there."""
    paths = [literal(whole(str(target))) for target in targets]
    return spark.read.schema(staged_schema()).parquet(*paths) if paths else frame_of(spark, [], STAGED)


def stage_into(
    spark: SparkSession, files: Sequence[BronzeFile], target: Path, above: Mapping[str, int] | None = None
) -> None:
    """Parse each line, in place of what is there. `above`: how many lines stand before a file's first, where it is a
    piece of a log. Raises NoSparkError where it is not to be seen here: each worker has such a folder for itself."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    known, bases, folder = list(files), bases_of(files, above or {}), str(target)
    lines = raw_lines(spark, [file.paths[0] for file in files])
    written = lines.mapInArrow(lambda batches: _write(batches, known, bases, folder), "name string").collect()
    require_here(target, [row.name for row in written])


def require_here(target: Path, names: Iterable[str]) -> None:
    """Raises NoSparkError where something of it is not."""
    if not all((target / name).exists() for name in names):
        raise NoSparkError(
            f"the cluster's workers wrote to {target}, and nothing of it is here: --out has to name a folder that they "
            "and this process share (for `klamm logs slo`, TMPDIR does)"
        )


def raw_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Each line with the place of its file among the paths, and of its block."""
    places = [(uri_of(spark, path), number) for number, path in enumerate(paths)]
    lines = spark.read.text([literal(whole(path)) for path in paths], lineSep="\n").select(
        F.col("value").cast("binary"),
        F.col("_metadata.file_path").alias("path"),
        F.col("_metadata.file_block_start").alias("block_start"),
    )
    named = frame_of(spark, places, {"path": "string", "file_no": "int"})
    return lines.join(F.broadcast(named), "path").select("value", "file_no", "block_start")


def _write(batches: Iterable[Any], files: Sequence[BronzeFile], bases: Bases, folder: str) -> Iterator[Any]:
    """What a worker does with its share."""
    context = TaskContext.get()
    assert context is not None
    name = f"part-{context.partitionId():06}.parquet"
    unfinished = Path(folder) / f"_{name}-{context.taskAttemptId()}"
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    waiting: list[Any] = []
    with pq.ParquetWriter(unfinished, SCHEMA, compression="zstd") as writer:
        for batch in read_batches(batches, files, bases):
            waiting.append(batch)
            if sum(map(len, waiting)) >= _ROW_GROUP:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    unfinished.replace(unfinished.with_name(name))
    _give_back_memory()
    yield pa.RecordBatch.from_pydict({"name": [name]})


def _give_back_memory() -> None:
    """A worker waits a minute for its next task, and what comes after the staging needs the room that it took."""
    pa.default_memory_pool().release_unused()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # the C library of GNU, not every other
        libc.malloc_trim(0)
