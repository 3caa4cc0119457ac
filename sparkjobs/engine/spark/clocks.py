"""Clock skew of silver in tables: round trips and gaps are judged by `sparkjobs.clocks` where the lines of both sides
were brought together; what a pair of brokers comes to in an hour goes to the driver, and the correction is a broadcast
join.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sparkjobs.clocks.causality import OF_CAUSES, OF_PAIRS, Gaps, gaps_in, is_of_pair
from sparkjobs.clocks.skew import OF_TRIPS, AheadOf, ahead_of, all_trips_in, applied_ms, left_ms, rows_for
from sparkjobs.engine.spark.frames import frame_of
from sparkjobs.engine.spark.silver import of_groups
from sparkjobs.parse.moments import HOUR_MS
from sparkjobs.rules.receipts import API
from sparkjobs.tables.silver import SilverEvent, SilverSkew

#: lines of the controller's side of a request: it is another broker's
_ASKING: Final = ("request_sent", "response_received")


def skew_of(events: DataFrame) -> list[SilverSkew]:
    """As `sparkjobs.clocks.skew`. `events` is silver, of which the columns that rules read are enough."""
    heard: dict[str, dict[int, set[int]]] = {}
    hours = events.filter("broker IS NOT NULL").select("cluster", "broker", _hour("ts_utc")).distinct()
    for cluster, broker, at in hours.collect():
        heard.setdefault(cluster, {}).setdefault(broker, set()).add(at)
    ahead: dict[str, dict[tuple[int, int], Any]] = {}
    to = F.when(F.col("event").isin(*_ASKING), F.col("peer_broker")).otherwise(F.col("broker"))
    is_side = F.col("event").isin(*OF_TRIPS) & (F.coalesce("api", F.lit(API)) == API)
    for cluster, of_broker in of_groups(events.filter(is_side), [F.col("cluster"), to], _asked, _ahead):
        ahead.setdefault(cluster, {}).update(of_broker)

    def gaps_of(cluster: str) -> Gaps:
        return gaps().get(cluster, Gaps())

    @cache
    def gaps() -> dict[str, Gaps]:
        found: dict[str, Gaps] = {}
        place = [F.col(name) for name in ("cluster", "topic", "partition")]
        for cluster, its in of_groups(events.filter(F.col("event").isin(*OF_PAIRS | OF_CAUSES)), place, _about, _gaps):
            found.setdefault(cluster, Gaps()).join(its)
        return found

    return [
        row
        for cluster in sorted(heard)
        for row in rows_for(cluster, ahead.get(cluster, {}), heard[cluster], partial(gaps_of, cluster))
    ]


def _asked(event: SilverEvent) -> tuple[str, int | None]:
    return event.cluster, event.peer_broker if event.event in _ASKING else event.broker


def _ahead(events: list[SilverEvent]) -> tuple[str, AheadOf]:
    return events[0].cluster, ahead_of(all_trips_in(events))


def _about(event: SilverEvent) -> tuple[str, str | None, int | None]:
    return event.cluster, event.topic, event.partition


def _gaps(events: list[SilverEvent]) -> tuple[str, Gaps]:
    return events[0].cluster, gaps_in(filter(is_of_pair, events))


def _hour(name: str) -> Column:
    return F.col(name) - F.pmod(F.col(name), F.lit(HOUR_MS))


def corrected(events: DataFrame, skew: Sequence[SilverSkew]) -> DataFrame:
    """`ts_adj`, `skew_ms` and `skew_err_ms` filled in."""
    known = [(row.cluster, row.broker, row.hour, applied_ms(row), left_ms(row)) for row in skew]
    if not known:
        return events
    columns = {"cluster": "string", "broker": "int", "hour": "bigint", "shift": "int", "shift_err": "int"}
    shifts = frame_of(events.sparkSession, known, columns)
    filled = {
        "ts_adj": F.col("ts_utc") - F.coalesce(F.col("shift"), F.lit(0)),
        "skew_ms": F.col("shift"),
        "skew_err_ms": F.col("shift_err"),
    }
    return (
        events.withColumn("hour", _hour("ts_utc"))
        .join(F.broadcast(shifts), ["cluster", "broker", "hour"], "left")
        .select(*[filled.get(name, F.col(name)).alias(name) for name in events.columns])
    )
