"""Clock skew by Spark: round trips are put together and judged where the lines lie; what a pair of brokers comes to in
an hour goes to the driver, and the correction is a broadcast join.

DataFrame in, DataFrame out; what a trip and an offset are, is `sparkjobs.clocks.skew`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sparkjobs.clocks import unnumbered
from sparkjobs.clocks.causality import (
    OF_CAUSES,
    OF_PAIRS,
    STARTS,
    Gaps,
    gaps_in,
)
from sparkjobs.clocks.skew import (
    BEST_SHARE,
    LEAST_TRIPS,
    Ahead,
    AheadOf,
    applied_ms,
    left_ms,
    rows_for,
)
from sparkjobs.engine.spark.answers import one_by_one
from sparkjobs.engine.spark.frames import frame_of
from sparkjobs.parse.moments import HOUR_MS
from sparkjobs.rules import receipts
from sparkjobs.tables.arrow import READ, arrow_type, events_in
from sparkjobs.tables.silver import SilverSkew

_REQUEST: Final = ("cluster", "controller", "controller_epoch", "to", "correlation_id")
_TRIP: Final = {
    **{"cluster": "string", "controller": "int", "to": "int"},
    **{"at_ms": "bigint", "offset_ms": "bigint", "err_ms": "bigint"},
}
_ELECTION: Final = ("topic", "partition", "leader_epoch")
#: what gaps are seen between, without elections
_FEW: Final = OF_PAIRS - STARTS - {"partition_changed"}
_NAMED: Final = ("cluster", "to", "topic", "partition", "leader_epoch", "controller_epoch")


def skew_of(events: DataFrame) -> list[SilverSkew]:
    """As the local engine's. `events` is silver, of which the columns that rules read are enough."""
    heard: dict[str, dict[int, set[int]]] = {}
    hours = events.filter("broker IS NOT NULL").groupBy("cluster", "broker", _hour("ts_utc").alias("hour"))
    has_unnumbered = False
    for cluster, broker, at, has_any in hours.agg(F.max(_is_unnumbered())).collect():
        heard.setdefault(cluster, {}).setdefault(broker, set()).add(at)
        has_unnumbered |= bool(has_any)
    trips = trips_in(events)
    ahead = _ahead_of(trips.unionByName(unnumbered_trips_in(events)) if has_unnumbered else trips)

    def gaps_of(cluster: str) -> Gaps:
        of_cluster = events.filter(F.col("cluster") == cluster)
        is_of_pair = F.col("event").isin(*_FEW) | (F.col("event").isin(*OF_CAUSES) & F.col("cause_id").isNotNull())
        gaps = gaps_in(one_by_one(of_cluster.filter(is_of_pair), _FEW | OF_CAUSES))
        gaps.join(_election_gaps(of_cluster))
        return gaps

    return [
        row
        for cluster in sorted(heard)
        for row in rows_for(cluster, ahead.get(cluster, {}), heard[cluster], partial(gaps_of, cluster))
    ]


def _election_gaps(events: DataFrame) -> Gaps:
    """As `causality` has them of elections and of the brokers that begin by them: there may be one for every partition
    each time that a broker goes, so they are put together where they lie."""
    begun = events.filter(F.col("event").isin(*STARTS)).dropna(subset=[*_ELECTION, "broker"])
    gaps = Gaps()
    if begun.isEmpty():
        return gaps  # elections that no broker answers prove nothing
    is_election = (F.col("event") == "partition_changed") & (F.col("to_state") == "OnlinePartition")
    said = events.filter(is_election).dropna(subset=[*_ELECTION, "broker"]).groupBy(*_ELECTION)
    once = said.agg(F.count("*").alias("times"), F.min("broker").alias("controller"), F.min("ts_utc").alias("at_ms"))
    done = begun.groupBy(*_ELECTION, "broker").agg(F.min("ts_utc").alias("done_ms"))
    pairs = once.filter("times = 1").join(done, list(_ELECTION)).filter("controller <> broker")
    least = pairs.groupBy(_hour("at_ms"), "controller", "broker").agg(
        F.min(F.col("done_ms") - F.col("at_ms")), F.count("*")
    )
    for hour, controller, broker, gap_ms, samples in least.collect():
        gaps.see(controller, broker, gap_ms, hour, samples)
    return gaps


def _hour(name: str) -> Column:
    return F.col(name) - F.pmod(F.col(name), F.lit(HOUR_MS))


def _is_unnumbered() -> Column:
    """As `unnumbered.is_unnumbered`."""
    is_answer = F.col("event") == "response_received"
    return is_answer & F.col("correlation_id").isNull() & F.col("topic").isNotNull()


