"""The tables between the jobs: their names, columns and types, each declared once.

A table is a class. Rules make instances of it; `spark_schema` turns the same declaration into Spark's types, and
`TABLES` names the folder it lives in. Silver holds the parser's result, a row per line of a log, without any
conclusion; the conclusions (gold) are declared in `sparkjobs.tables.gold`.

Moments are milliseconds since 1970 in UTC, as whole numbers: `ts_utc` as the log says it, `ts_adj` after the clock's
error was taken out. A place is (file_id, line_no): the content's hash and the line's number in it, from 1. `NULL` or
`None` always means that the line does not say; 0 is a value. This module must never read or write anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

#: raised by one when a line would now be read as another row; rows of another catalogue are read again
CATALOG_VERSION: Final = 9

#: milliseconds, versions, zxids: 64 bits; a plain `int` is 32
Long = Annotated[int, "bigint"]
Ints = tuple[int, ...]  # an empty list in a line is None here
Texts = tuple[str, ...]


class Row(msgspec.Struct, frozen=True, gc=False):
    """The base of every table's rows. Columns in the order of declaration."""


class BronzeFile(Row, kw_only=True, frozen=True):
    """One content, however many files hold it, compressed or not."""

    file_id: str  # sha256 of the content, not compressed
    cluster: str
    paths: Texts  # sorted; all but the first are copies
    size_bytes: Long
    kind: str  # state-change, controller, server, json, mixed, unknown
    layout: str | None = None  # how its lines begin: a name of sparkjobs.parse.layouts
    wrapper: str | None = None  # the text around each line: docker, grep, json
    tz: str
    zones: Texts = ()  # of others that may speak in it: 2=Europe/Berlin, *=UTC
    broker: int | None = None  # whose log it is, by its path or by its first lines
    first_ts: Long | None = None
    last_ts: Long | None = None
    lines: Long
    blocks: tuple[Long, ...] = ()  # how many newlines stand above each block but the first
    is_whole: bool  # ends with a newline
    is_gzip: bool = False  # as the first of its paths holds it
    is_text: bool = True  # no control characters, and UTF-8 throughout
    status: str  # read, empty, vanished, unreadable
    trouble: str | None = None
    catalog_version: int = CATALOG_VERSION


class SilverEvent(Row, kw_only=True, frozen=True):
    """One line understood. `event` is a name of sparkjobs.parse.shapes."""

    cluster: str
    dt: str  # the day of ts_utc, yyyy-MM-dd
    event_id: str  # the same line has the same id, whichever copy of it was read
    ts_raw: str
    ts_utc: Long
    ts_adj: Long
    skew_ms: int | None = None
    skew_err_ms: int | None = None
    broker: int | None = None  # the writer of the line
    role: str  # controller, broker, server, quorum (KRaft's controllers)
    level: str
    controller: int | None = None  # whose order, or whose epoch, the line tells of
    controller_epoch: int | None = None
    event: str
    topic: str | None = None
    partition: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: Ints | None = None
    replicas: Ints | None = None  # the assignment; of brokers_changed, brokers_met: all live brokers
    added: Ints | None = None  # of brokers_changed: brokers that came; otherwise: replicas being added
    removed: Ints | None = None  # of brokers_changed: brokers that went; otherwise: replicas being removed, or offline
    version: Long | None = None  # of the state znode; in KRaft the partition epoch
    peer_broker: int | None = None  # the other side of a request; of replica events: the replica's broker
    correlation_id: Long | None = None
    api: str | None = None  # LeaderAndIsr, UpdateMetadata, StopReplica, ...
    error: str | None = None
    elapsed_ms: float | None = None
    n_partitions: int | None = None
    recovery: str | None = None  # RECOVERED, RECOVERING
    unclean: bool | None = None  # only our own logs: the leader was not in sync
    cause: str | None = None  # only our own logs: why, in one word of docs/state-change-log.md
    reason: str | None = None  # in words for people; no rule reads them
    zxid: Long | None = None  # only our own logs: the order of commits, needs no clock
    topic_id: str | None = None
    broker_epoch: Long | None = None
    cause_id: str | None = None  # only our own logs: links all lines of one cause
    machine: str | None = None  # of states_moved: whose states these are: partition, replica
    partitions: Texts | None = None  # of states_moved: a topic and its partitions each, as "orders 0-4,7"
    part: int | None = None  # of states_moved: with cause_id it names the line
    offset: Long | None = None  # of a replica's log, or of the metadata log: where the subject of the line begins
    records: Long | None = None  # of records_truncated: how many a replica removed, from `offset` on
    records_lost: Long | None = None  # how many of them, from the first on, had been committed
    records_epoch: int | None = None  # under which leader epoch the first was written
    trace: str | None = None  # the exception's first line, when one follows
    file_id: str
    line_no: Long
    shape_id: str
    line: str  # as it stands in the log, at most LINE_KEPT characters
    catalog_version: int = CATALOG_VERSION


