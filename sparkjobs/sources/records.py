"""`zookeeper_txnlog` and `kraft_metadata`: the records that a cluster itself wrote, a row for each operation or record.

Option: `path` (a file, a folder or a glob). Of several servers' files each has its rows, as each wrote them: `klamm
report` says which of them the cluster agreed on. A record with passwords or keys has its name and no fields.

A stream goes on behind the last whole transaction or batch of each file, by its path: neither is ever renamed while it
is written.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparkjobs.records import kraft_files, zookeeper_files
from sparkjobs.records.discovery import Source, find_records
from sparkjobs.records.kraft_files import SECRET
from sparkjobs.tables.arrow import arrow_type

#: rows that are handed on together
_ROWS: Final = 10_000


class _Format(msgspec.Struct, frozen=True):
    """How one kind of file is read. It has no state: tasks have a copy."""

    kind: str
    columns: dict[str, str]

    def rows(self, log: BinaryIO, start: int, end: int | None, path: str) -> Iterator[tuple[Any, ...]]:
        """Yields the rows between two ends of whole transactions or batches."""
        if self.kind == "zookeeper log":
            for one in zookeeper_files.operations_between(log, start, end):
                known = (getattr(one, name) for name in list(self.columns)[:-2])
                yield (*known, list(one.paths), path)
            return
        log.seek(start)
        for batch in kraft_files.batches_in(log):
            if end is not None and start + batch.position >= end:
                return
            for record in batch.records:
                message = record.message
                is_shown = message is not None and message.name not in SECRET
                fields = msgspec.json.encode(message.fields).decode() if message is not None and is_shown else None
                named = (None, None) if message is None else (message.type, message.version)
                place = (record.offset, batch.epoch, batch.at_ms, batch.is_control)
                yield (*place, *named, fields, record.unknown, path)

    def end_of_whole(self, log: BinaryIO, start: int) -> int:
        """Behind the last transaction or batch that is whole."""
        if self.kind == "zookeeper log":
            return zookeeper_files.end_of_whole(log, start)
        log.seek(start)
        end = start
        for batch in kraft_files.batches_in(log):
            end = start + batch.position + batch.size_bytes
        return end

    def files(self, path: str) -> list[Source]:
        named = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else [path]  # noqa: PTH207
        found = find_records(named)
        # Kafka renames a segment once more before it deletes it: by then its records were read
        return [one for one in found if one.kind == self.kind and not one.path.endswith(".deleted")]


ZOOKEEPER: Final = _Format(
    "zookeeper log",
    {
        "zxid": "bigint",
        "session": "bigint",
        "at_ms": "bigint",
        "kind": "string",
        "path": "string",
        "data": "binary",
        "version": "int",
        "ephemeral_owner": "bigint",
        "code": "int",
        "timeout_ms": "int",
        "is_asked_for": "boolean",
        "paths": "array<string>",
        "file": "string",
    },
)
KRAFT: Final = _Format(
    "kraft log",
    {
        "offset": "bigint",
        "epoch": "int",
        "at_ms": "bigint",
        "is_control": "boolean",
        "type": "string",
        "version": "int",
        "fields": "string",
        "unknown": "string",
        "file": "string",
    },
)


class _Records(DataSource):
    format: _Format

    def schema(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in self.format.columns.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.format, self._path)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - as Spark calls it
        return _StreamReader(self.format, self._path)

    @property
    def _path(self) -> str:
        path = self.options.get("path")
        if not path:
            raise ValueError("name a file, a folder or a glob: load(PATH)")
        return str(path)


class ZooKeeperLog(_Records):
    """ZooKeeper's transaction logs (`log.*`), of 3.4 to 3.9."""

    format = ZOOKEEPER

    @classmethod
    def name(cls) -> str:
        return "zookeeper_txnlog"


class KraftMetadata(_Records):
    """KRaft's metadata log (`__cluster_metadata-0`), of 3.3 to 4.3."""

    format = KRAFT

    @classmethod
    def name(cls) -> str:
        return "kraft_metadata"


@dataclass
class _Span(InputPartition):
    """Part of one file; to its end, where none is said."""

    source: Source
    start: int = 0
    end: int | None = None


class _Reader(DataSourceReader):
    """A file is a task."""

    def __init__(self, format_: _Format, path: str) -> None:
        self._format, self._path = format_, path

    def partitions(self) -> Sequence[InputPartition]:
        return [_Span(one) for one in self._format.files(self._path)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Span)
        yield from _batches_of(self._format, partition)


class _StreamReader(DataSourceStreamReader):
    """The content appended to each file is a task. An offset: by file, its whole bytes."""

    def __init__(self, format_: _Format, path: str) -> None:
        self._format, self._path = format_, path

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        return {}

    def latestOffset(self, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        reached = dict(start)
        for one in self._format.files(self._path):
            with one.open() as content:
                reached[one.path] = self._format.end_of_whole(content, start.get(one.path, 0))
        return reached

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        grown = [(path, start.get(path, 0), upto) for path, upto in end.items() if upto > start.get(path, 0)]
        return [_Span(Source(path, "kraft log", 0), since, upto) for path, since, upto in grown]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Span)
        yield from _batches_of(self._format, partition)


def _batches_of(format_: _Format, span: _Span) -> Iterator[Any]:
    schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in format_.columns.items()])
    with span.source.open() as content:
        rows = format_.rows(content, span.start, span.end, str(Path(span.source.path).absolute()))
        yield from _arrow(rows, schema)


def _arrow(rows: Iterable[tuple[Any, ...]], schema: Any) -> Iterator[Any]:
    gathered: list[tuple[Any, ...]] = []
    for row in rows:
        gathered.append(row)
        if len(gathered) == _ROWS:
            yield _batch(gathered, schema)
            gathered = []
    if gathered:
        yield _batch(gathered, schema)


def _batch(rows: Sequence[tuple[Any, ...]], schema: Any) -> Any:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
