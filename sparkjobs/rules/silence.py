"""When no broker lived at all: the whole cluster was off, which is not that its partitions were offline.

A quiet broker lives from its start to its last word before the next start, so hours without a line are no silence;
only what lies between the last word of all and the first start after it is one. Our logs have no line that a process
begins: there it is one if every broker had been stopped, which is said, and none of them was killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sparkjobs.rules.phases import CLAIMED, is_said
from sparkjobs.tables.gold import BrokerLife, ClusterSilence
from sparkjobs.tables.silver import SilverEvent


class Stretch(NamedTuple):
    """Some time."""

    from_ms: int
    to_ms: int


def is_goodbye(event: SilverEvent) -> bool:
    """Our controller says that a broker is to be stopped."""
    return (event.event, event.to_state, event.cause) == ("broker_changed", "draining", "controlled_shutdown")


def again_in(events: Iterable[SilverEvent]) -> dict[int, list[int]]:
    """Our logs have no line that a process begins. But who had said goodbye and registers anew was started in between;
    of one that took the seat at once, the claim is its first word. `events` in order of time."""
    left: dict[int, int] = {}  # broker: the registration that it said goodbye with
    claims: dict[tuple[int | None, int | None], int] = {}
    found: dict[int, list[int]] = {}
    for event in events:
        if is_said(event, CLAIMED):
            claims.setdefault((event.broker, event.controller_epoch), event.ts_adj)
        if event.event != "broker_changed" or event.peer_broker is None or event.broker_epoch is None:
            continue
        if is_goodbye(event):
            left[event.peer_broker] = event.broker_epoch
        elif event.to_state == "live" and event.broker_epoch > left.get(event.peer_broker, event.broker_epoch):
            del left[event.peer_broker]
            is_own = event.broker == event.peer_broker
            at_ms = claims.get((event.broker, event.controller_epoch), event.ts_adj) if is_own else event.ts_adj
            found.setdefault(event.peer_broker, []).append(at_ms)
    return found


def silences_of(cluster: str, lives: Iterable[BrokerLife]) -> Iterator[ClusterSilence]:
    """What no life covers, from the first to the last."""
    until_ms: int | None = None
    last: int = -1
    for life in sorted(lives, key=lambda life: (life.from_ms, life.broker)):
        if until_ms is not None and life.from_ms > until_ms and life.started:
            yield ClusterSilence(
                cluster=cluster, from_ms=until_ms, to_ms=life.from_ms, last_heard=last, first_back=life.broker
            )
        if until_ms is None or life.last_seen_ms > until_ms:
            until_ms, last = life.last_seen_ms, life.broker


def spoken_of(from_ms: int, to_ms: int, silences: Sequence[Stretch]) -> Iterator[Stretch]:
    """The stretch without what was silence. `silences` in order, none touching another."""
    for silence in silences:
        if from_ms < silence.to_ms and silence.from_ms < to_ms:
            if from_ms < silence.from_ms:
                yield Stretch(from_ms, silence.from_ms)
            from_ms = silence.to_ms
    if from_ms < to_ms:
        yield Stretch(from_ms, to_ms)
