"""The parser as a Spark plan: lines to silver, by the catalogue of `sparkjobs.parse`, without Python in the hot path.

The way of a line is that of `sparkjobs.parse.lines`, step by step, and a test holds the rows of both together. Per
line one expression finds the header and one fills the slots; which one, is decided by how the body begins. Pure:
DataFrame in, DataFrame out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sparkjobs.parse import lines as rules
from sparkjobs.parse.layouts import JSON_FIELDS, WRAPPERS, layout_for
from sparkjobs.parse.patterns import INT_SLOTS, LIST_SLOTS, LONG_SLOTS, SLOTS, Shape
from sparkjobs.parse.shapes import API_NAMES, KEY_LENGTH, RECOVERY_NAMES, REFUSALS, SHAPES, STATE_NAMES, UNLISTED
from sparkjobs.schemas import LINE_KEPT, LINE_LIMIT, BronzeFile
from sparkjobs.spark.columns import first_that, quoted
from sparkjobs.spark.moments import millis_column

SEP: Final = "\x01"
_PLACE: Final = ("cluster", "file_id", "line_no", "line")
_ONLY_OURS: Final = {"zxid": "bigint", "topic_id": "string", "cause_id": "string"}


def whole(expression: str) -> str:
    """As Python's fullmatch, for Java."""
    return rf"(?s)\A(?:{expression})\z"


def with_text(raw: DataFrame) -> DataFrame:
    """`value` becomes `line`; what stands around it is taken off; what is no text has its reason."""
    line = F.when(F.col("is_text"), F.col("value")).otherwise(F.make_valid_utf8("value"))
    reason = F.when(F.length("line") > LINE_LIMIT, F.lit("too_long")).when(
        ~F.col("is_text") & F.col("line").rlike(rules.NOT_TEXT), F.lit("encoding")
    )
    bare = F.regexp_replace("line", r"\r\z", "")
    text = F.when(F.col("wrapper").isNull(), F.when(F.col("line").endswith("\r"), bare).otherwise(F.col("line")))
    for name, around in WRAPPERS.items():
        text = text.when(F.col("wrapper") == name, F.regexp_replace(bare, around, ""))
    fields = [F.get_json_object("line", f"$.{name}") for name in JSON_FIELDS]
    inner = F.regexp_replace(F.coalesce(*fields), r"[\r\n]+\z", "")
    text = text.otherwise(F.when(F.trim("line") == "", F.col("line")).otherwise(inner))
    return (
        raw.select("*", line.alias("line"))
        .select("*", reason.alias("reason"))
        .select("*", F.when(F.col("reason").isNull(), text).alias("text"))
    )


def with_header(lines: DataFrame, layouts: Sequence[str]) -> DataFrame:
    """`head`: date, level, logger and message divided by SEP; `is_open` where the message goes on in the next line."""
    full, opening, shuts = [], [], []
    for pattern in layouts:
        layout = layout_for(pattern)
        is_it = F.col("layout") == pattern
        places = layout.places
        full.append((is_it, F.regexp_replace("text", whole(layout.expression), _template(places, places.values()))))
        shown = [number for number in places.values() if number <= places["message"]]
        opened = F.regexp_replace("text", whole(layout.opening_expression), _template(places, shown))
        opening.append((is_it, opened))
        shuts.append((is_it, F.lit(not layout.ends_with_message)))
    is_header = F.instr(F.col("full"), SEP) > 0
    return (
        lines.select("*", first_that(full, F.lit(None)).alias("full"))
        .select("*", F.when(is_header, F.col("full")).otherwise(first_that(opening, F.lit(None))).alias("head"))
        .select(
            "*",
            (~F.coalesce(is_header, F.lit(False))).alias("is_open"),
            F.coalesce(first_that(shuts, F.lit(False)), F.lit(False)).alias("shuts"),
            F.split("head", SEP).alias("heads"),
        )
        .select(
            "*",
            F.coalesce(F.size("heads") == 4, F.lit(False)).alias("has_header"),
            F.when(F.size("heads") == 4, F.get("heads", F.lit(0))).alias("ts_raw"),
            F.when(F.size("heads") == 4, F.get("heads", F.lit(1))).alias("level"),
            F.when(F.size("heads") == 4, F.substring_index(F.get("heads", F.lit(2)), ":", 1)).alias("logger"),
            F.when(F.size("heads") == 4, F.get("heads", F.lit(3))).alias("message"),
        )
    )


def _template(places: dict[str, int], shown: Iterable[int]) -> str:
    known = set(shown)
    names = ("ts", "level", "logger", "message")
    return SEP.join(f"${places[name]}" if places.get(name) in known else "" for name in names)


