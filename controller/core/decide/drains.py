"""Controlled shutdown and drains: leaderships move before a broker goes, in one decision for all of them.

A drain is granted to one incarnation and written down, so that a successor keeps it. By shutdown the broker also
leaves every ISR that can do without it, and stops following the partitions that it does not lead; by hand it only stops
leading. A drain never makes a partition offline: without another candidate it stays, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause, Reason
from controller.core.changes.cluster import Refused
from controller.core.changes.duties import (
    DrainEnded,
    DrainGranted,
    ReplicasStopped,
    broker_subject,
    topic_subject,
)
from controller.core.codes import Code
from controller.core.decide.repair import state_decided
from controller.core.decide.work import Context, Decided, Work, work_of
from controller.core.elections import drained
from controller.core.events import DrainAsked, UndrainAsked
from controller.core.model import TopicPartition
from controller.core.states import ReplicaStatus


def on_drain_asked(context: Context, event: DrainAsked) -> Iterator[Work]:
    """Granted first (step 0), then the leaderships move (step 1)."""
    cluster = context.cluster
    refusal = _refusal(cluster, event)
    if refusal is not None:
        yield work_of(0, refusal)
        if event.is_found and event.broker_id not in cluster.duties.drains:
            yield work_of(0, DrainEnded(event.broker_id, "registration over"))
        return
    yield Work(broker_subject(event.broker_id), partial(_grant, context, event))
    yield from _moves(context, event)


def on_undrain_asked(context: Context, event: UndrainAsked) -> Iterator[Work]:
    yield Work(broker_subject(event.broker_id), partial(_undrain, context, event))


def on_time_passed(context: Context) -> Iterator[Work]:
    """A partition without another candidate when a drain was granted may have one by now. A partition is decided once,
    however many of its replicas drain. And a drain goes whose end did not stand when its registration was over: the
    broker's next incarnation would be taken for draining."""
    seen: set[tuple[str, int]] = set()
    for broker_id, drain in sorted(context.cluster.duties.drains.items()):
        broker = context.cluster.brokers.get(broker_id)
        if broker is None or broker.epoch != drain.epoch:
            run = partial(ended_with, context, broker_id, "registration over")
            yield Work(broker_subject(broker_id), run)
        else:
            yield from _left(context, DrainAsked(broker_id, is_shutdown=drain.is_shutdown), seen)


def remaining(cluster: Cluster, broker_id: int) -> list[TopicPartition]:
    """Partitions with other replicas that a broker still leads."""
    return [
        TopicPartition(topic, number)
        for topic, numbers in sorted(cluster.hosted.get(broker_id, {}).items())
        if not cluster.duties.is_leaving(topic)
        for number in numbers
        if (known := cluster.topics[topic].partitions[number]).state is not None
        and known.state.leader == broker_id
        and len(known.replicas) > 1
    ]


def ended_with(context: Context, broker_id: int, reason: str) -> Iterator[Decided]:
    """A registration is over, and with it the drain that was granted to it."""
    if broker_id in context.cluster.duties.drains:
        yield 0, DrainEnded(broker_id, reason)


def _refusal(cluster: Cluster, event: DrainAsked) -> Refused | None:
    broker = cluster.brokers.get(event.broker_id)
    subject = broker_subject(event.broker_id)
    if broker is None:
        return Refused(subject, Code.BROKER_NOT_AVAILABLE, f"broker {event.broker_id} is not live")
    if event.broker_epoch is not None and event.broker_epoch != broker.epoch:
        return Refused(subject, Code.STALE_BROKER_EPOCH, "not the present registration")
    return None


def _moves(context: Context, event: DrainAsked) -> Iterator[Work]:
    for topic, numbers in sorted(context.cluster.hosted.get(event.broker_id, {}).items()):
        yield Work(topic_subject(topic), partial(_move_off, context, topic, list(numbers), event))


