"""The job of `sparkjobs.rules.rpc_latency` by Spark alone: joins and percentiles, no Python in between."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sparkjobs.parse.moments import HOUR_MS
from sparkjobs.rules import receipts
from sparkjobs.rules.facts import DONE, Facts
from sparkjobs.rules.rpc_latency import (
    OF_A_BATCH,
    RECEIPTS,
    Group,
)
from sparkjobs.tables.gold import RpcLatency
from sparkjobs.tables.silver import spark_schema


def _hour() -> Column:
    """Columns are made where a session is."""
    return (F.floor(F.col("ts_adj") / HOUR_MS) * HOUR_MS).cast("bigint").alias("hour_ms")


def rpc_latency(events: DataFrame, facts: Mapping[str, Facts], *, is_old: bool) -> DataFrame:
    """Percentiles by nearest rank, as Spark computes them itself. `is_old`: there are answers that do not say to which
    kind of request."""
    ranks = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
    group = [name for name in Group._fields if name != "side"]
    known = (F.col("event") == "request_done") & F.col("elapsed_ms").isNotNull() & F.col("broker").isNotNull()
    done = events.filter(known).select(
        "cluster",
        _hour(),
        "broker",
        F.coalesce("api", F.lit("unknown")).alias("api"),
        F.lit("broker").alias("side"),
        F.col("elapsed_ms").alias("took_ms"),
    )
    if any(one.by_number for one in facts.values()):
        done = done.unionByName(worked(events.filter(is_by_number(facts))))
    if is_old:
        done = done.unionByName(answered_in_turn(events))
    return (
        done.unionByName(acknowledged(events))
        .groupBy(*group, "side")
        .agg(
            F.count("*").cast("int").alias("requests"),
            *(
                F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY took_ms)").alias(name)
                for name, share in ranks.items()
            ),
            F.max("took_ms").alias("max_ms"),
        )
        .select(*(F.col(field.name).cast(field.dataType) for field in spark_schema(RpcLatency).fields))
    )


def is_by_number(facts: Mapping[str, Facts]) -> Column:
    """A line of a broker that names what it did by a request's number alone."""
    is_its = F.lit(False)
    for cluster, one in facts.items():
        if one.by_number:
            is_its |= (F.col("cluster") == cluster) & F.coalesce(F.col("broker").isin(*one.by_number), F.lit(False))
    return F.col("event").isin(*receipts.EVENTS) & F.coalesce(F.col("api") == receipts.API, F.lit(False)) & is_its


def worked(calls: DataFrame) -> DataFrame:
    """As `receipts.done_in`: a receipt after something was done begins another request with that number."""
    request = list(receipts.Request._fields)
    is_done = F.col("event") == DONE
    order = Window.partitionBy(*request).orderBy("ts_utc", is_done, "file_id", "line_no")
    begins = ~is_done & F.coalesce(F.lag(is_done).over(order), F.lit(False))
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    place = F.struct("ts_utc", "file_id", "line_no")
    return (
        calls.dropna(subset=request)
        .select(*request, "event", "ts_utc", "ts_adj", "file_id", "line_no", begins.cast("int").alias("begins"))
        .select("*", F.sum("begins").over(so_far).alias("nth"))
        .groupBy(*request, "nth")
        .agg(
            F.min(F.when(~is_done, F.col("ts_utc"))).alias("received"),
            F.max_by(F.struct("ts_utc", _hour()), F.when(is_done, place)).alias("done"),
        )
        .filter(F.col("received").isNotNull() & F.col("done").isNotNull())
        .select(
            "cluster",
            "done.hour_ms",
            "broker",
            F.lit(receipts.API).alias("api"),
            F.lit("broker").alias("side"),
            (F.col("done.ts_utc") - F.col("received")).cast("double").alias("took_ms"),
        )
    )


