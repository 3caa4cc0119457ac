"""Small expressions that several plans share. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F


def first_that(cases: Iterable[tuple[Column, Column]], otherwise: Column) -> Column:
    """CASE WHEN."""
    built: Column | None = None
    for condition, value in cases:
        built = F.when(condition, value) if built is None else built.when(condition, value)
    return otherwise if built is None else built.otherwise(otherwise)


def quoted(text: str) -> str:
    """A literal of SQL. Expressions made of hundreds of parts are written as SQL: a call into the JVM for each part
    would cost more than the work."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
