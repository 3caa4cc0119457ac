"""What was measured beside what was aimed at: targets, misses, and the table that people read."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from tests.bench.rows import (
    BACK,
    CREATION,
    DEATH,
    DECISION,
    FAILOVER,
    IDLE,
    LOAD,
    MEMORY,
    REASSIGNMENT,
    SHUTDOWN,
    SLOW,
)

LIMIT = "limit"
BROKER_LOAD = "a broker is told all"
BROKER_MEMORY = "a broker's memory"
#: of rows that are not in seconds
UNITS = {IDLE: "ms of CPU per s", MEMORY: "KiB per partition", BROKER_MEMORY: "KiB per partition"}
#: the order people read them in; those without a unit are seconds
ORDER = (
    FAILOVER, LOAD, DEATH, DECISION, BACK, CREATION, SHUTDOWN, REASSIGNMENT, SLOW, IDLE, MEMORY, BROKER_LOAD,
    BROKER_MEMORY,
)  # fmt: skip
LOADED_PER_S = 200_000
#: a tenth of Kafka's time
TENTH = {FAILOVER, DEATH, CREATION, SHUTDOWN}
KIB_PER_PARTITION = 1.0
DECISION_S = 0.15
#: the failover that nobody disturbs, with what one run differs from another
SLOWER_MAX = 1.15
IDLE_MS = 10.0


def target_of(row: str, values: Mapping[str, Mapping[str, list[float]]], partitions: int) -> tuple[float, str] | None:
    """What to stay under, and why; None where nothing can be said without Kafka beside it."""
    kafkas, bare = values[row].get("kafka"), values[row].get(LIMIT)
    goals: list[tuple[float, str]] = []
    if kafkas and row in TENTH:
        goals.append((statistics.median(kafkas) / 10, "Kafka / 10"))
    if bare and row == FAILOVER:
        goals.append((statistics.median(bare) * 3, "3 limits"))
    if kafkas and row == BACK:
        goals.append((statistics.median(kafkas), "Kafka"))
    if row == SLOW and FAILOVER in values:
        goals.append((statistics.median(values[FAILOVER]["klamm"]) * SLOWER_MAX, "as without"))
    if row == LOAD:
        goals.append((partitions / LOADED_PER_S, f"{LOADED_PER_S:,}/s"))
    if row == DECISION:
        goals.append((DECISION_S, "150 ms"))
    if row == IDLE:
        goals.append((IDLE_MS, "1 % of a core"))
    if row in (MEMORY, BROKER_MEMORY):
        goals.append((KIB_PER_PARTITION, "1 KiB"))
    return min(goals, default=None)


def table_of(result: dict[str, Any]) -> Table:
    count, values = result["topics"] * result["partitions_per_topic"], result["values"]
    table = Table(title=f"{count:,} partitions, {result['brokers']} brokers, replication factor 3; seconds")
    for column in ("row", "klamm", "target", "missed by", "limit", "kafka", "kafka / klamm"):
        table.add_column(column, justify="left" if column == "row" else "right")
    for row in (row for row in ORDER if row in values):
        ours, kafkas, target = values[row]["klamm"], values[row].get("kafka"), result["targets"].get(row)
        times = 0.0 if target is None else _median(ours) / target["value"]
        table.add_row(
            f"{row}: {UNITS[row]}" if row in UNITS else row,
            _spread(ours),
            "" if target is None else f"{target['value']:.2f} ({target['why']})",
            f"{times:.2f} x" if times > 1 else "",
            _spread(values[row].get(LIMIT)),
            _spread(kafkas),
            f"{_median(kafkas) / _median(ours):.1f}" if kafkas and _median(ours) else "",
        )
    table.caption = (
        f"our event loop was held for at most {result['longest_hold_s']:.2f} s of a session of "
        f"{result['session_timeout_s']:.0f} s; our whole process has {result['memory_bytes'] / count / 1024:.1f} KiB "
        "per partition, interpreter and buffers included"
    )
    return table


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _spread(values: list[float] | None) -> str:
    if not values:
        return ""
    whole = f"{_median(values):.3f}"
    return whole if len(values) == 1 else f"{whole} ({min(values):.2f}-{max(values):.2f})"
