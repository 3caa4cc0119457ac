"""Clock skew by Spark: the trips are few and go to the driver, the correction is a broadcast join.

DataFrame in, DataFrame out; what an offset is, is `sparkjobs.skew`'s to say.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjobs.schemas import SilverEvent, SilverSkew
from sparkjobs.skew import HOUR_MS, OF_TRIPS, applied_ms, rows_for, trips_in
from sparkjobs.spark.ingest import rows_of


def skew_of(events: DataFrame) -> list[SilverSkew]:
    """As the local engine's."""
    hour = (F.floor(F.col("ts_utc") / HOUR_MS) * HOUR_MS).cast("bigint").alias("hour")
    heard: dict[str, dict[int, set[int]]] = {}
    for cluster, broker, at in (
        events.filter("broker IS NOT NULL").select("cluster", "broker", hour).distinct().collect()
    ):
        heard.setdefault(cluster, {}).setdefault(broker, set()).add(at)
    wanted = events.filter(F.col("event").isin(*OF_TRIPS) & (F.col("api") == "LeaderAndIsr"))
    of_trips = wanted.filter("broker IS NOT NULL AND (correlation_id IS NOT NULL OR topic IS NOT NULL)")
    by_cluster: dict[str, list[SilverEvent]] = {cluster: [] for cluster in heard}
    for event in rows_of(of_trips, SilverEvent):
        by_cluster[event.cluster].append(event)
    return [
        row for cluster in sorted(heard) for row in rows_for(cluster, trips_in(by_cluster[cluster]), heard[cluster])
    ]


def corrected(events: DataFrame, skew: Sequence[SilverSkew]) -> DataFrame:
    """`ts_adj`, `skew_ms` and `skew_err_ms` filled in."""
    known = [(row.cluster, row.broker, row.hour, applied_ms(row), row.err_ms) for row in skew]
    if not known:
        return events
    shifts = events.sparkSession.createDataFrame(
        known, "cluster string, broker int, hour bigint, shift int, shift_err int"
    )
    filled = {
        "ts_adj": F.col("ts_utc") - F.coalesce(F.col("shift"), F.lit(0)),
        "skew_ms": F.col("shift"),
        "skew_err_ms": F.col("shift_err"),
    }
    hour = (F.floor(F.col("ts_utc") / HOUR_MS) * HOUR_MS).cast("bigint")
    return (
        events.withColumn("hour", hour)
        .join(F.broadcast(shifts), ["cluster", "broker", "hour"], "left")
        .select(*[filled.get(name, F.col(name)).alias(name) for name in events.columns])
    )