def with_speaker(lines: DataFrame) -> DataFrame:
    """`who` and `epoch` from the prefix, `body` after it, `key` as how it begins."""
    is_bracketed = F.col("message").startswith("[") & F.col("message").contains("]")
    prefix = F.when(is_bracketed, F.substring_index("message", "]", 1))
    after = F.expr("ltrim(':, ', substr(message, length(prefix) + 2))")
    is_old = F.col("rest").startswith("Controller ") | F.col("rest").startswith("Broker ")
    old = F.when(is_old, F.regexp_extract("rest", rf"\A{rules.OLD_WHO}", 0))
    old_numbers = F.when(F.col("old") != "", F.regexp_replace("old", whole(rules.OLD_WHO_ALONE), f"$1{SEP}$2"))
    numbers = F.when(
        F.col("prefix").isNotNull(),
        F.regexp_replace("prefix", whole(f".*?{rules.WHO}.*"), f"{SEP}$1{SEP}$2"),
    )
    said = F.split("numbers", SEP)
    old_said = F.split("old_numbers", SEP)
    who = F.when(F.size(said) == 3, _int(F.get(said, F.lit(1))))
    start = F.lower(F.substring(F.ltrim("body", F.lit(rules.DIGITS)), 1, KEY_LENGTH))
    key = F.when(F.substring("body", 1, 1).between("0", "9"), F.concat(F.lit("#"), start)).otherwise(
        F.lower(F.substring("body", 1, KEY_LENGTH))
    )
    is_server = F.col("logger").endswith("KafkaServer") | F.col("message").startswith("[KafkaServer ")
    return (
        lines.select("*", prefix.alias("prefix"))
        .select("*", F.when(is_bracketed, after).otherwise(F.col("message")).alias("rest"), numbers.alias("numbers"))
        .select("*", old.alias("old"))
        .select(
            "*",
            F.when(F.col("old") != "", F.expr("substr(rest, length(old) + 1)")).otherwise(F.col("rest")).alias("body"),
            old_numbers.alias("old_numbers"),
        )
        .select(
            "*",
            F.coalesce(who, _int(F.get(old_said, F.lit(0)))).alias("who"),
            F.coalesce(F.when(F.size(said) == 3, _int(F.get(said, F.lit(2)))), _int(F.get(old_said, F.lit(1)))).alias(
                "epoch"
            ),
            F.when(is_server, F.concat(F.lit("kafkaserver: "), key)).otherwise(key).alias("key"),
        )
    )


def _int(text: Column) -> Column:
    return F.nullif(text, F.lit("")).cast("int")


def with_slots(lines: DataFrame) -> DataFrame:
    """`shape_no`, the place of the shape in the catalogue, and `slots`, what its groups captured."""
    routes = " ".join(f"WHEN {_fits(shape)} THEN {number}" for number, shape in enumerate(SHAPES))
    filled = " ".join(f"WHEN {number} THEN {_filled(shape)}" for number, shape in enumerate(SHAPES))
    captured = f"CASE WHEN is_open OR shape_no IS NULL THEN NULL ELSE CASE shape_no {filled} END END"
    return (
        lines.select("*", F.expr(f"CASE {routes} END").alias("shape_no"))
        .select("*", F.expr(captured).alias("captured"))
        .select("*", F.split("captured", SEP).alias("slots"))
        .select("*", (F.coalesce(F.size("slots"), F.lit(0)) == len(SLOTS) + 1).alias("is_known"))
    )


def _fits(shape: Shape) -> str:
    fits = f"startswith(key, {quoted(shape.anchor)})"
    return f"{fits} AND contains(body, {quoted(shape.mark)})" if shape.mark else fits


def _filled(shape: Shape) -> str:
    groups = ["".join(f"${group}" for group in shape.groups.get(slot, ())) for slot in SLOTS]
    subject = "message" if shape.is_on_message else "body"
    return f"regexp_replace({subject}, {quoted(whole(shape.pattern))}, {quoted(SEP + SEP.join(groups))})"


def judged(lines: DataFrame) -> DataFrame:
    """`reason`: why it is no event; `continuation` for what belongs to the line above; null for an event."""
    is_state_log = F.col("logger").isin(*rules.STATE_LOGGERS) | (
        (F.col("logger") == "") & (F.col("kind") == "state-change")
    )
    is_cut = ~F.col("is_whole") & (F.col("line_no") == F.col("lines"))
    reason = (
        F.when(F.col("reason").isNotNull(), F.col("reason"))
        .when(is_cut & ((~F.col("has_header")) | F.col("is_open")) & (F.col("text") != ""), F.lit("torn"))
        .when(~F.col("has_header") & F.col("text").rlike(rf"\A(?:{rules.CONTINUATION})"), F.lit(rules.CONTINUES))
        .when(~F.col("has_header") | F.col("text").isNull(), F.lit("no_header"))
        .when(is_cut & ~F.col("shuts"), F.lit("torn"))
        .when(F.col("ts_utc").isNull(), F.lit("bad_timestamp"))
        .when(F.col("is_open") & F.col("shape_no").isNotNull(), F.lit("torn"))
        .when(~F.col("is_known") & is_state_log & F.col("is_open"), F.lit("torn"))
        .when(~F.col("is_known") & is_state_log, F.lit("unknown_shape"))
    )
    return lines.select("*", millis_column("ts_raw", "tz").alias("ts_utc")).select(
        *[name for name in [*lines.columns, "ts_utc"] if name != "reason"], reason.alias("reason")
    )


