"""What happens when a broker joins, goes, bounces or changes its registration.

One reading of all registrations decides all sets. An id whose czxid grew is a broker that was gone and came back:
what it had in hand is lost, so its leaderships move first, and only where nobody else can lead does it lead again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial

import msgspec

from controller.core.changes import (
    BrokerChanged,
    BrokerGone,
    BrokerLive,
    Change,
    StateDecided,
    broker_subject,
    topic_subject,
)
from controller.core.elections import first_leadership, repaired, status_of
from controller.core.events import BrokersSeen
from controller.core.model import Broker, Leadership, Partition
from controller.core.states import ReplicaStatus, partition_move, replica_move
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
    online = frozenset(event.brokers)
    returning = frozenset(broker.broker_id for broker in census.bounced)
    touched_ids = [broker.broker_id for broker in (*census.joined, *census.bounced, *census.gone)]
    reason = _reason(census)
    for topic, numbers in sorted(cluster.hosted_by(touched_ids).items()):
        yield Work(
            topic_subject(topic),
            partial(repair_topic, context, topic, sorted(numbers), online, reason, returning=returning),
        )


def repair_topic(
    context: Context,
    topic: str,
    numbers: Iterable[int],
    online: AbstractSet[int],
    reason: str,
    *,
    returning: AbstractSet[int] = frozenset(),
    step: int = 0,
) -> Iterator[Decided]:
    """Bring partitions of one topic to what they should be, given who is online."""
    cluster = context.cluster
    known = cluster.topics[topic]
    allow_unclean = cluster.is_unclean_allowed(topic)
    for number in numbers:
        if cluster.unreadable and (topic, number) in cluster.unreadable:
            continue
        change = repair_partition(
            context, topic, number, known.partitions[number], online, reason, returning, allow_unclean=allow_unclean
        )
        if change is not None:
            yield step, change


def repair_partition(
    context: Context,
    topic: str,
    number: int,
    partition: Partition,
    online: AbstractSet[int],
    reason: str,
    returning: AbstractSet[int] = frozenset(),
    *,
    allow_unclean: bool = False,
) -> StateDecided | None:
    """The one write that a partition needs now, or None."""
    state: Leadership | None
    if partition.state is None:
        state = first_leadership(partition.replicas, online, context.epoch)
    else:
        state = repaired(
            partition.replicas, partition.state, online, context.epoch, returning=returning, allow_unclean=allow_unclean
        )
    if state is None:
        return None
    source = status_of(partition.state, context.cluster.live_ids or online)
    target = status_of(state, online)
    partition_move(source, target)
    return StateDecided(topic, number, state, source, target, reason)


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
