"""Spark's classes, kept in a file as Java has them in memory: ten thousand need not be read and checked at each start.

The file is made once on a machine (`klamm logs warmup`) and holds what a report needs. Java takes it only with the
same Java and the same jars, and otherwise goes on as if it were not there, so nothing must ever rest on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: what Java says of classes that it cannot keep, and of a file that is another Java's, would stand amid the answers
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
#: for Java to write it
_WRITTEN_S: Final = 120


class NotCachedError(Exception):
    """Java did not keep them."""


def cache_path() -> Path:
    """Where it is, or would be."""
    try:
        release = version("pyspark")
    except PackageNotFoundError:
        release = "none"
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - raises for nobody
    return Path(folder) / "klamm" / f"spark-{release}.jsa"


def options_to_use() -> str:
    """Of Java, where there is one."""
    return f'"-XX:SharedArchiveFile={path}" {_SILENT}' if (path := cache_path()).is_file() else ""


def options_to_make(made: Path) -> str:
    return f'"-XX:ArchiveClassesAtExit={made}" {_SILENT}'


def make(run: Callable[[str], SparkSession]) -> Path:
    """`run` does, in a Java with these options, what will be done often."""
    path = cache_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="making-", dir=path.parent) as folder:
            made = Path(folder) / path.name
            _end(run(options_to_make(made)))
            made.replace(path)  # whole, or not at all: a Java that starts meanwhile must not take half of it
        for other in path.parent.glob("spark-*.jsa"):
            if other != path:
                other.unlink(missing_ok=True)  # of a release that is no longer here
    except (OSError, TimeoutExpired) as error:
        raise NotCachedError(f"Java kept no classes in {path.parent}: {error}") from error
    return path


def _end(spark: SparkSession) -> None:
    """And wait for its Java, which writes as it ends."""
    java: Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    assert java.stdin is not None
    java.stdin.close()  # by which it knows that nobody needs it any more
    java.wait(_WRITTEN_S)
