"""Decisions about a broker that joins, goes, bounces or changes its registration.

One reading of all registrations decides all sets. An id whose czxid grew is a broker that was gone and came back:
its unacknowledged work is lost, so its leaderships move first, and it leads again only where no other can lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import msgspec

from controller.core.causes import Cause, Reason
from controller.core.changes.cluster import (
    BrokerChanged,
    BrokerGone,
    BrokerLive,
    Change,
    Refused,
)
from controller.core.changes.duties import (
    BrokerForgotten,
    BrokerNoted,
    broker_subject,
    topic_subject,
)
from controller.core.codes import Code
from controller.core.decide import deletion, drains, topic_ids
from controller.core.decide.repair import LiveBrokers, repair_topic
from controller.core.decide.work import Context, Decided, Work, work_of
from controller.core.events import BrokersSeen, ForgetBrokerAsked
from controller.core.model import Broker


class RegistrationChanges(msgspec.Struct, frozen=True):
    """How a reading of all registrations differs from belief."""

    joined: tuple[Broker, ...]
    bounced: tuple[Broker, ...]
    changed: tuple[Broker, ...]
    gone: tuple[Broker, ...]


def registration_changes(believed: dict[int, Broker], seen: dict[int, Broker]) -> RegistrationChanges:
    joined = tuple(seen[broker_id] for broker_id in sorted(seen.keys() - believed.keys()))
    gone = tuple(believed[broker_id] for broker_id in sorted(believed.keys() - seen.keys()))
    both = [(believed[broker_id], seen[broker_id]) for broker_id in sorted(seen.keys() & believed.keys())]
    bounced = tuple(new for old, new in both if new.epoch != old.epoch)
    changed = tuple(new for old, new in both if new.epoch == old.epoch and new != old)
    return RegistrationChanges(joined, bounced, changed, gone)


def on_brokers_seen(context: Context, event: BrokersSeen) -> Iterator[Work]:
    """One decision for everything that a reading of the registrations changes."""
    cluster = context.cluster
    registrations = registration_changes(cluster.brokers, dict(event.brokers))
    if registrations == RegistrationChanges((), (), (), ()):
        return
    for broker_id, changes in _broker_changes(registrations, cluster.brokers):
        yield Work(broker_subject(broker_id), partial(_as_step_0, changes))
    live_brokers = LiveBrokers(
        frozenset(event.brokers), frozenset(broker.broker_id for broker in registrations.bounced)
    )
    touched_ids = [broker.broker_id for broker in (*registrations.joined, *registrations.bounced, *registrations.gone)]
    why = _why(registrations)
    for broker in (*registrations.bounced, *registrations.gone):
        yield Work(broker_subject(broker.broker_id), partial(drains.ended_with, context, broker.broker_id, why.words))
    for topic, numbers in sorted(cluster.hosted_by(touched_ids).items()):
        if cluster.duties.is_leaving(topic):
            run = partial(deletion.on_live_brokers, context, topic, live_brokers)
        else:
            run = partial(
                repair_topic, context, topic, topic_ids.told(cluster.topics[topic], numbers), live_brokers, why
            )
        yield Work(topic_subject(topic), run)
    yield from topic_ids.on_live_brokers(context, live_brokers)
    yield from _noted(context, (*registrations.joined, *registrations.bounced, *registrations.changed), step=1)


def on_time_passed(context: Context) -> Iterator[Work]:
    """As a term begins, and where a note did not stand."""
    yield from _noted(context, context.cluster.brokers.values(), step=0)


def _noted(context: Context, registered: Iterable[Broker], *, step: int) -> Iterator[Work]:
    """Writes registrations down, so that whoever controls next knows a broker that died with this controller. No
    leadership waits for it."""
    for broker in context.cluster.unnoted_of(registered):
        change = BrokerNoted(broker)
        yield work_of(step, change)


def on_forget_broker_asked(context: Context, event: ForgetBrokerAsked) -> Iterator[Work]:
    yield Work(broker_subject(event.broker_id), partial(_forget, context, event.broker_id))


def _forget(context: Context, broker_id: int) -> Iterator[Decided]:
    """Only a broker that is gone and hosts nothing: an assignment that names it would make it known again."""
    cluster, subject = context.cluster, broker_subject(broker_id)
    if broker_id in cluster.brokers:
        yield 0, Refused(subject, Code.OPERATION_NOT_ATTEMPTED, f"broker {broker_id} is live; stop it first")
    elif hosted := cluster.hosted.get(broker_id):
        count, topic = sum(map(len, hosted.values())), min(hosted)
        detail = f"{count} replicas are assigned to broker {broker_id}, for example of {topic}; reassign them first"
        yield 0, Refused(subject, Code.OPERATION_NOT_ATTEMPTED, detail)
    elif broker_id in cluster.gone or broker_id in cluster.duties.noted:
        yield 0, BrokerForgotten(broker_id)
    else:
        yield 0, Refused(subject, Code.NONE, "it was not known")


def _broker_changes(
    registrations: RegistrationChanges, believed: dict[int, Broker]
) -> Iterator[tuple[int, list[Change]]]:
    for broker in registrations.gone:
        yield broker.broker_id, [BrokerGone(broker.broker_id, broker.epoch, "registration gone", Cause.BROKER_GONE)]
    for broker in registrations.bounced:
        old = believed[broker.broker_id]
        yield (
            broker.broker_id,
            [
                BrokerGone(old.broker_id, old.epoch, "bounced", Cause.BROKER_BOUNCED),
                BrokerLive(broker, "bounced", Cause.BROKER_BOUNCED),
            ],
        )
    for broker in registrations.joined:
        yield broker.broker_id, [BrokerLive(broker, "joined", Cause.BROKER_JOINED)]
    for broker in registrations.changed:
        yield broker.broker_id, [BrokerChanged(broker)]


def _as_step_0(changes: list[Change]) -> Iterator[Decided]:
    return ((0, change) for change in changes)


def _why(registrations: RegistrationChanges) -> Reason:
    """Returns the cause of everything in this decision: the worst of its causes."""
    parts = [
        (cause, f"{word} {','.join(str(broker.broker_id) for broker in brokers)}")
        for cause, word, brokers in (
            (Cause.BROKER_GONE, "gone", registrations.gone),
            (Cause.BROKER_BOUNCED, "bounced", registrations.bounced),
            (Cause.BROKER_JOINED, "joined", registrations.joined),
            (Cause.BROKER_CHANGED, "changed", registrations.changed),
        )
        if brokers
    ]
    return Reason(parts[0][0], f"brokers {'; '.join(words for _, words in parts)}")
