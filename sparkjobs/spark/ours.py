"""Our own JSON lines as a Spark plan: what `sparkjobs.parse.ours` does. Pure: DataFrame in, DataFrame out."""

from __future__ import annotations

from typing import Final, get_args, get_type_hints

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sparkjobs.parse import lines as rules
from sparkjobs.parse.ours import APIS, EVENT_OF, REASSIGNMENT_OF, OurLine
from sparkjobs.schemas import LINE_KEPT, LINE_LIMIT
from sparkjobs.spark.columns import first_that

_LONG: Final = ("at_ms", "version", "zxid", "broker_epoch")
_LAST_MS: Final = 253_402_300_800_000


def line_schema() -> str:
    """Of a JSON line, from what the local engine reads of it."""
    kinds = {int: "int", str: "string", float: "double"}
    columns = []
    for name, hint in get_type_hints(OurLine).items():
        plain = next((one for one in get_args(hint) if one is not type(None)), hint)
        columns.append(f"{name} {'bigint' if name in _LONG else kinds.get(plain, 'array<int>')}")
    return ", ".join([*columns, "corrupt string"])


def read_ours(raw: DataFrame) -> DataFrame:
    """The staging table's columns."""
    parsed = F.from_json("text", line_schema(), {"columnNameOfCorruptRecord": "corrupt", "mode": "PERMISSIVE"})
    lines = raw.select("*", F.make_valid_utf8("value").alias("line")).select(
        "*", F.regexp_replace("line", r"\r\z", "").alias("text")
    )
    return (
        lines.select("*", parsed.alias("one"))
        .select("*", _fate().alias("fate"))
        .select(*[column.alias(name) for name, column in _columns().items()])
    )


def _fate() -> Column:
    one = F.col("one")
    is_cut = ~F.col("is_whole") & (F.col("line_no") == F.col("lines"))
    is_one = F.rtrim("text").endswith("}") & ~F.col("text").contains("}{")  # Spark reads no further than the first
    is_line = is_one & one["corrupt"].isNull() & one["at_ms"].isNotNull() & one["kind"].isNotNull()
    return (
        F.when(F.length("line") > LINE_LIMIT, F.lit("too_long"))
        .when(~F.col("is_text") & F.col("line").rlike(rules.NOT_TEXT), F.lit("encoding"))
        .when(F.trim("text") == "", F.lit(rules.CONTINUES))
        .when(~is_line & (is_cut | F.col("text").startswith("{")), F.lit("torn"))
        .when(~is_line, F.lit("no_header"))
        .when((one["at_ms"] < 0) | (one["at_ms"] >= _LAST_MS), F.lit("bad_timestamp"))
    )


def _columns() -> dict[str, Column]:
    one = F.col("one")
    kind, target = one["kind"], one["target"]
    is_rpc = kind == "rpc"
    event = first_that([(kind == name, F.lit(event)) for name, event in EVENT_OF.items()], F.lit("other"))
    step = first_that([(target == name, F.lit(event)) for name, event in REASSIGNMENT_OF.items()], F.lit(None))
    event = F.when(kind == "reassignment", F.coalesce(step, F.lit("reassignment_step"))).otherwise(event)
    api = F.substring_index(one["reason"], ":", 1)
    broker = F.coalesce(F.when(is_rpc, one["broker_id"]), one["controller_id"], F.col("file_broker"))
    at_ms = one["at_ms"].cast("string")
    identity = [F.col("cluster"), F.coalesce(broker.cast("string"), F.lit("")), at_ms, F.col("text")]
    same = ("topic", "partition", "reason", "leader", "leader_epoch", "version", "zxid", "topic_id", "broker_epoch")
    nothing = {"replicas": "array<int>", "added": "array<int>", "removed": "array<int>", "correlation_id": "bigint"}
    return {
        **{name: F.col(name) for name in ("cluster", "file_id", "line_no", "fate")},
        "line": F.substring("line", 1, LINE_KEPT),
        "event_id": F.substring(F.sha2(F.concat_ws("\x1f", *identity), 256), 1, 32),
        "ts_raw": at_ms,
        "ts_utc": one["at_ms"],
        "level": F.lit("INFO"),
        "broker": broker,
        "role": F.when(is_rpc, F.lit("broker")).otherwise(F.lit("controller")),
        "event": event,
        "shape_id": F.when(event == "other", F.lit("klamm.other")).otherwise(F.concat(F.lit("klamm."), kind)),
        "controller": one["controller_id"],
        "controller_epoch": one["controller_epoch"],
        "cause_id": one["event_id"],
        "peer_broker": F.when(~is_rpc, one["broker_id"]),
        "from_state": one["source"],
        "to_state": target,
        "isr": F.when(F.size(one["isr"]) > 0, one["isr"]),
        "elapsed_ms": one["took_ms"],
        "api": F.when(is_rpc, first_that([(api == old, F.lit(new)) for old, new in APIS.items()], F.lit(None))),
        "error": F.when(one["error_code"] != 0, one["error_code"].cast("string")),
        **{name: one[name] for name in same},
        **{name: F.lit(None).cast(kind) for name, kind in nothing.items()},
        "n_partitions": F.lit(None).cast("int"),
        "recovery": F.lit(None).cast("string"),
        "trace_head": F.lit(None).cast("string"),
    }
