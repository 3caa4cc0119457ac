"""All answers by Spark: DataFrames in, DataFrames out.

Spark finds the few lines that matter, counts the rest, brings together what is about one partition and sorts it; the
rules of `sparkjobs.rules.rules` walk through each group where it lies, in Arrow batches, a group at a time. Only what
is small travels to the driver: the counts, the lines about controllers and brokers, and, for the tables about the whole
cluster, outages and elections. Workers need pyarrow and this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkjobs.engine.local.answers import Answers, partition_rows, sorted_rows
from sparkjobs.engine.spark import rpc_latency as latency
from sparkjobs.engine.spark.frames import (
    Keep,
    as_table,
    frame_of,
    released,
    rows_of,
    values_in,
)
from sparkjobs.rules import illegal, moves, outages, rules
from sparkjobs.rules.conclude import facts_for
from sparkjobs.rules.facts import (
    ANSWERED,
    CLUSTER_EVENTS,
    TALLIED,
    Facts,
    Place,
    Tally,
)
from sparkjobs.rules.slo import DEFAULT_TARGET, Extent
from sparkjobs.tables.arrow import (
    READ,
    batches_of,
    batches_of_tables,
    event_of,
    events_in,
)
from sparkjobs.tables.gold import GOLD, IllegalTransition
from sparkjobs.tables.silver import Row, SilverEvent, spark_schema

FactsOf = Mapping[str, Facts]
_PARTITION: Final = ("cluster", "topic", "partition")
_TOPIC: Final = ("cluster", "topic")
#: of which some rows are about a partition or a topic, and others about the whole cluster
_IN_PARTS: Final = ("flapping", "operations", "zombies", "illegal_transitions", "replica_lives")


def answers_for(events: DataFrame, target: float = DEFAULT_TARGET) -> Answers:
    """Every table of gold as rows of this process, sorted: equal to `sparkjobs.engine.local.answers`."""
    with released() as keep:
        gold = gold_for(events, target, keep)
        return {name: sorted_rows(rows_of(frame, GOLD[name])) for name, frame in gold.items()}


@contextmanager
def cached(events: DataFrame, *, is_scan: bool = False) -> Iterator[DataFrame]:
    """What the rules read of silver, at hand: they and the clocks ask for it a dozen times. Of columns in files they
    ask for few each time, and to keep them all would cost more."""
    read = events.select(*READ)
    if is_scan:
        yield read
        return
    with released() as keep:
        yield keep(read)


def gold_for(events: DataFrame, target: float = DEFAULT_TARGET, keep: Keep = DataFrame.persist) -> dict[str, DataFrame]:
    """Every table of gold. `events` is silver, of which the columns of READ are enough; it had better be `cached`."""
    facts = facts_of(tallies := tallies_of(events), events)
    gold = {**partition_tables(events, facts, keep), **topic_tables(events, facts, keep)}
    gold["illegal_transitions"] = illegal_transitions(events)
    is_old = any(one.event == "response_received" and one.api is None for one in tallies)
    gold["rpc_latency"] = latency.rpc_latency(events, facts, is_old=is_old)
    whole = _cluster_tables(gold, tallies, facts, extents_of(events), target)
    known = {name: as_table(events.sparkSession, rows, GOLD[name]) for name, rows in whole.items()}
    return gold | known | {name: known[name].unionByName(gold[name]) for name in _IN_PARTS}


def tallies_of(events: DataFrame) -> list[Tally]:
    """The counts, a row for each kind of line."""
    peer = F.when((F.col("event") == "isr_changed") & (F.col("role") == "controller"), F.col("peer_broker"))
    counted = events.groupBy(
        "cluster",
        *TALLIED,
        peer.alias("peer"),
        F.coalesce(F.col("cause") == "found", F.lit(False)).alias("is_found"),
    ).agg(
        F.count("*").alias("times"),
        F.min(F.struct("ts_adj", "file_id", "line_no")).alias("first"),
        F.max("ts_adj").alias("last_ms"),
    )
    found = []
    for row in counted.collect():
        *key, times, first, last_ms = row
        found.append(Tally._make((*key, times, first[0], last_ms, Place(first[1], first[2]))))
    return found


def facts_of(tallies: Iterable[Tally], events: DataFrame) -> FactsOf:
    """Of each cluster; the voices are looked up by Spark."""
    known = collected(events.filter(_of_cluster()))
    by_cluster: dict[str, list[Tally]] = {}
    for one in tallies:
        by_cluster.setdefault(one.cluster, []).append(one)
    facts = {
        cluster: facts_for(cluster, of_cluster, [event for event in known if event.cluster == cluster])
        for cluster, of_cluster in by_cluster.items()
    }
    voices = voices_of(events, {cluster: set(one.moments) for cluster, one in facts.items()})
    return {cluster: replace(one, voices=voices.get(cluster, {})) for cluster, one in facts.items()}


def _of_cluster() -> Column:
    """As `is_of_cluster` has it."""
    is_answer = (F.struct("event", "api") == F.struct(*map(F.lit, ANSWERED))) & F.col("cause_id").isNotNull()
    return F.col("event").isin(*CLUSTER_EVENTS) | (is_answer & F.col("error").isNull())


def collected(few: DataFrame) -> list[SilverEvent]:
    """All of them."""
    return list(map(event_of, values_in(few.select(*READ))))


def one_by_one(events: DataFrame, names: Iterable[str]) -> Iterator[SilverEvent]:
    """The events of these names; here they are columns, of which one event after the other is made."""
    yield from map(event_of, values_in(events.filter(F.col("event").isin(*names)).select(*READ)))


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


def partition_tables(events: DataFrame, facts: FactsOf, keep: Keep) -> dict[str, DataFrame]:
    """The answers about partitions, as far as a partition's own lines have them."""
    about = F.col("event").isin(*rules.PARTITION_EVENTS) | latency.is_by_number(facts)
    about &= F.col("topic").isNotNull() & F.col("partition").isNotNull()

    def rows(group: list[SilverEvent], of: Facts) -> Mapping[str, Iterable[Row]]:
        return partition_rows([group], of)

    return _walked(
        events.filter(about), _PARTITION, (*rules.OF_PARTITION, "flapping", *moves.TABLES), rows, facts, keep
    )


