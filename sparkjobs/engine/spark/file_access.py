"""Files as Spark and Hadoop open them: paths, logs that lie elsewhere, and their survey as a job.

`RemoteFiles` lists and opens logs that Spark can read and Python cannot (HDFS, object stores, any scheme that the
cluster knows) through Hadoop's file systems, in the driver's JVM. A file opened here is only surveyed (hashed and
sniffed); workers read its lines.

Spark goes by names: some characters are patterns to it, some files it passes over, and it decompresses by the name's
ending. So a name is passed to it literally. Where Spark cannot read a file of that name, or would read another content
than the survey did, it gets a plain copy.

Workers survey files as a job. They get a file that only Hadoop opens as a whole, so only a small one; the driver
surveys a larger one as a stream.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkjobs.input.files import LOG_NAMES, SCHEME, NoLogsError, open_content
from sparkjobs.tables.silver import BronzeFile

_READ_BYTES: Final = 1 << 20


class RemoteFiles:
    """The file systems of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def find(self, name: str) -> list[str]:
        """Files below a folder, or those that a glob matches."""
        path = self._jvm.org.apache.hadoop.fs.Path(name)
        try:
            files = path.getFileSystem(self._conf)
            found = files.globStatus(path) or []
            inside = [one for status in found for one in self._inside(files, status)]
        except Py4JJavaError as error:
            raise NoLogsError(f"{name} cannot be listed: {error.java_exception.getMessage()}") from None
        if not inside:
            raise NoLogsError(f"no log at {name}")
        return sorted(inside)

    def _inside(self, files: Any, status: Any) -> list[str]:
        if not status.isDirectory():
            return [str(status.getPath().toString())]
        found, listed = [], files.listFiles(status.getPath(), True)
        while listed.hasNext():
            path = listed.next().getPath()
            if LOG_NAMES.match(path.getName()):
                found.append(str(path.toString()))
        return found

    def size_bytes(self, name: str) -> int | None:
        """As it lies there; none where it does not say."""
        path = self._jvm.org.apache.hadoop.fs.Path(name)
        try:
            return int(path.getFileSystem(self._conf).getFileStatus(path).getLen())
        except (Py4JJavaError, PySparkException):
            return None

    def open(self, name: str) -> IO[bytes]:
        """Returns the content, not compressed. Raises OSError as a local file would."""
        path = self._jvm.org.apache.hadoop.fs.Path(name)
        try:
            stream = path.getFileSystem(self._conf).open(path)
        except Py4JJavaError as error:
            missing = "FileNotFoundException" in str(error.java_exception.getClass().getName())
            kind = FileNotFoundError if missing else OSError
            raise kind(str(error.java_exception.getMessage())) from None
        except PySparkException as error:  # Hadoop does not take the name
            raise OSError(str(error)) from None
        content = io.BufferedReader(_JvmStream(stream), _READ_BYTES)
        is_gzip = content.peek(2)[:2] == b"\x1f\x8b"
        return cast(IO[bytes], gzip.GzipFile(fileobj=content)) if is_gzip else content


class _JvmStream(io.RawIOBase):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = bytes(self._stream.readNBytes(min(len(buffer), _READ_BYTES)))
        except Py4JJavaError as error:
            raise OSError(str(error.java_exception.getMessage())) from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


_PATTERN: Final = re.compile(r"[{}\[\]*?\\]")
#: Spark never lists such a file
_PASSED_OVER: Final = re.compile(r"[_.].*|.*\._COPYING_", re.DOTALL)


def whole(path: str) -> str:
    """With its scheme, which says that it is a local file's where the cluster's own file system is another."""
    return path if SCHEME.match(path) else f"file:{Path(path).resolve()}"


def literal(path: str) -> str:
    """Returns the pattern for which Spark reads exactly this path."""
    return _PATTERN.sub(r"\\\g<0>", path)


def uri_of(spark: SparkSession, path: str) -> str:
    """As Spark names it in `_metadata.file_path`."""
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.org.apache.hadoop.fs.Path(whole(path)).toUri().toString())


def as_spark_reads(spark: SparkSession, files: Iterable[BronzeFile], copies: Path) -> list[BronzeFile]:
    """Returns those that are there, each under a path that Spark reads as it was surveyed; plain copies go to
    `copies`."""
    remote, unpacks = RemoteFiles(spark), _unpacks(spark)
    found = []
    for file in files:
        path = file.paths[0]
        is_elsewhere = SCHEME.match(path) is not None
        if file.status != "read" or not (is_elsewhere or Path(path).exists()):  # only Spark can see a file elsewhere
            continue
        name, read = whole(path).rpartition("/")[2], path
        if not is_listed(whole(path)) or unpacks(name) != (".gz" if file.is_gzip else None):
            open_file = remote.open if is_elsewhere else open_content
            copy = _plain_copy(path, open_file, copies / f"{file.file_id}.log")
            if copy is None:
                continue
            read = str(copy)
        found.append(msgspec.structs.replace(file, paths=(read,)))
    return found


def is_listed(path: str) -> bool:
    """Hadoop cannot read a name with a colon, nor look for a pattern below one."""
    name = path.rpartition("/")[2]
    has_colon = ":" in SCHEME.sub("", path, count=1)
    return not (_PASSED_OVER.fullmatch(name) or ":" in name or (has_colon and _PATTERN.search(path)))


def _unpacks(spark: SparkSession) -> Callable[[str], str | None]:
    """By which ending Spark would unpack a file of that name, if by any."""
    jvm: Any = spark.sparkContext._jvm
    jsc: Any = spark.sparkContext._jsc
    factory = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(jsc.hadoopConfiguration())
    known: dict[str, str | None] = {}

    def ending_of(name: str) -> str | None:
        ending = Path(name).suffix
        if ending not in known:
            codec = factory.getCodec(jvm.org.apache.hadoop.fs.Path(f"name{ending}"))
            known[ending] = None if codec is None else str(codec.getDefaultExtension())
        return known[ending]

    return ending_of


def _plain_copy(path: str, open_file: Callable[[str], IO[bytes]], target: Path) -> Path | None:
    """`None` where the file has gone, or was cut short, since it was surveyed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open_file(path) as content, target.open("wb") as copy:
            shutil.copyfileobj(content, copy, 1 << 20)
    except (OSError, EOFError, zlib.error):
        target.unlink(missing_ok=True)
        return None
    return target


#: of a file as it lies there
_WHOLE_BYTES: Final = 32 << 20


class Survey(Protocol):
    """`sparkjobs.input.files.survey`, told of all but the files."""

    def __call__(
        self, paths: Iterable[str], *, open_file: Callable[[str], IO[bytes]] = open_content
    ) -> list[BronzeFile]: ...


def surveyed_here(spark: SparkSession, paths: Sequence[str], survey: Survey) -> list[BronzeFile]:
    """Returns the survey of files that the workers see as well, in any working folder."""
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
