"""`klamm_events`: lines of logs as typed events, a row for each, as `klamm logs ingest` has them before any clock is
corrected.

Options: `path` (a file, a folder or a glob), `cluster`, `timezone` (as `--timezone`, several between commas) and
`layout`. Lines that are no events have no row; `klamm logs doctor` counts them. A copy of a line, or of a file, is a
row again: `dropDuplicates(["event_id"])` where logs may have been copied.

A stream knows a log by its folder and its first lines, and its position by whole lines: so a log that is rotated, or
compressed after that, goes on where it was. Lines that are appended to an event in a later batch (an exception's lines)
are in no row.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparkjobs.commands.inputs import zones_of
from sparkjobs.engine.local.digest import read_portions
from sparkjobs.engine.local.stretches import PIECE_BYTES, Stretch
from sparkjobs.engine.spark.tables import STAGED, EventColumns
from sparkjobs.input.files import HEAD_BYTES, NoLogsError, find_logs, open_content, survey
from sparkjobs.input.spool import log_id_of
from sparkjobs.tables.silver import BronzeFile


class LogOptions(msgspec.Struct, frozen=True):
    """The options of a reading."""

    path: str
    cluster: str
    timezones: tuple[str, ...]
    layout: str | None

    @classmethod
    def of(cls, options: Any) -> LogOptions:
        zones = tuple(zone.strip() for zone in options.get("timezone", "").split(",") if zone.strip())
        zones_of(zones)
        return cls(_path_in(options), options.get("cluster", "kafka"), zones, options.get("layout"))

    def surveyed(self, path: str, open_file: Any = open_content) -> BronzeFile:
        """Returns the file's row."""
        [found] = survey([path], self.cluster, zones_of(self.timezones), layout=self.layout, open_file=open_file)
        return found


def _path_in(options: Any) -> str:
    path = options.get("path")
    if not path:
        raise ValueError("name a file, a folder or a glob: load(PATH)")
    return str(path)


class KlammEvents(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        return "klamm_events"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in STAGED.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(LogOptions.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - as Spark calls it
        return _StreamReader(LogOptions.of(self.options))


class _Reader(DataSourceReader):
    """A file is a task."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(str(Path(path).absolute())) for path in find_logs([self._options.path])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        path = partition.value
        file = self._options.surveyed(path)
        if file.trouble is not None:
            raise OSError(f"{path}: {file.trouble}")
        yield from _batches_of(Stretch(file, 0, None, {}, path), 0)


def _batches_of(stretch: Stretch, above: int) -> Iterator[Any]:
    """`above`: lines of the file before those of the stretch."""
    for columns, _, trouble in read_portions(stretch, lambda first_line: EventColumns(stretch.file, above, {})):
        if trouble is not None:
            raise OSError(f"{stretch.path}: {trouble}")
        yield from columns.events().to_batches()


@dataclass
class _Lines(InputPartition):
    """Whole lines of one log, wherever it lies by then."""

    path: str
    log_id: str
    start: int
    end: int
    above: int


_END: Final = "end"
_LINES: Final = "lines"


class _StreamReader(DataSourceStreamReader):
    """The lines appended to each log since the last batch are a task. An offset: by log, its bytes and lines so far."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        return {}

    def latestOffset(self, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        reached = dict(start)
        for log_id, path in self._logs().items():
            known = start.get(log_id, {_END: 0, _LINES: 0})
            with open_content(path) as content:
                end, lines = _whole_lines_after(content, known[_END])
            if end > known[_END]:
                reached[log_id] = {_END: end, _LINES: known[_LINES] + lines}
        return reached

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        here = self._logs()
        nothing = {_END: 0, _LINES: 0}
        grown = [(log_id, start.get(log_id, nothing), upto) for log_id, upto in end.items()]
        return [
            _Lines(here.get(log_id, ""), log_id, since[_END], upto[_END], since[_LINES])
            for log_id, since, upto in grown
            if upto[_END] > since[_END]
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Lines)
        path = partition.path
        if not path or log_id_of(path) != partition.log_id:  # it was rotated just now
            path = self._logs().get(partition.log_id, "")
        if not path:
            raise OSError(f"a log of {self._options.path} is gone before its lines were read: {partition.path}")
        head = self._options.surveyed(path, _head)
        file = msgspec.structs.replace(head, file_id=partition.log_id, is_whole=True, is_text=False)
        content = _pieces(path, partition.start, partition.end)
        yield from _batches_of(Stretch(file, 0, None, {}, path, content=content), partition.above)

    def _logs(self) -> dict[str, str]:
        """Returns where each log lies; one that does not say yet which it is has no lines either."""
        try:
            paths = find_logs([self._options.path])
        except NoLogsError:
            return {}
        found = ((log_id_of(path), str(Path(path).absolute())) for path in paths)
        return {log_id: path for log_id, path in found if log_id is not None}


def _head(path: str) -> IO[bytes]:
    with open_content(path) as content:
        return io.BytesIO(content.read(HEAD_BYTES))


def _whole_lines_after(content: IO[bytes], start: int) -> tuple[int, int]:
    """Returns where the last whole line ends, and how many there are since `start`."""
    content.seek(start)
    position, end, lines = start, start, 0
    for chunk in iter(partial(content.read, PIECE_BYTES), b""):
        last = chunk.rfind(b"\n")
        if last >= 0:
            end, lines = position + last + 1, lines + chunk.count(b"\n")
        position += len(chunk)
    return end, lines


def _pieces(path: str, start: int, end: int) -> Iterator[bytes]:
    """Of whole lines."""
    with open_content(path) as content:
        content.seek(start)
        while start < end:
            piece = content.read(min(PIECE_BYTES, end - start))
            piece += b"" if piece.endswith(b"\n") else content.readline()
            if not piece:
                raise OSError(f"{path}: {end - start} bytes are gone that had been there")
            start += len(piece)
            yield piece
