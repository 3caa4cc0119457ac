"""Lines to staged rows, on the workers: the local engine's own reader, over Arrow batches.

A line's meaning is in one place, `sparkjobs.parse.lines`, so both engines read alike whatever a line looks like. Spark
finds the lines, numbers them, hands them out and takes the typed columns back. Workers need pyarrow and this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjobs.arrow import arrow_type
from sparkjobs.local.forms import Forms, grouped
from sparkjobs.parse.lines import CONTINUES, LineReader, is_trace_head
from sparkjobs.schemas import LINE_KEPT, BronzeFile, SilverEvent, columns_of
from sparkjobs.spark.columns import Staging

#: what of a silver row is not a line's own to say
_DERIVED: Final = frozenset({"dt", "ts_adj", "skew_ms", "skew_err_ms", "trace", "catalog_version"})
#: an event's columns that the parser fills; why a line is none; what it says of the exception of the event above
STAGED: Final[dict[str, str]] = {
    **{name: kind for name, kind in columns_of(SilverEvent).items() if name not in _DERIVED},
    "fate": "string",
    "trace_head": "string",
}
_SCHEMA: Final = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in STAGED.items()])
_KEPT: Final = [number for number, name in enumerate(SilverEvent.__struct_fields__) if name not in _DERIVED]
_PLACE: Final = {name: list(STAGED).index(name) for name in ("cluster", "file_id", "line_no", "line")}


def staged_schema() -> str:
    """Of the staging table, as Spark writes schemas."""
    return ", ".join(f"{name} {kind}" for name, kind in STAGED.items())


def parsed(raw: DataFrame, files: Sequence[BronzeFile]) -> DataFrame:
    """One row per line. `raw`: value, file_no (its place in `files`), line_no."""
    known = list(files)
    lines = raw.select(F.col("value").cast("binary"), "file_no", "line_no")
    return lines.mapInArrow(lambda batches: read_batches(batches, known), staged_schema())


def read_batches(batches: Iterable[Any], files: Sequence[BronzeFile]) -> Iterator[Any]:
    """What a worker does with its share."""
    forms = [Forms(LineReader(file)) for file in files]
    for batch in batches:
        if not batch.num_rows:
            continue
        values, numbers, lines = (batch.column(name) for name in ("value", "file_no", "line_no"))
        numbers, lines, staging = numbers.to_numpy(), lines.to_numpy(), Staging(_SCHEMA, len(values), row_of)
        for places in grouped(numbers):
            own = values if len(places) == len(values) else values.take(pa.array(places))
            staging.fill(forms[numbers[places[0]]], places, own, lines[places])
        yield staging.batch()


def row_of(reader: LineReader, line: str, line_no: int) -> tuple[Any, ...]:
    file = reader.file
    read = reader.read(line, line_no, is_cut=line_no == file.lines and not file.is_whole)
    if isinstance(read, SilverEvent):
        values = msgspec.structs.astuple(read)
        return (*[values[number] for number in _KEPT], None, None)
    head = None
    if read is CONTINUES:
        text = reader.unwrap(line) or ""
        head = text[:LINE_KEPT] if is_trace_head(text) else None
    row: list[Any] = [None] * len(STAGED)
    for name, value in (("cluster", file.cluster), ("file_id", file.file_id), ("line_no", line_no)):
        row[_PLACE[name]] = value
    row[_PLACE["line"]] = line[:LINE_KEPT]
    row[-2:] = read, head
    return tuple(row)
