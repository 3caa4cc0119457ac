"""The Spark executor: tasks are partitions of an RDD, their parts go through one shuffle, and a share is a partition of
the shuffled RDD.

A job over some of these partitions reads no task again: Spark keeps the shuffled parts in files. Tasks are read by the
same functions as on one machine, in Python, from files that the workers see. A file that only Hadoop can read comes to
them line by line through Spark. Workers need msgspec, numpy, pyarrow and this package.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F

from sparkjobs.engine.local.executor import Divide, OnDone, Share, keep_freed_memory, nobody
from sparkjobs.engine.spark.file_access import as_spark_reads, literal, uri_of, whole
from sparkjobs.engine.spark.frames import frame_of
from sparkjobs.input.files import SCHEME
from sparkjobs.tables.silver import BronzeFile

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

#: the content whose parts make one share: a task holds about as much in memory at a time
_SHARE_BYTES: Final = 64_000_000
#: tasks that only look something up are put together, so many for each core
_TASKS_OF_A_CORE: Final = 4
#: a record of the shuffle: the place of a share; then the round, the task's number, the portion's number and the part
_Record = tuple[int, tuple[int, int, int, Any]]
#: the place of the results of tasks
_TOLD: Final = 0


class SparkExecutor:
    """`copies`: a folder that workers see as well, for files that Spark cannot read under their names."""

    def __init__(self, spark: SparkSession, copies: Path) -> None:
        self._spark, self._copies = spark, copies
        self._read_as = dict[str, str | None]()
        where = "one machine" if str(spark.sparkContext.master).startswith("local") else "a cluster"  # no host's name
        self.name = f"Spark {spark.version} on {where}"

    def shares_for(self, size_bytes: int) -> int:
        return max(self._spark.sparkContext.defaultParallelism, -(-size_bytes // _SHARE_BYTES))

    def spread(self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: OnDone = nobody) -> list[Any]:
        context = self._spark.sparkContext
        slices = min(len(tasks), _TASKS_OF_A_CORE * context.defaultParallelism) or 1
        found: list[Any] = context.parallelize(tasks, slices).map(function).collect()
        for number in range(len(tasks)):
            on_done(number)
        return found

    def divide(
        self, function: Divide, tasks: Sequence[Any], kinds: Mapping[str, int], on_done: OnDone = nobody
    ) -> SparkShares:
        return SparkShares(self, function, dict(enumerate(tasks)), kinds, on_done)

    def records(self, function: Divide, tasks: Mapping[int, Any], numbered: _Numbered) -> RDD[_Record]:
        """Returns the parts of the tasks, not shuffled yet."""
        elsewhere = {number: task for number, task in tasks.items() if SCHEME.match(self._path_of(task.stretch) or "")}
        here = [
            (number, _read_from(task, path))
            for number, task in tasks.items()
            if number not in elsewhere and (path := self._path_of(task.stretch)) is not None
        ]
        context = self._spark.sparkContext
        found = context.parallelize(here, len(here) or 1).flatMap(partial(_divided, function, numbered))
        if not elsewhere:
            return found
        return context.union([found, self._through_spark(function, elsewhere, numbered)])

    def _path_of(self, stretch: Any) -> str | None:
        """Under which name it is read; none where it has gone."""
        path: str = stretch.path
        if not SCHEME.match(path):
            return path
        if path not in self._read_as:
            file: BronzeFile = msgspec.structs.replace(stretch.file, paths=(path,), status="read")
            found = as_spark_reads(self._spark, [file], self._copies)
            self._read_as[path] = found[0].paths[0] if found else None
        return self._read_as[path]

    def _through_spark(self, function: Divide, tasks: Mapping[int, Any], numbered: _Numbered) -> RDD[_Record]:
        """Of stretches that are just the blocks in which Spark reads a file."""
        paths = sorted({task.stretch.path for task in tasks.values()})
        blocks = {
            (paths.index(task.stretch.path), task.stretch.start): (number, task) for number, task in tasks.items()
        }
        read = partial(_divided_in, function, numbered, blocks)
        lines = _raw_lines(self._spark, paths).mapInArrow(read, "place int, record binary")
        return lines.rdd.map(_unpickled)


#: of each kind the place of its first share
_Numbered = Mapping[str, int]


class SparkShares:
    """The divided tasks, in files of Spark's shuffle."""

    def __init__(
        self,
        executor: SparkExecutor,
        function: Divide,
        tasks: Mapping[int, Any],
        kinds: Mapping[str, int],
        on_done: OnDone,
    ) -> None:
        self._executor, self._function, self._kinds, self._size = executor, function, kinds, len(tasks)
        self._first, place = dict[str, int](), _TOLD + 1
        for kind, count in kinds.items():
            self._first[kind] = place
            place += count
        self._places, self._rounds = place, 0
        self._latest = dict[int, int]()  # of tasks that were divided anew, in which round
        self._records = self._shuffled(tasks)
        self._told: list[list[Any]] | None = None
        self._on_done = on_done

    def _shuffled(self, tasks: Mapping[int, Any]) -> RDD[_Record]:
        records = self._executor.records(self._function, tasks, self._first)
        in_round = records.mapValues(partial(_of_round, self._rounds))
        return in_round.partitionBy(self._places, _place_of)

    @property
    def told(self) -> list[list[Any]]:
        if self._told is None:
            self._told = [[] for _ in range(self._size)]
            for number, its in self._asked([_TOLD], _as_they_are, {_TOLD: None})[_TOLD]:
                self._told[number].append(its)
            for number in range(self._size):
                self._on_done(number)
        return self._told

    def replace(self, tasks: Mapping[int, Any]) -> None:
        self._rounds += 1
        self._latest |= dict.fromkeys(tasks, self._rounds)
        # both were shuffled alike, so Spark puts them together place by place and moves nothing
        self._records = self._records.context.union([self._records, self._shuffled(tasks)])
        assert self._records.getNumPartitions() == self._places
        self._told = None

    def ask(self, kind: str, function: Callable[[Share, Any], Any], given: Sequence[Any]) -> list[Any]:
        first = self._first[kind]
        places = range(first, first + self._kinds[kind])
        found = self._asked(places, function, dict(zip(places, given, strict=True)))
        return [found[place] for place in places]

    def ask_one(self, kind: str, number: int, function: Callable[[Share, Any], Any], given: Any) -> Any:
        place = self._first[kind] + number
        return self._asked([place], function, {place: given})[place]

    def _asked(
        self, places: Sequence[int], function: Callable[[Share, Any], Any], given: Mapping[int, Any]
    ) -> dict[int, Any]:
        answer = partial(_answered, function, given, self._latest)
        answers = self._records.mapPartitionsWithIndex(answer)
        return dict(self._records.context.runJob(answers, iter, list(places)))


