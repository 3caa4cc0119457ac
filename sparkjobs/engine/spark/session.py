"""One SparkSession, set up for these jobs: UTC, few shuffles, splits that suit logs, no connection to the outside.

With a `master` of a cluster the jobs run there. Workers need msgspec, numpy, pandas and pyarrow, and are sent this
package (by spark-submit with `--py-files` and the wheel). Settings given to spark-submit win.

Spark starts faster with a class cache: its ten thousand classes in a file, as Java has them in memory. `klamm logs
warmup` makes the file once on a machine. Java uses it only with the same Java and the same jars, and otherwise ignores
it, so nothing may depend on it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Final
from zipfile import ZipFile

from sparkjobs.input.files import BLOCK_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Java's messages about classes that it cannot keep, and about a cache of another Java, would stand amid the answers
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
#: for Java to write it
_WRITTEN_S: Final = 120


class NotCachedError(Exception):
    """Java did not keep them."""


def cache_path() -> Path:
    """Returns where it is, or would be."""
    try:
        release = version("pyspark")
    except PackageNotFoundError:
        release = "none"
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never raises
    return Path(folder) / "klamm" / f"spark-{release}.jsa"


def options_to_use() -> str:
    """Of Java, where there is one."""
    return f'"-XX:SharedArchiveFile={path}" {_SILENT}' if (path := cache_path()).is_file() else ""


def options_to_make(made: Path) -> str:
    return f'"-XX:ArchiveClassesAtExit={made}" {_SILENT}'


def make_class_cache(run: Callable[[str], SparkSession]) -> Path:
    """Make the class cache. In a Java with these options, `run` does the work that is frequent later."""
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
    java.stdin.close()  # the end of its input tells it to end
    java.wait(_WRITTEN_S)


#: the libraries that the jobs rest on
REQUIRED: Final = {
    "spark.sql.session.timeZone": "UTC",
    # files are read in blocks of just this size, however many cores there are: so lines know their numbers
    "spark.sql.files.maxPartitionBytes": f"{BLOCK_BYTES}b",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.openCostInBytes": "1",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}
JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
#: a heap that stays as small as its content, and grows up to its limit only on need: by default Java takes all the
#: memory it may before it collects garbage. A query whose thread is gone would never end. Most work is Python's: Java's
#: second compiler takes longer to compile than its code would save
JAVA: Final = (
    "-XX:+UseSerialGC -Xmn96m -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=15 -XX:ReservedCodeCacheSize=128m "
    "-XX:+ExitOnOutOfMemoryError -XX:TieredStopAtLevel=1"
)
#: settings that suit the jobs; settings given to spark-submit win
PREFERRED: Final = {
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.codegen.wholeStage.cacheMaxEntries": "200",
    "spark.ui.enabled": "false",
    # without the web page the history of queries is not read, and plans of wide tables are long texts
    "spark.sql.ui.retainedExecutions": "2",
    "spark.sql.maxPlanStringLength": "1000",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # of the heap for sorted, joined and kept rows; rows beyond it go to files
    "spark.memory.fraction": "0.3",
    # what each table takes at least that a plan joins with, however small it is; by itself an eightieth of the heap
    "spark.buffer.pageSize": "1m",
    # a batch ends by its rows; to ask every row anew how large the batch has become takes a quarter of the time
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
#: on one machine, besides; a cluster has more cores, and Spark puts small partitions together by itself
OF_ONE_MACHINE: Final = {"spark.sql.shuffle.partitions": "4"}
#: of a task whose worker died; on one machine Spark by itself gives up at once
_ATTEMPTS: Final = 4
LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


class NoSparkError(Exception):
    """Spark cannot run; the message says which part is missing."""


def session_for(master: str | None = None, settings: dict[str, str] | None = None) -> SparkSession:
    """Returns the running session, or a new one."""
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415
        from pyspark.errors import PySparkException  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ModuleNotFoundError:
        raise NoSparkError("Spark is not installed (pip install 'klamm[spark]')") from None
    if not is_submitted() and not _has_java():
        raise NoSparkError("Spark needs Java 17 or later, and neither JAVA_HOME nor PATH names one")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # spark-submit sends a wheel to the workers, but by itself Spark lets them import only from files with these endings
    SparkContext.PACKAGE_EXTENSIONS = {*SparkContext.PACKAGE_EXTENSIONS, ".whl"}
    builder = SparkSession.builder.appName("klamm")
    if master is not None or not is_submitted():
        builder = builder.master(master or f"local[{os.cpu_count() or 2},{_ATTEMPTS}]")
    try:
        told = dict[str, str]()
        if is_submitted():
            SparkContext._ensure_initialized()  # the JVM that spark-submit started knows
            told = dict(SparkConf().getAll())
        for name, value in {**settings_for(master, told), **(settings or {})}.items():
            builder = builder.config(name, value)
        with _quiet_start(is_new=SparkContext._active_spark_context is None and not is_submitted()):
            session: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise NoSparkError(f"Spark did not start: {error}") from error
    session.sparkContext.setLogLevel("ERROR")
    if master is not None and not master.startswith("local") and not is_submitted():
        session.sparkContext.addPyFile(_packed())
    return session


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None if home is None else (Path(home) / "bin" / "java").exists()


@contextmanager
def _quiet_start(*, is_new: bool) -> Iterator[None]:
    """Java's messages while it starts are the same on every machine, so they appear only where the start fails. Its
    later messages go on to standard error."""
    if not is_new:
        yield
        return
    sys.stderr.flush()
    (reader, writer), own = os.pipe(), os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    has_started, kept = threading.Event(), list[bytes]()

    def pass_on() -> None:
        with os.fdopen(reader, "rb") as said:
            for line in said:
                if has_started.is_set():
                    os.write(own, line)
                else:
                    kept.append(line)

    threading.Thread(target=pass_on, daemon=True).start()
    try:
        yield
        has_started.set()
    finally:
        os.dup2(own, 2)
        if not has_started.is_set():
            has_started.set()
            os.write(own, b"".join(kept))


def settings_for(master: str | None, told: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings. `told`: those that spark-submit has set."""
    where = master or told.get("spark.master", "local")
    preferred = PREFERRED | (OF_ONE_MACHINE if where.startswith("local") else {})
    preferred |= {JAVA_OPTIONS: f"{JAVA} {options_to_use()}".rstrip()}
    return {name: told.get(name, value) for name, value in preferred.items()} | REQUIRED | _reachable(master)


@cache
def _packed() -> str:
    """This package as workers take it; it is there as long as this process."""
    package, folder = Path(__file__).parents[2], mkdtemp(prefix="klamm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    name = f"{folder}/{package.name}.zip"
    with ZipFile(name, "w", strict_timestamps=False) as packed:
        for module in sorted(package.rglob("*.py")):
            packed.write(module, module.relative_to(package.parent))
    return name


def is_submitted() -> bool:
    """Returns whether spark-submit started this process, and so chose the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _reachable(master: str | None) -> dict[str, str]:
    """A driver of a cluster elsewhere must be found by its workers: there Spark chooses the address."""
    if master is None and is_submitted():
        return {}
    is_here = master is None or master.startswith("local") or "127.0.0.1" in master
    return LOOPBACK if is_here else {}
