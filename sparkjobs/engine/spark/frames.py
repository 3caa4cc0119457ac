"""Rows of this process as DataFrames, and back. They go into the plan as they are: to have them needs no job, to join
with them no shuffle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sparkjobs.tables.arrow import arrow_type, batch_of
from sparkjobs.tables.silver import Row, spark_schema

_R = TypeVar("_R", bound=Row)
_ROWS_TOGETHER: Final = 1_000
#: asks Spark to keep a frame's rows once they are made
Keep = Callable[[DataFrame], DataFrame]


@contextmanager
def released() -> Iterator[Keep]:
    """Yields a function that keeps tables in memory until the end of the scope. Besides the rows Spark holds their
    plan, and a megabyte for each table that the plan joins with; a session that never released them would run out of
    memory."""
    frames = list[DataFrame]()

    def keep(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist())
        return frame

    try:
        yield keep
    finally:
        for frame in frames:
            frame.unpersist()


def frame_of(spark: SparkSession, rows: Iterable[Sequence[Any]], columns: Mapping[str, str]) -> DataFrame:
    """`columns`: names and SQL types, as `columns_of` has them."""
    rows = list(rows)
    arrays = [
        pa.array([row[place] for row in rows], type=arrow_type(kind)) for place, kind in enumerate(columns.values())
    ]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, names=list(columns)))


def values_in(frame: DataFrame) -> Iterator[dict[str, Any]]:
    """Its rows, by name; lists are tuples. They come as columns, in a tenth of the time of Spark's own rows, and a part
    of them at a time."""
    packed = frame.mapInArrow(_packed, "batch binary")
    for row in packed.toLocalIterator(prefetchPartitions=True):
        for batch in pa.ipc.open_stream(row.batch):
            yield from _rows_in(batch)


def _packed(batches: Iterable[Any]) -> Iterator[Any]:
    """A row for some rows: large ones would need room in the JVM several times over."""
    for batch in batches:
        for start in range(0, len(batch), _ROWS_TOGETHER):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch.slice(start, _ROWS_TOGETHER))
            yield pa.RecordBatch.from_pydict({"batch": [sink.getvalue().to_pybytes()]})


def _rows_in(batch: Any) -> Iterator[dict[str, Any]]:
    names, columns = batch.schema.names, []
    for column in batch.columns:
        values = column.to_pylist()
        is_list = pa.types.is_list(column.type)
        columns.append([None if one is None else tuple(one) for one in values] if is_list else values)
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def rows_of(frame: DataFrame, table: type[_R]) -> Iterator[_R]:
    """The frame's rows as objects."""
    for values in values_in(frame):
        yield table(**values)


def as_table(spark: SparkSession, rows: Sequence[Row], table: type[Row]) -> DataFrame:
    """Rows that are objects."""
    return spark.createDataFrame(pa.Table.from_batches([batch_of(table, rows)]), spark_schema(table))