def topic_tables(events: DataFrame, facts: FactsOf, keep: Keep) -> dict[str, DataFrame]:
    """The answers about topics, as far as a topic's own lines have them."""
    about = F.col("event").isin(*rules.TOPIC_EVENTS) & F.col("topic").isNotNull()

    def rows(group: list[SilverEvent], of: Facts) -> Mapping[str, Iterable[Row]]:
        return {name: rule.rows(group, of) for name, rule in rules.OF_TOPIC.items()}

    return _walked(events.filter(about), _TOPIC, tuple(rules.OF_TOPIC), rows, facts, keep)


def _walked(
    events: DataFrame,
    by: tuple[str, ...],
    names: Sequence[str],
    rule: Callable[[list[SilverEvent], Facts], Mapping[str, Iterable[Row]]],
    facts: FactsOf,
    keep: Keep,
) -> dict[str, DataFrame]:
    """What a rule says of each group, once for all of its tables: the lines go to the workers a single time."""
    tables = {name: GOLD[name] for name in names}

    def rows(batches: Iterable[Any]) -> Iterator[Any]:
        def found() -> Iterator[tuple[str, Row]]:
            for key, group in groupby(events_in(batches), key=attrgetter(*by)):
                for name, its in rule(list(group), facts[key[0]]).items():
                    yield from ((name, row) for row in its)

        yield from batches_of_tables(tables, found())

    together = events.select(*READ).repartition(*by).sortWithinPartitions(*by)
    schema = StructType([StructField(name, spark_schema(table)) for name, table in tables.items()])
    found = keep(together.mapInArrow(rows, schema))
    return {name: found.filter(F.col(name).isNotNull()).select(f"{name}.*") for name in names}


def illegal_transitions(events: DataFrame) -> DataFrame:
    """Spark leaves out the legal ones; few remain."""
    legal = [f"{source}>{target}" for source, target in illegal.KNOWN]
    move = F.concat_ws(">", "from_state", "to_state")
    is_done = F.col("event").isin("partition_changed", "replica_changed") & ~move.isin(*legal)
    is_refused = F.col("event").isin("partition_change_failed", "replica_change_failed") & F.col("trace").isNotNull()
    few = events.filter(is_done | is_refused).select(*READ)

    def rows(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches_of(IllegalTransition, rules.illegal_transitions_of(events_in(batches)))

    return few.mapInArrow(rows, spark_schema(IllegalTransition))


def extents_of(events: DataFrame) -> dict[str, dict[str, Extent]]:
    """By cluster and topic: how many partitions are named, and when."""
    named = F.col("event").isin(*outages.EVENTS) & F.col("topic").isNotNull() & F.col("partition").isNotNull()
    spans = events.filter(named).groupBy("cluster", "topic")
    counted = spans.agg(F.count_distinct("partition"), F.min("ts_adj"), F.max("ts_adj")).collect()
    found: dict[str, dict[str, Extent]] = {}
    for cluster, topic, partitions, first_ms, last_ms in counted:
        found.setdefault(cluster, {})[topic] = Extent(partitions, first_ms, last_ms)
    return found


def _cluster_tables(
    gold: Mapping[str, DataFrame],
    tallies: Iterable[Tally],
    facts: FactsOf,
    extents: Mapping[str, Mapping[str, Extent]],
    target: float,
) -> dict[str, list[Row]]:
    tallies = list(tallies)
    ended, changes = (list(rows_of(gold[name], GOLD[name])) for name in ("partition_outages", "leader_changes"))
    moved = {name: list(rows_of(gold[name], GOLD[name])) for name in moves.ADDED_UP}
    whole: dict[str, list[Row]] = {name: [] for name in GOLD if name not in gold or name in (*_IN_PARTS, *moved)}
    for cluster, one in facts.items():
        found = rules.of_cluster(
            one,
            [tally for tally in tallies if tally.cluster == cluster],
            rules.cut_at_deletion(extents.get(cluster, {}), one),
            [row for row in ended if row.cluster == cluster],  # type: ignore[attr-defined]
            [row for row in changes if row.cluster == cluster],  # type: ignore[attr-defined]
            target,
            {name: [row for row in rows if row.cluster == cluster] for name, rows in moved.items()},  # type: ignore[attr-defined]
        )
        for name, rows in found:
            whole[name] += rows
    return whole
