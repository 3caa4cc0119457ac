"""What happens when a broker joins, goes, bounces or changes its registration.

One reading of all registrations decides all sets. An id whose czxid grew is a broker that was gone and came back:
what it had in hand is lost, so its leaderships move first, and only where nobody else can lead does it lead again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import msgspec

from controller.core import deletion, drains
from controller.core.admin import BrokerForgotten, BrokerNoted, broker_subject, topic_subject
from controller.core.changes import BrokerChanged, BrokerGone, BrokerLive, Change, Refused
from controller.core.codes import Code
from controller.core.events import BrokersSeen, ForgetBrokerAsked
from controller.core.model import Broker, Topic
from controller.core.repair import Presence, repair_topic
from controller.core.states import ReplicaStatus, replica_move
from controller.core.work import Context, Decided, Work


class Census(msgspec.Struct, frozen=True):
    """How a reading of all registrations differs from belief."""

    joined: tuple[Broker, ...]
    bounced: tuple[Broker, ...]
    changed: tuple[Broker, ...]
    gone: tuple[Broker, ...]


def census_for(believed: dict[int, Broker], seen: dict[int, Broker]) -> Census:
    joined = tuple(seen[broker_id] for broker_id in sorted(seen.keys() - believed.keys()))
    gone = tuple(believed[broker_id] for broker_id in sorted(believed.keys() - seen.keys()))
    both = [(believed[broker_id], seen[broker_id]) for broker_id in sorted(seen.keys() & believed.keys())]
    bounced = tuple(new for old, new in both if new.epoch != old.epoch)
    changed = tuple(new for old, new in both if new.epoch == old.epoch and new != old)
    return Census(joined, bounced, changed, gone)


def on_brokers_seen(context: Context, event: BrokersSeen) -> Iterator[Work]:
    """One decision for everything that a reading of the registrations changes."""
    cluster = context.cluster
    census = census_for(cluster.brokers, dict(event.brokers))
    if census == Census((), (), (), ()):
        return
    for broker_id, changes in _broker_changes(census, cluster.brokers):
        yield Work(broker_subject(broker_id), partial(_as_step_0, changes))
    presence = Presence(frozenset(event.brokers), frozenset(broker.broker_id for broker in census.bounced))
    touched_ids = [broker.broker_id for broker in (*census.joined, *census.bounced, *census.gone)]
    reason = _reason(census)
    for broker in (*census.bounced, *census.gone):
        yield Work(broker_subject(broker.broker_id), partial(drains.ended_with, context, broker.broker_id, reason))
    for topic, numbers in sorted(cluster.hosted_by(touched_ids).items()):
        if cluster.duties.is_leaving(topic):
            run = partial(deletion.on_presence, context, topic, presence)
        else:
            run = partial(repair_topic, context, topic, _with_id(cluster.topics[topic], numbers), presence, reason)
        yield Work(topic_subject(topic), run)


def _with_id(topic: Topic, numbers: Iterable[int]) -> Iterable[int]:
    """What was never led waits while its topic has no id: writing that met a conflict, and is being done again."""
    if topic.topic_id is not None:
        return numbers
    return [number for number in numbers if topic.partitions[number].state is not None]


def on_time_passed(context: Context) -> Iterator[Work]:
    """What is new about registrations is written down, when there is time: nobody waits for it."""
    for broker in context.cluster.unnoted:
        change = BrokerNoted(broker)
        yield Work(change.subject, partial(_as_step_0, [change]))


def on_forget_broker_asked(context: Context, event: ForgetBrokerAsked) -> Iterator[Work]:
    yield Work(broker_subject(event.broker_id), partial(_forget, context, event.broker_id))


def _forget(context: Context, broker_id: int) -> Iterator[Decided]:
    """Only who is gone and hosts nothing: an assignment that names it would make it known again."""
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


def _broker_changes(census: Census, believed: dict[int, Broker]) -> Iterator[tuple[int, list[Change]]]:
    for broker in census.gone:
        replica_move(ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE)
        yield broker.broker_id, [BrokerGone(broker.broker_id, broker.epoch, "registration gone")]
    for broker in census.bounced:
        old = believed[broker.broker_id]
        yield (
            broker.broker_id,
            [BrokerGone(old.broker_id, old.epoch, "bounced"), BrokerLive(broker, "bounced")],
        )
    for broker in census.joined:
        replica_move(ReplicaStatus.OFFLINE, ReplicaStatus.ONLINE)
        yield broker.broker_id, [BrokerLive(broker, "joined")]
    for broker in census.changed:
        yield broker.broker_id, [BrokerChanged(broker)]


def _as_step_0(changes: list[Change]) -> Iterator[Decided]:
    return ((0, change) for change in changes)


def _reason(census: Census) -> str:
    """In words for the log: what everything in this decision is about."""
    parts = [
        f"{word} {','.join(str(broker.broker_id) for broker in brokers)}"
        for word, brokers in (
            ("gone", census.gone),
            ("bounced", census.bounced),
            ("joined", census.joined),
            ("changed", census.changed),
        )
        if brokers
    ]
    return f"brokers {'; '.join(parts)}"