#: columns of silver that no rule reads, and their values where events travel
UNREAD: Final[dict[str, Any]] = {"dt": "", "ts_raw": "", "shape_id": "", "line": ""}


class SilverQuarantine(Row, kw_only=True, frozen=True):
    """One line that could not be understood, and why."""

    cluster: str
    file_id: str
    line_no: Long
    reason: str  # no_header, unknown_shape, bad_timestamp, torn, encoding, too_long
    line: str
    catalog_version: int = CATALOG_VERSION


class SilverCount(Row, kw_only=True, frozen=True):
    """Where the lines of one file went: lines = events + continuations + duplicates + quarantined."""

    cluster: str
    path: str
    file_id: str
    lines: Long
    events: Long
    continuations: Long  # of stack traces and dumps, and empty lines: they belong to the event above
    duplicates: Long  # the same line, read already; of a file's copy: all lines
    quarantined: Long
    catalog_version: int = CATALOG_VERSION


class SilverSkew(Row, kw_only=True, frozen=True):
    """How far a broker's clock was ahead of the reference's in one hour."""

    cluster: str
    broker: int
    hour: Long  # its start
    offset_ms: int
    err_ms: int | None = None
    method: str  # reference, round_trips, one_way, assumed
    samples: int
    catalog_version: int = CATALOG_VERSION


#: characters of a line that are kept; a line longer than LINE_LIMIT bytes is not parsed at all
LINE_KEPT: Final = 2_000
LINE_LIMIT: Final = 1_000_000

TABLES: Final[dict[str, type[Row]]] = {
    "bronze_files": BronzeFile,
    "silver_events": SilverEvent,
    "silver_quarantine": SilverQuarantine,
    "silver_counts": SilverCount,
    "silver_skew": SilverSkew,
}

_SQL_TYPES: Final[dict[Any, str]] = {int: "int", str: "string", bool: "boolean", float: "double"}


def columns_of(table: type[Row]) -> dict[str, str]:
    """Names and SQL types, in order: `{"leader": "int", "isr": "array<int>", ...}`."""
    return {name: _sql_type(hint) for name, hint in get_type_hints(table, include_extras=True).items()}


def spark_schema(table: type[Row]) -> StructType:
    """Returns the same as Spark's types. A column is nullable where the declaration allows `None`."""
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415 - only Spark has pyspark

    return StructType(
        [
            StructField(name, _spark_type(_sql_type(hint)), nullable=_is_optional(hint))
            for name, hint in get_type_hints(table, include_extras=True).items()
        ]
    )


def _is_optional(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _sql_type(hint: Any) -> str:
    if hasattr(hint, "__metadata__"):
        return str(hint.__metadata__[0])
    if _is_optional(hint):
        return _sql_type(next(one for one in get_args(hint) if one is not type(None)))
    if get_origin(hint) is tuple:
        return f"array<{_sql_type(get_args(hint)[0])}>"
    return _SQL_TYPES[hint]


def _spark_type(name: str) -> DataType:
    from pyspark.sql import types  # noqa: PLC0415

    if name.startswith("array<"):
        return types.ArrayType(_spark_type(name[6:-1]), containsNull=False)
    simple = {
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "string": types.StringType(),
        "boolean": types.BooleanType(),
        "double": types.DoubleType(),
    }
    return simple[name]
