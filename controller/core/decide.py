"""`decide`: an event and a belief in, slices of changes out. Pure, synchronous, a generator.

The table below is the whole dispatch. The loop over subjects is the one place where a bug (an illegal move, a failed
assertion) is met: the subject is parked for the term and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from controller.core import brokers, isr, startup, topics
from controller.core.changes import Change, Slice, SubjectParked
from controller.core.cluster import Cluster
from controller.core.events import (
    AlterPartitionAsked,
    BrokersSeen,
    CreateTopicAsked,
    Event,
    StatesSeen,
    TermStarted,
    TopicsSeen,
)
from controller.core.states import IllegalMoveError
from controller.core.work import Context, Work

CHANGES_PER_SLICE = 5_000

HANDLERS: dict[type, Callable[[Context, Any], Iterator[Work]]] = {
    TermStarted: startup.on_term_started,
    BrokersSeen: brokers.on_brokers_seen,
    TopicsSeen: topics.on_topics_seen,
    StatesSeen: isr.on_states_seen,
    AlterPartitionAsked: isr.on_alter_partition_asked,
    CreateTopicAsked: topics.on_create_topic_asked,
}


def decide(
    cluster: Cluster, event: Event, now_ms: int, seed: int, *, changes_per_slice: int = CHANGES_PER_SLICE
) -> Iterator[Slice]:
    """What should become true because of `event`. Leaves the cluster untouched; same input, same output."""
    context = Context(cluster, now_ms, Random(seed))
    collected: dict[int, list[Change]] = {}
    size = 0
    for work in HANDLERS[type(event)](context, event):
        for step, change in _run(cluster, work):
            collected.setdefault(step, []).append(change)
            size += 1
        if size >= changes_per_slice:
            yield from _slices(collected, changes_per_slice)
            collected, size = {}, 0
    yield from _slices(collected, changes_per_slice)


def _run(cluster: Cluster, work: Work) -> list[tuple[int, Change]]:
    if work.subject in cluster.parked:
        return []
    try:
        return list(work.run())
    except (IllegalMoveError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as bug:
        return [(0, SubjectParked(work.subject, f"{type(bug).__name__}: {bug}"))]


def _slices(collected: dict[int, list[Change]], size: int) -> Iterator[Slice]:
    for step, changes in sorted(collected.items()):
        for start in range(0, len(changes), size):
            yield Slice(step, changes[start : start + size])