def unnumbered_trips_in(events: DataFrame) -> DataFrame:
    """The same of requests whose answers name no number, put together where the lines of both sides were brought."""
    is_side = ((F.col("event") == "request_sent") & F.col("correlation_id").isNull()) | _is_unnumbered()
    is_told = F.col("event").isin(*receipts.EVENTS) & F.col("correlation_id").isNotNull() & F.col("api").isNotNull()
    controller = F.when(is_told, F.col("controller")).otherwise(F.col("broker")).alias("of")
    to = F.when(is_told, F.col("broker")).otherwise(F.col("peer_broker")).alias("to")
    way = ("cluster", "of", "controller_epoch", "to")
    sides = events.filter((is_side | is_told) & (F.coalesce("api", F.lit(receipts.API)) == receipts.API))
    together = sides.select(*READ, controller, to).dropna(subset=list(way)).repartition(*way)

    def rows(batches: Iterable[Any]) -> Iterator[Any]:
        for _, group in groupby(events_in(batches), key=unnumbered.way_of):
            found = [(cluster, *trip) for cluster, trip in unnumbered.trips_in(group)]
            columns = zip(*found, strict=True) if found else [()] * len(_TRIP)
            arrays = [
                pa.array(list(column), arrow_type(kind)) for column, kind in zip(columns, _TRIP.values(), strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(_TRIP))

    schema = ", ".join(f"`{name}` {kind}" for name, kind in _TRIP.items())
    trips = together.sortWithinPartitions(*way).select(*READ).mapInArrow(rows, schema)
    return trips.filter(F.col("controller") != F.col("to"))


def trips_in(events: DataFrame) -> DataFrame:
    """A row per request of which all four sides speak: cluster, controller, to, at_ms, offset_ms, err_ms."""
    is_answer = F.col("event") == "response_received"
    requests = events.filter((F.col("api") == "LeaderAndIsr") | (is_answer & F.col("api").isNull()))
    to = F.when(is_answer, F.col("peer_broker")).otherwise(F.col("broker")).alias("to")
    place = F.struct("file_id", "line_no").alias("place")
    keyed = (
        requests.filter(F.col("event").isin("request_received", "request_done", "response_received"))
        .select("*", to, place)
        .dropna(subset=list(_REQUEST))
    )

    def seen(event: str) -> Column:
        return F.when(F.col("event") == event, F.col("place"))

    moments = keyed.groupBy(*_REQUEST).agg(
        F.min_by("ts_utc", seen("request_received")).alias("received"),
        F.max_by("ts_utc", seen("request_done")).alias("done"),
        F.coalesce(
            F.max_by("ts_utc", F.when(F.col("api").isNotNull(), seen("response_received"))),
            F.min_by("ts_utc", F.when(F.col("api").isNull(), seen("response_received"))),
        ).alias("answered"),
    )
    received = keyed.filter(F.col("event") == "request_received").dropna(subset=list(_NAMED))
    asked = received.groupBy(*_NAMED).agg(F.min_by(F.struct("controller", "correlation_id"), "place").alias("request"))
    sends = requests.filter(F.col("event") == "request_sent").select("*", F.col("peer_broker").alias("to"))
    numbered = sends.dropna(subset=list(_REQUEST)).select(*_REQUEST, F.col("ts_utc").alias("sent"))
    sent = (
        sends.filter(F.col("correlation_id").isNull())
        .groupBy("broker", *_NAMED)
        .agg(F.max("ts_utc").alias("sent"))
        .join(asked, list(_NAMED))
        .filter(F.col("request.controller") == F.col("broker"))
        .select("cluster", "controller_epoch", "to", "request.*", "sent")
        .unionByName(numbered)
        .groupBy(*_REQUEST)
        .agg(F.max("sent").alias("sent"))
    )
    ways = (F.col("received") - F.col("sent"), F.col("answered") - F.col("done"))
    return (
        sent.join(moments.dropna(), list(_REQUEST))
        .filter(F.col("controller") != F.col("to"))
        .select(
            *("cluster", "controller", "to", F.col("received").alias("at_ms")),
            F.shiftright(ways[0] - ways[1], 1).alias("offset_ms"),  # as Python divides by 2
            F.abs(F.shiftright(ways[0] + ways[1] + 1, 1)).alias("err_ms"),
        )
    )


def _ahead_of(trips: DataFrame) -> dict[str, AheadOf]:
    """Of each hour and pair the trips with the least error: their median."""
    pair = ("cluster", "controller", "to", "hour")
    of_pair = Window.partitionBy(*pair)
    best = (
        trips.select("*", _hour("at_ms").alias("hour"))
        .select(
            *(*pair, "offset_ms", "err_ms", F.count("*").over(of_pair).alias("samples")),
            F.row_number().over(of_pair.orderBy("err_ms", "offset_ms")).alias("rank"),
        )
        .filter(F.col("samples") >= LEAST_TRIPS)
        .filter(F.col("rank") <= F.greatest(F.lit(LEAST_TRIPS), F.floor(F.col("samples") / BEST_SHARE)))
        .groupBy(*pair)
        .agg(
            F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY offset_ms)").cast("bigint"),
            F.max("err_ms"),
            F.max("samples"),
        )
    )
    found: dict[str, dict[tuple[int, int], dict[int, Ahead]]] = {}
    for cluster, controller, to, hour, *ahead in best.collect():
        found.setdefault(cluster, {}).setdefault((controller, to), {})[hour] = Ahead._make(ahead)
    return dict(found)


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
