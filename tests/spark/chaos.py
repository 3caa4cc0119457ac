"""Events as no sane cluster writes them: all kinds, few names, few moments, contradicting each other. Conclusions from
them must not depend on the number of workers, or on the order."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec

from sparkjobs.parse.shapes import EVENTS
from sparkjobs.rules.state_machines import STATES
from sparkjobs.tables.silver import SilverEvent

_START_MS: Final = 1_794_988_800_000
_BROKERS: Final = (1, 2, 3)
_REASONS: Final = ("assignment written", "resigning", "other")
#: of lines, not of events: those are `_CAUSES`
_WHYS: Final = ("found", "term_started", "broker_gone", "controlled_shutdown", "isr_asked")
_STATES: Final = (
    *STATES["partition"],
    *STATES["replica"],
    "live",
    "gone",
    "draining",
    "deleting",
    "deleted",
    "waiting",
)
_ERRORS: Final = ("stale_controller_epoch", "stale_leader_epoch", "connection")
_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "level": ("INFO", "TRACE"),
    "role": ("controller", "controller", "broker", "server"),
    "broker": (*_BROKERS, None),
    "controller": (*_BROKERS, None),
    "controller_epoch": (1, 2, 3, None),
    "topic": ("a", "b", "b", None),
    "partition": (0, 0, 1, None),
    "from_state": (*_STATES, None),
    "to_state": (*_STATES, None),
    "leader": (-1, *_BROKERS, None),
    "leader_epoch": (0, 1, 2, 3, None),
    "isr": ((1,), (1, 2), (2, 3), (1, 2, 3), None),
    "replicas": ((1, 2, 3), None),
    "added": ((1,), (2,), None),
    "removed": ((1,), (2, 3), None),
    "version": (-1, 0, 1, 2, 3, None),
    "peer_broker": (*_BROKERS, None),
    "correlation_id": (1, 2, None),
    "api": ("LeaderAndIsr", "UpdateMetadata", "StopReplica", None),
    "error": (*_ERRORS, None, None),
    "elapsed_ms": (0.5, 3.0, 40.0, None),
    "recovery": ("RECOVERED", "RECOVERING", None),
    "reason": (*_REASONS, None),
    "cause": (*_WHYS, None),
    "unclean": (True, None, None),
    "zxid": (5, 6, 7, None, None, None),
    "topic_id": ("x", "y", None, None, None),
    "machine": ("partition", "replica", None),
    "partitions": (("a 0-1", "b 0"), ("b 1,3",), None),
    "part": (1, 2, None),
    "offset": (0, 5, 9, None),
    "records": (1, 4, None),
    "records_lost": (0, 2, None),
    "trace": ("java.lang.IllegalStateException: no", None),
}
#: partition events are the subject of most rules
_NAMES: Final = (
    *EVENTS,
    *("partition_changed", "isr_changed", "partition_change_failed", "leader_started") * 10,
    *("replica_changed", "states_moved") * 6,
)
_CAUSES: Final = ("1-1", "1-2", None)
_EPOCHS: Final = (None, 7, 8, 9)
#: events that would have to be drawn many times over in the right order
_TURNS: Final = 12
_RESTLESS: Final[dict[str, Any]] = {
    **{"event": "partition_changed", "role": "controller", "broker": 1, "controller": 1, "controller_epoch": 4},
    **{"topic": "restless", "partition": 0, "from_state": "OnlinePartition", "to_state": "OnlinePartition"},
    **{"reason": None, "cause": None, "unclean": None, "recovery": None, "zxid": None, "topic_id": None},
}


def events_of(draw: random.Random, cluster: str, count: int) -> list[SilverEvent]:
    """Each with a place and an identity of its own; many at the same moment."""
    found = []
    for number in range(count):
        given = {name: draw.choice(values) for name, values in _CHOICES.items()}
        at_ms = _START_MS + draw.choice((0, 1, 2, 500, 60_000, 3_600_000, 86_400_000)) + draw.randrange(5)
        shift = draw.choice((0, 0, 7, -3_000))
        found.append(
            SilverEvent(
                cluster=cluster,
                dt="",
                event_id=f"{draw.getrandbits(64):016x}",
                ts_raw="",
                ts_utc=at_ms + shift,
                ts_adj=at_ms,
                event=draw.choice(_NAMES),
                file_id=f"file-{draw.randrange(3)}",
                line_no=number + 1,
                shape_id="",
                line=f"line {number}",
                cause_id=_CAUSES[number % len(_CAUSES)],
                broker_epoch=_EPOCHS[number % len(_EPOCHS)],
                **given,
            )
        )
    return found + (_restless(found[0], count) if draw.random() < 0.2 else [])


def _restless(one: SilverEvent, count: int) -> list[SilverEvent]:
    """A partition whose leader and ISR change with every line, as told, and a broker that comes and goes."""
    found: list[SilverEvent] = []
    for turn in range(_TURNS):
        at_ms, leader = one.ts_adj + turn * 20_000, 1 + turn % 2
        now = {"ts_utc": at_ms, "ts_adj": at_ms, "cause_id": f"4-{turn}"}
        came, went = ((2,), None) if turn % 2 else (None, (2,))
        for said in (
            {"leader": leader, "isr": (leader, 3), "leader_epoch": turn, "version": turn},
            {"event": "request_done", "role": "broker", "broker": leader, "api": "LeaderAndIsr", "error": None},
            {"event": "brokers_changed", "added": came, "removed": went},
        ):
            number = count + 1 + len(found)
            place = {"line_no": number, "event_id": f"{one.event_id}-{number}"}
            found.append(msgspec.structs.replace(one, **{**_RESTLESS, **now, **place, **said}))
    return found