def read_kafka(raw: DataFrame, files: Sequence[BronzeFile]) -> DataFrame:
    """All steps, for files in log4j layouts."""
    layouts = sorted({file.layout for file in files if file.layout not in (None, "klamm")})
    steps = (with_text, lambda lines: with_header(lines, layouts), with_speaker, with_slots, judged)
    return reduce(lambda lines, step: step(lines), steps, raw)


def events_of(lines: DataFrame) -> DataFrame:
    """Silver columns of those lines that are events; `trace` is not known yet."""
    slot = {
        name: F.when(F.col("is_known"), F.get("slots", F.lit(number))) for number, name in enumerate(SLOTS, start=1)
    }
    text = {name: F.nullif(value, F.lit("")) for name, value in slot.items()}
    number = {name: text[name].cast("bigint" if name in LONG_SLOTS else "int") for name in (*INT_SLOTS, *LONG_SLOTS)}
    ids = {name: _ints(text[name]) for name in LIST_SLOTS}
    broker = F.coalesce(F.col("who"), F.col("file_broker"))
    role = F.coalesce(_constant("role"), F.lit("server"))
    event = F.coalesce(_constant("event"), F.lit("other"))
    identity = [F.col("cluster"), F.coalesce(broker.cast("string"), F.lit("")), F.col("ts_raw"), F.col("message")]
    is_controllers = F.col("is_known") & (role == "controller")
    said = {
        "controller": F.coalesce(number["controller"], F.when(is_controllers, F.col("who"))),
        "controller_epoch": F.coalesce(number["controller_epoch"], F.when(F.col("is_known"), F.col("epoch"))),
        "from_state": _renamed(text["from_state"], STATE_NAMES),
        "to_state": _renamed(text["to_state"], STATE_NAMES),
        "recovery": _renamed(text["recovery"], RECOVERY_NAMES),
        "api": _renamed(F.coalesce(text["api"], _constant("api")), API_NAMES),
        "reason": F.coalesce(text["reason"], _constant("reason")),
        "error": _error(text["error"], F.coalesce(text["reason"], _constant("reason"), F.lit("")), event),
        "n_partitions": number["n_partitions"] + F.coalesce(number["n_more"], F.lit(0)),
        "elapsed_ms": number["elapsed_ms"].cast("double"),
        "leader": number["leader"],
        "isr": ids["isr"],
    }
    plain = {
        **{name: ids[name] for name in LIST_SLOTS},
        **{name: number[name] for name in (*INT_SLOTS, *LONG_SLOTS)},
        "topic": text["topic"],
        **said,
    }
    del plain["n_more"]
    return lines.select(
        *_PLACE[:3],
        F.col("reason").alias("fate"),
        F.col("trace_head"),
        F.substring("line", 1, LINE_KEPT).alias("line"),
        F.substring(F.sha2(F.concat_ws("\x1f", *identity), 256), 1, 32).alias("event_id"),
        *[F.col(name) for name in ("ts_raw", "ts_utc", "level")],
        broker.alias("broker"),
        role.alias("role"),
        event.alias("event"),
        F.coalesce(_constant("shape_id"), F.lit(UNLISTED)).alias("shape_id"),
        *[value.alias(name) for name, value in plain.items()],
        *[F.lit(None).cast(kind).alias(name) for name, kind in _ONLY_OURS.items()],
    )


def _constant(name: str) -> Column:
    """What follows from the shape alone: an array literal, by the shape's place in the catalogue."""
    values = [getattr(shape, name) if hasattr(shape, name) else shape.constants.get(name) for shape in SHAPES]
    literal = ", ".join("cast(null as string)" if value is None else quoted(value) for value in values)
    return F.expr(f"CASE WHEN is_known THEN get(array({literal}), shape_no) END")


def _renamed(value: Column, names: dict[str, str]) -> Column:
    return first_that([(value == old, F.lit(new)) for old, new in names.items()], value)


def _error(error: Column, reason: Column, event: Column) -> Column:
    given = F.coalesce(error, _constant("error"))
    refusal = first_that([(reason.contains(words), F.lit(name)) for words, name in REFUSALS], F.lit(None))
    is_ignored = (event == "request_ignored") & given.isNull()
    is_good = (event == "response_received") & (given == "0")
    return F.when(is_ignored, refusal).when(is_good, F.lit(None)).otherwise(given)


def _ints(text: Column) -> Column:
    bare = F.when(
        text.contains("B"), F.regexp_replace(text, r"BrokerState\(brokerId=(\d+), brokerEpoch=-?\d+\)", "$1")
    ).otherwise(text)
    parts = F.filter(F.split(bare, ","), lambda part: F.trim(part) != "")
    return F.when(F.size(parts) > 0, F.transform(parts, lambda part: F.trim(part).cast("int")))
