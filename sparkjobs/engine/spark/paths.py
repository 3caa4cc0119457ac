"""Paths as Spark takes them. It goes by names: some characters are patterns to it, some files it passes over, and what
is called as if it were compressed it unpacks, whatever is in it.

So a name is told to it literally; and where it cannot read a file of that name, or would read another content than the
survey did, it is given a plain copy.
"""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from pyspark.sql import SparkSession

from sparkjobs.engine.spark.remote import RemoteFiles
from sparkjobs.input.files import SCHEME, open_content
from sparkjobs.tables.silver import BronzeFile

_PATTERN: Final = re.compile(r"[{}\[\]*?\\]")
#: Spark never lists such a file
_PASSED_OVER: Final = re.compile(r"[_.].*|.*\._COPYING_", re.DOTALL)


def whole(path: str) -> str:
    """With its scheme, which says that it is a local file's where the cluster's own file system is another."""
    return path if SCHEME.match(path) else f"file:{Path(path).resolve()}"


def literal(path: str) -> str:
    """What to ask Spark for, to be given exactly this path."""
    return _PATTERN.sub(r"\\\g<0>", path)


def uri_of(spark: SparkSession, path: str) -> str:
    """As Spark names it in `_metadata.file_path`."""
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.org.apache.hadoop.fs.Path(whole(path)).toUri().toString())


def as_spark_reads(spark: SparkSession, files: Iterable[BronzeFile], copies: Path) -> list[BronzeFile]:
    """Those that are there, each under a path that Spark reads as it was surveyed; plain copies go to `copies`."""
    remote, unpacks = RemoteFiles(spark), _unpacks(spark)
    found = []
    for file in files:
        path = file.paths[0]
        is_elsewhere = SCHEME.match(path) is not None
        if file.status != "read" or not (is_elsewhere or Path(path).exists()):  # what lies elsewhere only Spark knows
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
