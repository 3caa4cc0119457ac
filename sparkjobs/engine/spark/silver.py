"""Silver, as the tables and the stream ask for it: events one by one, counted, by group, and the last before a moment.

What a line means to a rule is asked of the rules where the lines lie; Spark finds, sorts and brings together.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sparkjobs.engine.spark.frames import frame_of, released, values_in
from sparkjobs.rules.facts import Place, Tally, tally_key, together
from sparkjobs.tables.arrow import READ, event_of, events_in
from sparkjobs.tables.silver import SilverEvent


@contextmanager
def cached(events: DataFrame) -> Iterator[DataFrame]:
    """What the rules read of silver, at hand: the clocks ask for it several times."""
    read = events.select(*READ)
    with released() as keep:
        yield keep(read)


def collected(few: DataFrame) -> list[SilverEvent]:
    """All of them."""
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
    """What is found in the events of each group, which must be small. `key` tells groups apart as `by` does."""
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
    """What a function of the rules says of the events of each partition."""

    def said(batches: Iterable[Any]) -> Iterator[Any]:
        for answer in function(events_in(batches)):
            yield pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps(answer)], pa.binary())})

    return [pickle.loads(row.answer) for row in events.mapInArrow(said, "answer binary").collect()]


def voices_of(
    events: DataFrame, wanted: Mapping[str, Iterable[tuple[int, int]]]
) -> dict[str, dict[tuple[int, int], int]]:
    """When each broker was last heard before each moment that matters: the moments cut its lines into pieces.

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