def answered_in_turn(events: DataFrame) -> DataFrame:
    """Each request of 0.8 that was answered: answers with one number come in the order of the batch."""
    batch = ["cluster", "broker", "controller_epoch", "peer_broker", "correlation_id"]
    numbered = events.dropna(subset=batch)
    sent = numbered.filter((F.col("event") == "request_sent") & F.col("api").isin(*OF_A_BATCH)).select(
        *batch,
        "api",
        F.col("ts_utc").alias("sent_ms"),
        F.dense_rank().over(Window.partitionBy(*batch).orderBy("api")).alias("nth"),
    )
    answers = numbered.filter((F.col("event") == "response_received") & F.col("api").isNull()).select(
        *batch,
        F.struct("ts_utc", _hour()).alias("answer"),
        F.row_number().over(Window.partitionBy(*batch).orderBy("ts_utc", "file_id", "line_no")).alias("nth"),
    )
    return (
        answers.join(sent, [*batch, "nth"])
        .filter(F.col("sent_ms") <= F.col("answer.ts_utc"))
        .groupBy(*batch, "nth", "api", "answer")
        .agg(F.max("sent_ms").alias("sent_ms"))
        .select(
            "cluster",
            "answer.hour_ms",
            F.col("peer_broker").alias("broker"),
            "api",
            F.lit("controller").alias("side"),
            (F.col("answer.ts_utc") - F.col("sent_ms")).cast("double").alias("took_ms"),
        )
    )


def acknowledged(events: DataFrame) -> DataFrame:
    """Each request of which both sides speak, from its last sending to its acknowledgement."""
    request = ["cluster", "of", "controller_epoch", "to", "api", "correlation_id"]
    place = F.struct("ts_utc", "file_id", "line_no")
    numbered = events.filter("correlation_id IS NOT NULL AND controller_epoch IS NOT NULL AND api IS NOT NULL")
    receipts = (
        numbered.filter(F.col("event").isin(*RECEIPTS))
        .withColumnsRenamed({"controller": "of", "broker": "to"})
        .dropna(subset=["of", "to"])
        .groupBy(*request, F.expr("topic IS NULL AND n_partitions IS NOT NULL").alias("is_batch"))
        .agg(F.min_by(F.struct(*_ABOUT), place).alias("first"))
        .select(*request, *[F.col(f"first.{name}").alias(f"{name}_of_it") for name in _ABOUT])
    )
    answers = (
        numbered.filter("event = 'response_received'")
        .withColumnsRenamed({"broker": "of", "peer_broker": "to"})
        .dropna(subset=["of", "to"])
        .groupBy(*request)
        .agg(F.min_by(F.struct("ts_utc", _hour()), place).alias("answer"))
    )
    sent = events.filter("event = 'request_sent' AND controller_epoch IS NOT NULL").select(
        "cluster",
        F.col("broker").alias("of"),
        "controller_epoch",
        "api",
        *_ABOUT,
        "peer_broker",
        "replicas",
        F.col("ts_utc").alias("sent_ms"),
    )
    pairs = receipts.join(answers, request).alias("told").join(sent.alias("sent"), _is_of_it())
    return (
        pairs.select(*[f"told.{name}" for name in request], "answer", "sent_ms")
        .groupBy(*request)
        .agg(F.max("sent_ms").alias("sent_ms"), F.first("answer").alias("answer"))
        .select(
            "cluster",
            "answer.hour_ms",
            F.col("to").alias("broker"),
            "api",
            F.lit("controller").alias("side"),
            (F.col("answer.ts_utc") - F.col("sent_ms")).cast("double").alias("took_ms"),
        )
    )


_ABOUT = ("topic", "partition", "leader_epoch", "n_partitions")


def _is_of_it() -> Column:
    """A sending says what the receipt does, was before the answer, and to that broker."""
    same = [F.col(f"told.{name}") == F.col(f"sent.{name}") for name in ("cluster", "of", "controller_epoch", "api")]
    same += [F.col(f"told.{name}_of_it").eqNullSafe(F.col(f"sent.{name}")) for name in _ABOUT]
    to = F.col("told.to")
    is_to_it = F.coalesce(
        F.col("sent.peer_broker") == to, F.col("sent.topic").isNotNull() | F.array_contains("sent.replicas", to)
    )
    return reduce(Column.__and__, same) & (F.col("sent.sent_ms") <= F.col("told.answer.ts_utc")) & is_to_it
