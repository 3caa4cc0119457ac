"""When no broker lived at all: the whole cluster was off, which is not that its partitions were offline.

A quiet broker lives from its start to its last word before the next start, so hours without a line are no silence;
only what lies between the last word of all and the first start after it is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sparkjobs.gold import BrokerLife, ClusterSilence


class Stretch(NamedTuple):
    """Some time."""

    from_ms: int
    to_ms: int


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
