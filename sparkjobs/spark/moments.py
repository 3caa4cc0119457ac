"""Dates as printed to milliseconds, as a Spark expression: what `sparkjobs.parse.moments` does. Pure."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def millis_column(text: str, zone: str) -> Column:
    """Both are names of columns. Only what is a date of a layout gets here; no moment at all is null."""
    raw = F.col(text)
    day_first = F.to_timestamp(
        F.try_to_timestamp(F.regexp_replace(F.substring(text, 1, 20), "  ", " "), F.lit("dd MMM yyyy HH:mm:ss"))
    )
    fraction = F.when(F.length(raw) >= 23, F.when(F.substring(text, 20, 1).isin(",", "."), F.substring(text, 21, 3)))
    suffix = F.when(
        raw.endswith("Z") | F.substring(text, 20, 40).rlike("[+-]"), F.regexp_extract(text, r"(Z|[+-]\d\d:?\d\d)$", 1)
    )
    date = F.translate(F.substring(text, 1, 10), "/", "-")
    local = F.concat(date, F.lit(" "), F.substring(text, 12, 8)).try_cast("timestamp")
    return (
        F.when((F.length(raw) == 13) & ~raw.contains("-"), raw.try_cast("bigint"))
        .when(
            F.substring(text, 3, 1) == " ",
            F.unix_millis(F.to_utc_timestamp(day_first, F.col(zone))) + F.substring(text, 22, 3).cast("int"),
        )
        .otherwise(
            F.unix_millis(
                F.to_utc_timestamp(
                    local, F.coalesce(F.regexp_replace(suffix, r"^([+-]\d\d)(\d\d)$", "$1:$2"), F.col(zone))
                )
            )
            + F.coalesce(fraction.cast("int"), F.lit(0))
        )
    )
