"""All answers by Spark: DataFrames in, DataFrames out.

Spark finds the few lines that matter, counts the rest, brings together what is about one partition and sorts it; the
rules of `sparkjobs.answers.rules` walk through each group where it lies, in Arrow batches, a group at a time. Only what
is small travels to the driver: the counts, the lines about controllers and brokers, and, for the tables about the whole
cluster, outages and elections. Workers need pyarrow and this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjobs.answers import illegal, outages, rules
from sparkjobs.answers import rpc_latency_spark as latency
from sparkjobs.answers.conclude import facts_for
from sparkjobs.answers.facts import CLUSTER_EVENTS, TALLIED, Facts, Place, Tally
from sparkjobs.answers.local import Answers, sorted_rows
from sparkjobs.answers.slo import DEFAULT_TARGET, Extent
from sparkjobs.arrow import READ, batches_of, event_of, events_in
from sparkjobs.gold import GOLD, Flapping, IllegalTransition
from sparkjobs.schemas import Row, SilverEvent, spark_schema

FactsOf = Mapping[str, Facts]
_PARTITION: Final = ("cluster", "topic", "partition")
_TOPIC: Final = ("cluster", "topic")


def answers_for(events: DataFrame, target: float = DEFAULT_TARGET) -> Answers:
    """Every table of gold as rows of this process, sorted: equal to `sparkjobs.answers.local`."""
    return {name: sorted_rows(rows_of(frame, GOLD[name])) for name, frame in gold_for(events, target).items()}


def gold_for(events: DataFrame, target: float = DEFAULT_TARGET) -> dict[str, DataFrame]:
    """Every table of gold. `events` is silver; it is read a few times, so it had better be a table."""
    facts = facts_of(tallies := tallies_of(events), events)
    about = of_partitions(events).persist()
    gold = {name: partition_answer(name, about, facts) for name in rules.OF_PARTITION}
    about_topics = of_topics(events).persist()
    gold["stuck_ops"] = topic_answer("stuck_ops", about_topics, facts)
    parts = {  # the other part of each is about the whole cluster
        "flapping": applied(about, Flapping, rules.flapping_of_partition, facts, _PARTITION),
        "operations": topic_answer("operations", about_topics, facts),
    }
    gold["illegal_transitions"] = illegal_transitions(events)
    gold["rpc_latency"] = latency.rpc_latency(events)
    whole = _cluster_tables(gold, tallies, facts, extents_of(events), target)
    for name, rows in whole.items():
        gold[name] = events.sparkSession.createDataFrame(
            [msgspec.structs.astuple(row) for row in rows], spark_schema(GOLD[name])
        )
    return gold | {name: gold[name].unionByName(part) for name, part in parts.items()}


def tallies_of(events: DataFrame) -> list[Tally]:
    """The counts, a row for each kind of line."""
    peer = F.when((F.col("event") == "isr_changed") & (F.col("role") == "controller"), F.col("peer_broker"))
    counted = events.groupBy(
        "cluster",
        *TALLIED,
        peer.alias("peer"),
        F.coalesce(F.col("reason") == "found", F.lit(False)).alias("is_found"),
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
    known = collected(events, CLUSTER_EVENTS)
    by_cluster: dict[str, list[Tally]] = {}
    for one in tallies:
        by_cluster.setdefault(one.cluster, []).append(one)
    facts = {
        cluster: facts_for(cluster, of_cluster, [event for event in known if event.cluster == cluster])
        for cluster, of_cluster in by_cluster.items()
    }
    voices = voices_of(events, {cluster: set(one.moments) for cluster, one in facts.items()})
    return {cluster: replace(one, voices=voices.get(cluster, {})) for cluster, one in facts.items()}


def collected(events: DataFrame, names: Iterable[str]) -> list[SilverEvent]:
    """The few events of these names."""
    few = events.filter(F.col("event").isin(*names)).select(*READ)
    return [event_of(row.asDict()) for row in few.collect()]


def one_by_one(events: DataFrame, names: Iterable[str]) -> Iterator[SilverEvent]:
    """The events of these names, a part of them in memory at a time."""
    for row in events.filter(F.col("event").isin(*names)).select(*READ).toLocalIterator():
        yield event_of(row.asDict())


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
    cut = events.sparkSession.createDataFrame(table, "cluster string, broker int, bounds array<bigint>")
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


def of_partitions(events: DataFrame) -> DataFrame:
    """What the rules about partitions read, brought together by partition."""
    wanted = F.col("event").isin(*rules.PARTITION_EVENTS) & F.col("topic").isNotNull() & F.col("partition").isNotNull()
    return events.filter(wanted).select(*READ).repartition(*_PARTITION).sortWithinPartitions(*_PARTITION)


def partition_answer(name: str, about: DataFrame, facts: FactsOf) -> DataFrame:
    """One question about every partition. `about` comes from `of_partitions`."""
    rule = rules.OF_PARTITION[name]
    return applied(about.filter(F.col("event").isin(*rule.events)), GOLD[name], rule.rows, facts, _PARTITION)


def of_topics(events: DataFrame) -> DataFrame:
    """What the rules about topics read, brought together by topic."""
    wanted = F.col("event").isin(*rules.TOPIC_EVENTS) & F.col("topic").isNotNull()
    return events.filter(wanted).select(*READ).repartition(*_TOPIC).sortWithinPartitions(*_TOPIC)


def topic_answer(name: str, about: DataFrame, facts: FactsOf) -> DataFrame:
    """One question about every topic. `about` comes from `of_topics`."""
    rule = rules.OF_TOPIC[name]
    return applied(about.filter(F.col("event").isin(*rule.events)), GOLD[name], rule.rows, facts, _TOPIC)


def illegal_transitions(events: DataFrame) -> DataFrame:
    """Spark leaves out the legal ones; few remain."""
    legal = [f"{source}>{target}" for source, target in illegal.LEGAL]
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


def applied(
    about: DataFrame,
    table: type[Row],
    rule: Callable[[list[SilverEvent], Facts], Iterator[Row]],
    facts: FactsOf,
    by: tuple[str, ...],
) -> DataFrame:
    """A rule applied to each group; `about` has each group's rows together."""

    def rows(batches: Iterable[Any]) -> Iterator[Any]:
        def found() -> Iterator[Row]:
            for key, group in groupby(events_in(batches), key=lambda event: tuple(getattr(event, one) for one in by)):
                yield from rule(list(group), facts[key[0]])

        yield from batches_of(table, found())

    return about.mapInArrow(rows, spark_schema(table))


def _cluster_tables(
    gold: Mapping[str, DataFrame],
    tallies: Iterable[Tally],
    facts: FactsOf,
    extents: Mapping[str, Mapping[str, Extent]],
    target: float,
) -> dict[str, list[Row]]:
    tallies = list(tallies)
    ended, changes = (list(rows_of(gold[name], GOLD[name])) for name in ("partition_outages", "leader_changes"))
    whole: dict[str, list[Row]] = {name: [] for name in GOLD if name not in gold}
    for cluster, one in facts.items():
        found = rules.of_cluster(
            one,
            [tally for tally in tallies if tally.cluster == cluster],
            rules.cut_at_deletion(extents.get(cluster, {}), one),
            [row for row in ended if row.cluster == cluster],  # type: ignore[attr-defined]
            [row for row in changes if row.cluster == cluster],  # type: ignore[attr-defined]
            target,
        )
        for name, rows in found:
            whole[name] += rows
    return whole


def rows_of(frame: DataFrame, table: type[Row]) -> Iterator[Row]:
    """The frame's rows as instances."""
    for row in frame.collect():
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in row.asDict().items()}
        yield table(**values)
