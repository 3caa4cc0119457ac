"""More partitions for a topic that is there: placed as Kafka places them, or where they are told to be.

The topic's znode is written whole (step 0); then the new partitions are led (step 1). The others are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from controller.core.causes import Cause, Reason
from controller.core.changes.cluster import Refused, TopicWritten
from controller.core.changes.duties import topic_subject
from controller.core.codes import Code
from controller.core.decide.placement import Place, place, placement_trouble
from controller.core.decide.repair import led_first
from controller.core.decide.topic_ids import UNKNOWN
from controller.core.decide.topics import MAX_REPLICAS_PER_TOPIC, size_trouble
from controller.core.decide.work import Context, Decided, Work
from controller.core.events import GrowTopicAsked
from controller.core.formats import encode_topic
from controller.core.model import Assignment, Partition, Replicas, Topic, assignment_of


def on_grow_topic_asked(context: Context, event: GrowTopicAsked) -> Iterator[Work]:
    """A request for more partitions. Asking for the present number is no mistake."""
    yield Work(topic_subject(event.name), partial(_grow, context, event))


def _grow(context: Context, event: GrowTopicAsked) -> Iterator[Decided]:
    known = context.cluster.topics.get(event.name)
    refusal = _trouble(context, event, known)
    if refusal is not None or known is None:
        code, detail = refusal or (Code.UNKNOWN_TOPIC_OR_PARTITION, "")
        yield 0, Refused(topic_subject(event.name), code, detail)
        return
    added = dict(event.assignment) if event.assignment is not None else _placed(context, known, event.count)
    whole = {**assignment_of(known), **{number: Assignment(replicas) for number, replicas in sorted(added.items())}}
    topic_id = known.topic_id
    if topic_id is None:
        yield 0, Refused(topic_subject(event.name), Code.UNKNOWN_TOPIC_ID, UNKNOWN)
        return
    if (too_large := size_trouble(len(encode_topic(topic_id, whole)), len(whole))) is not None:
        yield 0, Refused(topic_subject(event.name), Code.INVALID_PARTITIONS, too_large)
        return
    yield 0, TopicWritten(event.name, topic_id, whole, "partitions added", Cause.TOPIC_GROWN, tuple(sorted(added)))
    why = Reason(Cause.TOPIC_GROWN, "partition created")
    for number, replicas in sorted(added.items()):
        yield from led_first(context, event.name, number, Partition(replicas), context.cluster.live_ids, why, step=1)


def _placed(context: Context, known: Topic, count: int) -> dict[int, Replicas]:
    """Kafka's arithmetic goes on where it stopped, from the broker that partition 0 prefers."""
    ordered = sorted(context.cluster.brokers.values(), key=lambda broker: broker.broker_id)
    first = known.partitions[0].replicas
    start = next((index for index, broker in enumerate(ordered) if broker.broker_id >= first[0]), 0)
    places = [Place(broker.broker_id, broker.rack) for broker in ordered]
    more = count - len(known.partitions)
    return place(places, more, len(first), start=start, shift=start, first_partition=len(known.partitions))


def _trouble(context: Context, event: GrowTopicAsked, known: Topic | None) -> tuple[Code, str] | None:
    """Why a topic cannot grow like this (or need not: code NONE); None when it can."""
    cluster = context.cluster
    if known is None or (event.name, None) in cluster.unreadable:
        return Code.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {event.name}, or its znode is malformed"
    if cluster.duties.is_leaving(event.name):
        return Code.INVALID_TOPIC_EXCEPTION, f"topic {event.name} is being deleted"
    have = len(known.partitions)
    if not have:
        return Code.INVALID_PARTITIONS, "its znode names no partition, so nothing says on how many brokers one belongs"
    if have == event.count and all(
        (one := known.partitions.get(number)) is not None and one.replicas == replicas
        for number, replicas in (event.assignment or {}).items()
    ):
        return Code.NONE, f"it has {have} partitions already"
    if event.count <= have:
        return Code.INVALID_PARTITIONS, f"it has {have} partitions, which is not less than {event.count}"
    if list(known.partitions) != list(range(have)):
        return Code.INVALID_PARTITIONS, "its partitions are not numbered from 0 without gaps"
    if any((event.name, number) in cluster.reassigning for number in known.partitions):
        return Code.REASSIGNMENT_IN_PROGRESS, f"partitions of {event.name} are being reassigned"
    factor = len(known.partitions[0].replicas)
    if event.count * factor > MAX_REPLICAS_PER_TOPIC:
        return Code.INVALID_PARTITIONS, f"a topic znode holds at most {MAX_REPLICAS_PER_TOPIC} replicas"
    if event.assignment is None:
        return placement_trouble(len(cluster.brokers), event.count - have, factor)
    if sorted(event.assignment) != list(range(have, event.count)):
        return (
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"replicas are needed for exactly the partitions {have} to {event.count - 1}",
        )
    for number, replicas in event.assignment.items():
        if len(replicas) != factor or len(set(replicas)) != factor:
            return (
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"partition {number} needs {factor} different brokers, as the others",
            )
    unknown_ids = {one for replicas in event.assignment.values() for one in replicas} - cluster.live_ids
    unknown_ids -= cluster.gone.keys()
    return (Code.INVALID_REPLICA_ASSIGNMENT, f"unknown brokers: {sorted(unknown_ids)}") if unknown_ids else None