def _left(context: Context, event: DrainAsked, seen: set[tuple[str, int]]) -> Iterator[Work]:
    """As `_moves`, of the partitions that were left. It is called often, mostly for nothing, so it must cost little."""
    cluster = context.cluster
    draining, leaving = cluster.draining_ids, cluster.leaving_ids
    for topic, numbers in sorted(cluster.hosted.get(event.broker_id, {}).items()):
        partitions = cluster.topics[topic].partitions
        states = [(number, partitions[number].state) for number in numbers]
        rest = [
            number
            for number, state in states
            if state is not None and (state.leader in draining or not leaving.isdisjoint(state.isr))
        ]
        if event.is_shutdown:
            rest = sorted({*rest, *_idle(cluster, topic, numbers, event.broker_id)})
        if rest := [number for number in rest if (topic, number) not in seen]:
            seen.update((topic, number) for number in rest)
            yield Work(topic_subject(topic), partial(_move_off, context, topic, rest, event))


def _grant(context: Context, event: DrainAsked) -> Iterator[Decided]:
    cluster = context.cluster
    epoch = cluster.brokers[event.broker_id].epoch
    granted = cluster.duties.drains.get(event.broker_id)
    is_shutdown = event.is_shutdown or (granted is not None and granted.epoch == epoch and granted.is_shutdown)
    if granted is None or (granted.epoch, granted.is_shutdown) != (epoch, is_shutdown):
        yield 0, DrainGranted(event.broker_id, epoch, is_shutdown)


def _move_off(context: Context, topic: str, numbers: list[int], event: DrainAsked) -> Iterator[Decided]:
    cluster = context.cluster
    if cluster.duties.is_leaving(topic):
        return
    draining = cluster.draining_ids | {event.broker_id}
    leaving = cluster.leaving_ids | ({event.broker_id} if event.is_shutdown else set())
    why = Reason(Cause.DRAIN, f"broker {event.broker_id} drains")
    if event.is_shutdown:
        why = Reason(Cause.CONTROLLED_SHUTDOWN, f"broker {event.broker_id} shuts down")
    partitions, live_ids, epoch = cluster.topics[topic].partitions, cluster.live_ids, context.epoch
    for number in numbers:
        known = partitions[number]
        if known.state is None or len(known.replicas) == 1 or (topic, number) in cluster.unreadable:
            continue
        online = cluster.serving_ids(topic, number, live_ids)
        state = drained(known.replicas, known.state, online, epoch, draining=draining, leaving=leaving)
        if state is not None:
            stopped = tuple(one for one in known.state.isr if one not in state.isr and one in live_ids)
            yield 1, state_decided(context, topic, number, known.state, state, why, stopped=stopped)
    if event.is_shutdown and (idle := tuple(_idle(cluster, topic, numbers, event.broker_id))):
        yield 1, ReplicasStopped(topic, event.broker_id, idle)


def _idle(cluster: Cluster, topic: str, numbers: Iterable[int], broker_id: int) -> Iterator[int]:
    """Partitions that a broker only follows, out of sync, and was not told to stop."""
    partitions = cluster.topics[topic].partitions
    offline = cluster.states.replicas_in(broker_id, ReplicaStatus.OFFLINE).get(topic, 0)
    for number in numbers:
        known = partitions[number]
        if known.state is None or len(known.replicas) == 1 or (topic, number) in cluster.unreadable:
            continue
        if broker_id not in known.state.isr and broker_id != known.state.leader and not offline >> number & 1:
            yield number


def _undrain(context: Context, event: UndrainAsked) -> Iterator[Decided]:
    drain = context.cluster.duties.drains.get(event.broker_id)
    subject = broker_subject(event.broker_id)
    if drain is None:
        yield 0, Refused(subject, Code.NONE, "it was not drained")
    elif drain.is_shutdown:
        yield 0, Refused(subject, Code.INVALID_REQUEST, f"broker {event.broker_id} is shutting down")
    else:
        yield 0, DrainEnded(event.broker_id, "undrained")
