"""Events as a test writes them down, and the rows that they come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sparkjobs.rules.rules import Answers
from sparkjobs.tables.silver import SilverEvent
from tests.spark.plain import answers_for

T0 = 1_794_988_800_000
_DEFAULTS = {"cluster": "c", "dt": "", "ts_raw": "", "level": "INFO", "shape_id": "", "line": "", "file_id": "f"}


class Log:
    """Events as one writes them down; each is a line further on."""

    def __init__(self) -> None:
        self.events: list[SilverEvent] = []

    def say(self, at: int, event: str, broker: int = 1, role: str = "controller", **columns: Any) -> None:
        number = len(self.events) + 1
        given = {"event_id": f"e{number}", "line_no": number, "ts_utc": T0 + at, "ts_adj": T0 + at, "controller": 1}
        known = {**_DEFAULTS, **given, "event": event, "broker": broker, "role": role, **columns}
        self.events.append(SilverEvent(**known))

    def partition(self, at: int, before: str, after: str, **columns: Any) -> None:
        states = {"from_state": f"{before}Partition", "to_state": f"{after}Partition"}
        known = {"topic": "orders", "partition": 0, "controller_epoch": 1, **states, **columns}
        self.say(at, "partition_changed", **known)

    def answers(self, target: float = 99.95) -> Answers:
        return answers_for(self.events, target)


def shown(rows: Sequence[msgspec.Struct], *names: str) -> list[tuple[Any, ...]]:
    """The columns by these names; moments as they were written down."""
    return [tuple(_short(name, getattr(row, name)) for name in names) for row in rows]


def _short(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_short(name, one) for one in value)
    return value - T0 if name.endswith("_ms") and value is not None and value >= T0 else value


def with_a_led_partition(isr: tuple[int, ...] = (2, 1)) -> Log:
    log = Log()
    log.say(0, "controller_elected", controller_epoch=1)
    log.say(50, "controller_ready", controller_epoch=1)
    log.partition(100, "NonExistent", "New")
    log.partition(110, "New", "Online", leader=2, leader_epoch=0, version=0, isr=isr)
    log.say(5_000, "other", broker=2, role="server")
    return log
