"""Measured values beside their targets: targets, misses, and the table for people."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from tests.bench.contender import EARLIER, KAFKA, OURS, OURS_AS_KAFKA
from tests.bench.rows import (
    BACK,
    CREATION,
    DEATH,
    DECISION,
    FAILOVER,
    FEW_MOVED_PARTITIONS,
    FEW_REASSIGNED,
    IDLE,
    LOAD,
    MEMORY,
    MOVED_PARTITIONS,
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
    FAILOVER, LOAD, DEATH, DECISION, BACK, CREATION, SHUTDOWN, FEW_REASSIGNED, REASSIGNMENT, SLOW, IDLE, MEMORY,
    BROKER_LOAD, BROKER_MEMORY,
)  # fmt: skip
LOADED_PER_S = 200_000
#: a tenth of Kafka's time
TENTH = {FAILOVER, DEATH, CREATION, SHUTDOWN}
KIB_PER_PARTITION = 1.0
DECISION_S = 0.15
#: the undisturbed failover, with the spread between runs
SLOWER_MAX = 1.15
IDLE_MS = 10.0


def target_of(row: str, values: Mapping[str, Mapping[str, list[float]]], partitions: int) -> tuple[float, str] | None:
    """Returns the target, and its reason; None where none can be given without Kafka beside it."""
    kafkas, bare = values[row].get(KAFKA), values[row].get(LIMIT)
    goals: list[tuple[float, str]] = []
    if kafkas and row in TENTH:
        goals.append((statistics.median(kafkas) / 10, "Kafka / 10"))
    if bare and row == FAILOVER:
        goals.append((statistics.median(bare) * 3, "3 limits"))
    if kafkas and row == BACK:
        goals.append((statistics.median(kafkas), "Kafka"))
    if row == SLOW and FAILOVER in values:
        goals.append((statistics.median(values[FAILOVER][OURS]) * SLOWER_MAX, "as without"))
    if row == REASSIGNMENT and FEW_REASSIGNED in values:
        times = MOVED_PARTITIONS // FEW_MOVED_PARTITIONS
        goals.append((statistics.median(values[FEW_REASSIGNED][OURS]) * times, f"{times} times {FEW_REASSIGNED}"))
    if row == LOAD:
        goals.append((partitions / LOADED_PER_S, f"{LOADED_PER_S:,}/s"))
    if row == DECISION:
        goals.append((DECISION_S, "150 ms"))
    if row == IDLE:
        goals.append((IDLE_MS, "1 % of a core"))
    if row in (MEMORY, BROKER_MEMORY):
        goals.append((KIB_PER_PARTITION, "1 KiB"))
    return min(goals, default=None)


def missed_by(result: dict[str, Any], row: str) -> float:
    """How many times the target is exceeded; 0.0 where it is kept, or there is none."""
    target = result["targets"].get(row)
    times = 0.0 if target is None else _median(result["values"][row][OURS]) / target["value"]
    return times if times > 1 else 0.0


def ratio_of(values: Mapping[str, list[float]], name: str) -> float | None:
    """How many times Kafka's time is ours; None where one of them has none."""
    ours, kafkas = values.get(name), values.get(KAFKA)
    return _median(kafkas) / _median(ours) if kafkas and ours and _median(ours) else None


def cells_of(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """ControllerHeaders and rows, as people read them; Kafka's columns only where it was measured."""
    values: dict[str, dict[str, list[float]]] = result["values"]
    heads, has_kafka = ["row", OURS, "target", "missed by", "limit"], any(KAFKA in one for one in values.values())
    if has_kafka:
        heads += [OURS_AS_KAFKA, KAFKA, f"{KAFKA} / {OURS}", f"{KAFKA} / {OURS_AS_KAFKA}"]
    rows = []
    for row in (row for row in ORDER if row in values):
        target, times, by = result["targets"].get(row), missed_by(result, row), values[row]
        cells = [
            f"{row}: {UNITS[row]}" if row in UNITS else row,
            _spread(by[OURS]),
            "" if target is None else f"{target['value']:.2f} ({target['why']})",
            f"{times:.1f} x" if times else "",
            _spread(by.get(LIMIT)),
        ]
        if has_kafka:
            ratios = (ratio_of(by, OURS), ratio_of(by, OURS_AS_KAFKA))
            cells += [_spread(by.get(OURS_AS_KAFKA)), _spread(by.get(KAFKA))]
            cells += ["" if ratio is None else f"{ratio:.1f}" for ratio in ratios]
        rows.append(cells)
    return heads, rows


def title_of(result: dict[str, Any]) -> str:
    topics, count = result["topics"], result["topics"] * result["partitions_per_topic"]
    rounds = "one round" if result["rounds"] == 1 else f"median of {result['rounds']} rounds (and range)"
    where = f"{count:,} partitions in {topics:,} topics, {result['brokers']} brokers, replication factor 3"
    return f"{where}; seconds, {rounds}, {result['day']}"


def caption_of(result: dict[str, Any]) -> str:
    count = result["topics"] * result["partitions_per_topic"]
    return (
        f"our event loop was held for at most {result['longest_hold_s']:.2f} s (goal: a third of the session of "
        f"{result['session_timeout_s']:.0f} s); our whole process has {result['memory_bytes'] / count / 1024:.1f} KiB "
        f"per partition, interpreter and buffers included; all of it took {result['took_s'] / 60:.0f} minutes"
    )


def table_of(result: dict[str, Any]) -> Table:
    heads, rows = cells_of(result)
    table = Table(title=title_of(result), caption=caption_of(result))
    for head in heads:
        table.add_column(head, justify="left" if head == "row" else "right")
    for row in rows:
        table.add_row(*row)
    return table


def to_earlier(
    cpu_s: Mapping[str, Mapping[str, list[float]]], values: Mapping[str, Mapping[str, list[float]]]
) -> dict[str, float]:
    """How many times the CPU time, and the memory, that the same rows took in an earlier commit."""
    rows = dict(cpu_s)
    if MEMORY in values:
        rows[MEMORY] = values[MEMORY]
    return {row: _median(by[OURS]) / _median(by[EARLIER]) for row, by in rows.items() if EARLIER in by and OURS in by}


def earlier_table(result: dict[str, Any]) -> Table:
    """Ours beside ours of an earlier commit: seconds of CPU, and memory."""
    table = Table(title="CPU time, and memory, beside the earlier commit's")
    for head in ("row", EARLIER, OURS, "times"):
        table.add_column(head, justify="left" if head == "row" else "right")
    for row, times in result["to_earlier"].items():
        by = result["values" if row == MEMORY else "cpu_s"][row]
        table.add_row(
            f"{row}: {UNITS[row]}" if row in UNITS else row, _spread(by[EARLIER]), _spread(by[OURS]), f"{times:.3f}"
        )
    return table


def markdown_of(result: dict[str, Any]) -> str:
    """The same, to be pasted."""
    heads, rows = cells_of(result)
    lines = [["", *heads[1:]], ["---"] * len(heads), *rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{title_of(result)}:\n\n{table}\n\n{caption_of(result)}.\n"


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _spread(values: list[float] | None) -> str:
    if not values:
        return ""
    whole = f"{_median(values):.3f}"
    return whole if len(values) == 1 else f"{whole} ({min(values):.2f}-{max(values):.2f})"
