"""Replicas that a reassignment dropped: their brokers are told to delete them, until each of them has.

A broker that refuses, or is gone, leaves its replica ineligible; it is told again after a while, or once it is back.
That ends with the term: a successor tells each broker all its replicas, and others are set aside there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from controller.core.belief.kept_states import dropped_key, topic_of
from controller.core.bitset import bits_of, numbers_of
from controller.core.changes.duties import DroppedMoved, topic_subject
from controller.core.decide.work import Context, Decided, Work
from controller.core.events import StopReplicaAnswered
from controller.core.states import ReplicaStatus

RETRY_MIN_MS: Final = 1_000
RETRY_MAX_MS: Final = 60_000

_OFFLINE, _STARTED = ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED
_SUCCESSFUL, _INELIGIBLE = ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.DELETION_INELIGIBLE


def on_stop_replica_answered(context: Context, event: StopReplicaAnswered) -> Iterator[Work]:
    """A broker has deleted replicas as it was told, or refused to."""
    cluster = context.cluster
    numbers: dict[str, list[int]] = {}
    for topic_id, number in event.replicas:
        if (name := cluster.names_by_id.get(topic_id)) is not None:
            numbers.setdefault(name, []).append(number)
    for name, some in sorted(numbers.items()):
        topic_id = cluster.topics[name].topic_id or ""
        key = dropped_key(name, topic_id)
        started = cluster.states.replicas_of(event.broker_id, key).get(_STARTED, 0) & bits_of(some)
        if started:
            refused = bits_of(number for one, number in event.refused if one == topic_id) & started
            yield Work(topic_subject(name), partial(_answered, context, key, event.broker_id, started, refused))


def on_time_passed(context: Context) -> Iterator[Work]:
    """Refused deletions are told again, and so are those whose broker was away."""
    cluster = context.cluster
    places = [(key, broker_id) for key, brokers in cluster.duties.dropped.items() for broker_id in brokers]
    for key, broker_id in sorted(places):
        is_due = cluster.duties.dropped[key][broker_id].retry_at_ms <= context.now_ms
        if is_due and broker_id in cluster.live_ids and key in cluster.states.replicas_in(broker_id, _INELIGIBLE):
            yield Work(topic_subject(topic_of(key)), partial(_again, context, key, broker_id))


def _answered(context: Context, key: str, broker_id: int, started: int, refused: int) -> Iterator[Decided]:
    topic, _, topic_id = key.partition(":")
    known = context.cluster.duties.dropped[key][broker_id]
    if deleted := started & ~refused:
        way = (_SUCCESSFUL, ReplicaStatus.NON_EXISTENT)
        numbers = tuple(numbers_of(deleted))
        yield 0, DroppedMoved(topic, topic_id, broker_id, numbers, way, known.failures, known.retry_at_ms)
    if refused:
        pause_ms = min(RETRY_MIN_MS << min(known.failures, 6), RETRY_MAX_MS)
        numbers, retry_at_ms = tuple(numbers_of(refused)), context.now_ms + pause_ms
        yield 0, DroppedMoved(topic, topic_id, broker_id, numbers, (_INELIGIBLE,), known.failures + 1, retry_at_ms)


def _again(context: Context, key: str, broker_id: int) -> Iterator[Decided]:
    topic, _, topic_id = key.partition(":")
    waiting = context.cluster.states.replicas_in(broker_id, _INELIGIBLE)[key]
    failures = context.cluster.duties.dropped[key][broker_id].failures
    yield 0, DroppedMoved(topic, topic_id, broker_id, tuple(numbers_of(waiting)), (_OFFLINE, _STARTED), failures)