def _raw_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Returns each line with the place of its file among the paths, and of its block."""
    places = [(uri_of(spark, path), number) for number, path in enumerate(paths)]
    lines = spark.read.text([literal(whole(path)) for path in paths], lineSep="\n").select(
        F.col("value").cast("binary"),
        F.col("_metadata.file_path").alias("path"),
        F.col("_metadata.file_block_start").alias("block_start"),
    )
    named = frame_of(spark, places, {"path": "string", "file_no": "int"})
    return lines.join(F.broadcast(named), "path").select("value", "file_no", "block_start")


def _read_from(task: Any, path: str) -> Any:
    return task if task.stretch.path == path else task.at(path)


def _divided(function: Divide, first: _Numbered, numbered: tuple[int, Any]) -> Iterator[_Record]:
    """The records of one task."""
    number, task = numbered
    keep_freed_once()
    gc.disable()  # as in the members of the local executor
    try:
        for portion, divided in enumerate(function(task)):
            yield _TOLD, (0, number, portion, divided.told)
            for (kind, share), part in divided.parts.items():
                yield first[kind] + share, (0, number, portion, part)
    finally:
        gc.enable()


def _divided_in(
    function: Divide, first: _Numbered, blocks: Mapping[tuple[int, int], tuple[int, Any]], batches: Iterable[Any]
) -> Iterator[Any]:
    """The same of lines that Spark reads, block after block."""
    for block, its in groupby(chain.from_iterable(map(_by_block, batches)), key=itemgetter(0)):
        if block not in blocks:
            continue  # it was not there when the files were surveyed
        number, task = blocks[block]
        stretch = task.stretch
        is_cut = stretch.end is None and not stretch.file.is_whole
        pieces = _pieces(map(itemgetter(1), its), is_cut=is_cut)
        for place, record in _divided(function, first, (number, task.reading(pieces))):
            columns = {"place": pa.array([place], pa.int32()), "record": pa.array([pickle.dumps(record)], pa.binary())}
            yield pa.RecordBatch.from_pydict(columns)


def _by_block(batch: Any) -> Iterator[tuple[tuple[int, int], Any]]:
    """Lines that stand together in a block."""
    files, starts = (batch.column(name).to_pylist() for name in ("file_no", "block_start"))
    place = 0
    for block, alike in groupby(zip(files, starts, strict=True)):
        count = sum(1 for _ in alike)
        yield block, batch.column("value").slice(place, count)
        place += count


def _pieces(values: Iterable[Any], *, is_cut: bool) -> Iterator[bytes]:
    """Whole lines; `is_cut`: no newline ends the last."""
    before: bytes | None = None
    for some in values:
        if before is not None:
            yield before
        before = b"\n".join([*some.to_pylist(), b""])
    if before is not None:
        yield before.removesuffix(b"\n") if is_cut else before


def _unpickled(row: Any) -> _Record:
    return row.place, pickle.loads(row.record)


def _of_round(number: int, record: tuple[int, int, int, Any]) -> tuple[int, int, int, Any]:
    return (number, *record[1:])


def _place_of(place: int) -> int:
    """One function, by which Spark knows that two shuffles are alike."""
    return place


def _answered(
    function: Callable[[Share, Any], Any],
    given: Mapping[int, Any],
    latest: Mapping[int, int],
    place: int,
    records: Iterable[_Record],
) -> Iterator[tuple[int, Any]]:
    keep_freed_once()
    gc.disable()
    try:
        parts = [record[1:] for _, record in records if record[0] == latest.get(record[1], 0)]
        parts.sort(key=itemgetter(0, 1))
        yield place, function(Share([(number, part) for number, _, part in parts]), given[place])
    finally:
        gc.enable()


def _as_they_are(share: Share, given: None) -> list[tuple[int, Any]]:
    return share.parts


@cache
def keep_freed_once() -> None:
    """In each worker."""
    keep_freed_memory()
