"""Faults that make a process, or ZooKeeper for it, slow or deaf, and so excuse its being late or not knowing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tests.faults.checker.history import SLACK_MS, History
from tests.faults.hostile import FORBIDDING

#: faults that make a process or its ZooKeeper stand still, or fall on the way between them
HOLDING: Final = frozenset({
    "freeze", "starve", "exhaust files", "cut", "silence", "lose answer", "lose request", "slow ZooKeeper",
    "late watches", "restart ZooKeeper", "restart ZooKeeper's leader", "restart a minority of ZooKeeper",
    "restart a majority of ZooKeeper", "end ZooKeeper", "freeze ZooKeeper", "hit at a step",
})  # fmt: skip


def is_held(history: History, broker_id: int, since_ms: int, until_ms: int) -> bool:
    """Returns whether a fault explains that a process, or ZooKeeper for it, was slow then. A message lost on the way
    may be missed for a session time-out."""
    return any(
        one.kind in HOLDING
        and one.broker_id in (None, broker_id)
        and one.at_ms - SLACK_MS <= until_ms
        and since_ms <= one.at_ms + one.lasts_ms + history.session_timeout_ms
        for one in history.faults
    )


def waited_ms(history: History, broker_id: int, since_ms: int, until_ms: int) -> int:
    """Returns for how long a process, or ZooKeeper, had to wait for a processor then: the longer of both. No fault did
    that, and neither process: the machine had something else to do."""

    def waited_by(process: int | None) -> int:
        looks = (one for one in history.starved if one.broker_id == process)
        return sum(one.waited_ms for one in looks if one.since_ms < until_ms and since_ms < one.until_ms)

    return max(waited_by(broker_id), waited_by(None))


def is_forbidden(history: History, paths: Collection[str], at_ms: int) -> bool:
    """Returns whether a tool had taken away the right to read or to write one of these then."""
    return any(
        one.kind in FORBIDDING
        and one.target.partition(" ")[0] in paths
        and one.at_ms - SLACK_MS <= at_ms <= one.at_ms + one.lasts_ms + SLACK_MS
        for one in history.faults
    )
