"""Rows to and from Arrow, by the declaration of their table. Spark's workers and Parquet files use this form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from sparkjobs.tables.silver import (
    UNREAD,
    Row,
    SilverEvent,
    columns_of,
)

#: the columns of a silver row that the rules read
READ: Final = tuple(name for name in columns_of(SilverEvent) if name not in {*UNREAD, "catalog_version"})


def arrow_type(kind: str) -> Any:
    """Of a column's SQL type."""
    simple = {
        "int": pa.int32(),
        "bigint": pa.int64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "double": pa.float64(),
    }
    return pa.list_(simple[kind[6:-1]]) if kind.startswith("array<") else simple[kind]


def arrow_schema(table: type[Row]) -> Any:
    """Returns the declared types in Arrow's words."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns_of(table).items()])


def batch_of(table: type[Row], rows: Sequence[Row]) -> Any:
    """Returns a record batch."""
    schema = arrow_schema(table)
    arrays = []
    for name in schema.names:
        arrays.append(pa.array(list(map(attrgetter(name), rows)), type=schema.field(name).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def events_in(batches: Iterable[Any]) -> Iterator[SilverEvent]:
    """The events of record batches that have the columns of `READ`."""
    for batch in batches:
        names = batch.schema.names
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield event_of(dict(zip(names, values, strict=True)))


def event_of(values: dict[str, Any]) -> SilverEvent:
    """From the columns of `READ`."""
    known: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
    return SilverEvent(**{**UNREAD, **known})
