"""The survey as a job: which contents there are, and what they are, is found out by the workers.

What only Hadoop opens comes to them whole, and so only files that are not large; a larger one is surveyed as a stream,
by this process.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import IO, Any, Final, Protocol, cast

import pyarrow as pa
from pyspark.sql import SparkSession

from sparkjobs.engine.spark.paths import is_listed, literal
from sparkjobs.engine.spark.remote import RemoteFiles
from sparkjobs.input.files import open_content
from sparkjobs.tables.silver import BronzeFile

#: of a file as it lies there
_WHOLE_BYTES: Final = 32 << 20


class Survey(Protocol):
    """`sparkjobs.input.files.survey`, told of all but the files."""

    def __call__(
        self, paths: Iterable[str], *, open_file: Callable[[str], IO[bytes]] = open_content
    ) -> list[BronzeFile]: ...


def surveyed_here(spark: SparkSession, paths: Sequence[str], survey: Survey) -> list[BronzeFile]:
    """Of files that the workers see as well, in whatever folder they work."""
    context = spark.sparkContext
    look = partial(_surveyed_below, survey, os.getcwd())  # noqa: PTH109 - as text
    return list(
        context.parallelize(paths, min(len(paths), 4 * context.defaultParallelism) or 1).flatMap(look).collect()
    )


def _surveyed_below(survey: Survey, folder: str, path: str) -> list[BronzeFile]:
    return survey([path], open_file=partial(_open_below, folder))


def _open_below(folder: str, path: str) -> IO[bytes]:
    return open_content(os.path.join(folder, path))  # noqa: PTH118


def surveyed_there(spark: SparkSession, paths: Sequence[str], survey: Survey) -> list[BronzeFile]:
    """Of files that only Hadoop opens."""
    remote = RemoteFiles(spark)
    small = [path for path in paths if is_listed(path) and (remote.size_bytes(path) or _WHOLE_BYTES) < _WHOLE_BYTES]
    found: list[BronzeFile] = []
    if small:
        contents = spark.read.format("binaryFile").load([literal(path) for path in small]).select("path", "content")
        rows = contents.mapInArrow(partial(_surveyed_in, survey), "files binary").collect()
        found = [file for row in rows for file in pickle.loads(row.files)]
    known = {path for file in found for path in file.paths}
    return [*found, *survey([path for path in paths if path not in known], open_file=remote.open)]


def _surveyed_in(survey: Survey, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for path, content in zip(*(batch.column(name) for name in ("path", "content")), strict=True):
            found = survey([path.as_py()], open_file=partial(_open_bytes, content.as_py()))
            yield pa.RecordBatch.from_pydict({"files": pa.array([pickle.dumps(found)], pa.binary())})


def _open_bytes(content: bytes, path: str) -> IO[bytes]:
    raw = io.BytesIO(content)
    return cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if content[:2] == b"\x1f\x8b" else raw
