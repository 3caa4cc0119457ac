"""Silver in tables, as the jobs ask for it: single events, counts, groups, last events before a moment, clock skew.

The rules say what a line means, on the workers, where the lines lie; Spark finds, sorts and brings together. Clock skew
is computed likewise: `sparkjobs.clocks` judges round trips and gaps where the lines of both sides were brought
together, the result of each pair of brokers and hour goes to the driver, and a broadcast join corrects the moments.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sparkjobs.clocks.causality import OF_CAUSES, OF_PAIRS, HourlyGaps, gaps_in, is_of_pair
from sparkjobs.clocks.skew import OF_TRIPS, AheadOf, ahead_of, all_trips_in, applied_ms, left_ms, rows_for
from sparkjobs.engine.spark.frames import frame_of, released, values_in
from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.rules.facts import Place, Tally, tally_key, together
from sparkjobs.rules.receipts import API
from sparkjobs.tables.arrow import READ, event_of, events_in
from sparkjobs.tables.silver import SilverEvent, SilverSkew


@contextmanager
def cached(events: DataFrame) -> Iterator[DataFrame]:
    """Yields the columns of silver that the rules read, kept in memory: the clocks need them several times."""
    read = events.select(*READ)
    with released() as keep:
        yield keep(read)


def collected(few: DataFrame) -> list[SilverEvent]:
    """Returns all of them."""
    return list(map(event_of, values_in(few.select(*READ))))


def one_by_one(events: DataFrame, names: Iterable[str]) -> Iterator[SilverEvent]:
    """The events of these names; here they are columns, of which one event after the other is made."""
    yield from map(event_of, values_in(events.filter(F.col("event").isin(*names)).select(*READ)))


def of_groups(
    events: DataFrame,
    by: Sequence[Column],
    key: Callable[[SilverEvent], Any],
    found: Callable[[list[SilverEvent]], Any],
) -> list[Any]:
    """Returns the results from the events of each group, which must be small. `key` tells groups apart as `by` does."""
    place = F.struct(*by)
    sorted_ = events.select(*READ, place.alias("_place")).repartition("_place").sortWithinPartitions("_place")
    return _answers(sorted_.select(*READ), partial(_of_groups, key, found))


def _of_groups(
    key: Callable[[SilverEvent], Any], found: Callable[[list[SilverEvent]], Any], events: Iterable[SilverEvent]
) -> Iterator[Any]:
    for _, group in groupby(events, key):
        yield found(list(group))


def tallies_of(events: DataFrame) -> list[Tally]:
    """The counts, a row for each kind of line."""
    found: dict[tuple[Any, ...], Tally] = {}
    for tallies in _answers(events.select(*READ), _tallied):
        for key, one in tallies.items():
            found[key] = together(found[key], one) if key in found else one
    return list(found.values())


def _tallied(events: Iterable[SilverEvent]) -> Iterator[dict[tuple[Any, ...], Tally]]:
    found: dict[tuple[Any, ...], Tally] = {}
    for event in events:
        key = tally_key(event)
        at_ms, place = event.ts_adj, Place(event.file_id, event.line_no)
        one = Tally._make((*key, 1, at_ms, at_ms, place))
        found[key] = together(found[key], one) if key in found else one
    yield found


def _answers(events: DataFrame, function: Callable[[Iterable[SilverEvent]], Iterable[Any]]) -> list[Any]:
    """Returns the results of a function of the rules on the events of each partition."""

    def said(batches: Iterable[Any]) -> Iterator[Any]:
        for answer in function(events_in(batches)):
            yield pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps(answer)], pa.binary())})

    return [pickle.loads(row.answer) for row in events.mapInArrow(said, "answer binary").collect()]


def voices_of(
    events: DataFrame, wanted: Mapping[str, Iterable[tuple[int, int]]]
) -> dict[str, dict[tuple[int, int], int]]:
    """Returns when each broker was last heard before each moment that matters: the moments cut its lines into pieces.

    `wanted`: of each cluster brokers and moments, each once.
    """
    bounds: dict[tuple[str, int], list[int]] = {}
    for cluster, moments_of_brokers in wanted.items():
        for broker, moment in moments_of_brokers:
            bounds.setdefault((cluster, broker), []).append(moment)
    if not bounds:
        return {}
    table = [(cluster, broker, sorted(moments)) for (cluster, broker), moments in bounds.items()]
    columns = {"cluster": "string", "broker": "int", "bounds": "array<bigint>"}
    cut = frame_of(events.sparkSession, table, columns)
    last = (
        events.select("cluster", "broker", "ts_adj")
        .join(F.broadcast(cut), ["cluster", "broker"])
        .groupBy("cluster", "broker", F.expr("size(filter(bounds, b -> b <= ts_adj))").alias("piece"))
        .agg(F.max("ts_adj").alias("last_ms"))
    )
    heard = {(row["cluster"], row["broker"], row["piece"]): row["last_ms"] for row in last.collect()}
    voices: dict[str, dict[tuple[int, int], int]] = {}
    for cluster, broker, moments in table:
        before: int | None = None
        for piece, moment in enumerate(moments):
            before = heard.get((cluster, broker, piece), before)
            if before is not None:
                voices.setdefault(cluster, {})[broker, moment] = before
    return voices


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

    def gaps_of(cluster: str) -> HourlyGaps:
        return gaps().get(cluster, HourlyGaps())

    @cache
    def gaps() -> dict[str, HourlyGaps]:
        found: dict[str, HourlyGaps] = {}
        place = [F.col(name) for name in ("cluster", "topic", "partition")]
        for cluster, its in of_groups(events.filter(F.col("event").isin(*OF_PAIRS | OF_CAUSES)), place, _about, _gaps):
            found.setdefault(cluster, HourlyGaps()).join(its)
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


def _gaps(events: list[SilverEvent]) -> tuple[str, HourlyGaps]:
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
