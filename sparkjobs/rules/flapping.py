"""What went to and fro: brokers that came and went, partitions whose leader or ISR would not stay.

A stretch is a run of changes none of which is more than `QUIET_MS` after the one before; it counts when at some time
more than `LIMIT` of them fall into `WINDOW_MS`. Two bounds, so that a single fault is not flapping and a pause
between two bursts does not split one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sparkjobs.rules.facts import Facts
from sparkjobs.tables.gold import Flapping, IsrState, LeaderChange

WINDOW_MS: Final = 600_000
QUIET_MS: Final = 1_800_000
LIMIT: Final = {"broker": 3, "leader": 6, "isr": 8}


def stretches_of(moments: Iterable[int], what: str) -> Iterator[tuple[int, int, int, int]]:
    """First, last, how many, most in a window: of each stretch that is worth telling."""
    run: list[int] = []
    for at_ms in [*sorted(moments), None]:
        if at_ms is not None and (not run or at_ms - run[-1] <= QUIET_MS):
            run.append(at_ms)
            continue
        most = _most_in_window(run)
        if most > LIMIT[what]:
            yield run[0], run[-1], len(run), most
        run = [] if at_ms is None else [at_ms]


def _most_in_window(run: Sequence[int]) -> int:
    most = first = 0
    for last, at_ms in enumerate(run):
        while at_ms - run[first] > WINDOW_MS:
            first += 1
        most = max(most, last - first + 1)
    return most


def flapping_brokers(facts: Facts) -> Iterator[Flapping]:
    """Each loss is one change; each return is another."""
    moments: dict[int, list[int]] = defaultdict(list)
    for loss in facts.losses:
        moments[loss.broker].append(loss.detected_ms)
        back = next((ms for ms in facts.returns.get(loss.broker, ()) if ms >= loss.detected_ms), None)
        if back is not None:
            moments[loss.broker].append(back)
    for broker, of_broker in sorted(moments.items()):
        for from_ms, to_ms, count, most in stretches_of(set(of_broker), "broker"):
            yield Flapping(
                cluster=facts.cluster,
                what="broker",
                broker=broker,
                from_ms=from_ms,
                to_ms=to_ms,
                transitions=count,
                most_in_window=most,
            )


def flapping_of(changes: Sequence[LeaderChange], states: Sequence[IsrState]) -> Iterator[Flapping]:
    """Of one partition."""
    leaders = [one.at_ms for one in changes if one.leader_before is not None and one.leader != one.leader_before]
    ordered = sorted(states, key=lambda state: state.from_ms)
    isrs = [b.from_ms for a, b in itertools.pairwise(ordered) if set(a.isr) != set(b.isr)]
    for what, moments in (("leader", leaders), ("isr", isrs)):
        for from_ms, to_ms, count, most in stretches_of(moments, what):
            of: LeaderChange | IsrState = changes[0] if what == "leader" else states[0]
            yield Flapping(
                cluster=of.cluster,
                what=what,
                topic=of.topic,
                partition=of.partition,
                from_ms=from_ms,
                to_ms=to_ms,
                transitions=count,
                most_in_window=most,
            )
