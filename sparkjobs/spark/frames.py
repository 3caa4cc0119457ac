"""Rows of this process as DataFrames. They go into the plan as they are: to have them needs no job, to join with them
no shuffle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sparkjobs.arrow import arrow_type, batch_of
from sparkjobs.schemas import Row, spark_schema


def frame_of(spark: SparkSession, rows: Iterable[Sequence[Any]], columns: Mapping[str, str]) -> DataFrame:
    """`columns`: names and SQL types, as `columns_of` has them."""
    rows = list(rows)
    arrays = [
        pa.array([row[place] for row in rows], type=arrow_type(kind)) for place, kind in enumerate(columns.values())
    ]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, names=list(columns)))


def as_table(spark: SparkSession, rows: Sequence[Row], table: type[Row]) -> DataFrame:
    """Rows of the local engine."""
    return spark.createDataFrame(pa.Table.from_batches([batch_of(table, rows)]), spark_schema(table))
