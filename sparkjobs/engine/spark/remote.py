"""Logs that lie where Spark reads and Python does not: HDFS, object stores, any scheme that the cluster knows.

Listing and opening go through Hadoop's file systems, in the driver's JVM. What is opened here is only surveyed (hashed
and sniffed); the lines are read by the workers.
"""

from __future__ import annotations

import gzip
import io
from typing import IO, Any, Final, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkjobs.input.files import LOG_NAMES, NoLogsError

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
        """The content, not compressed. Raises OSError as a local file would."""
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
