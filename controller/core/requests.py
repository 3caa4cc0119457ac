"""What brokers are told, projected from changes that stand. Never asked before `Cluster.apply` has taken them.

A `Telling` is not yet a request: it says which partitions' latest state which broker should hear. The outbox of each
broker merges tellings and the dialect turns them into bytes; neither decides anything. Order, for each broker:
UpdateMetadata if the brokers changed, LeaderAndIsr, UpdateMetadata, StopReplica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from controller.core.changes import (
    BrokerChanged,
    BrokerGone,
    BrokerLive,
    Committed,
    StateDecided,
    StateFound,
    TopicGone,
    TopicWritten,
)
from controller.core.cluster import Cluster
from controller.core.model import FIRST_LEADER_EPOCH, Broker, Partition
from controller.core.states import PartitionStatus

#: topic name and topic id: a topic deleted and made anew is another topic
TopicKey = tuple[str, str]
Rows = dict[TopicKey, dict[int, Partition]]


class KnownBroker(msgspec.Struct, frozen=True):
    """A broker as all are told of it; `state` is live, draining or gone."""

    broker: Broker
    state: str


class Telling(msgspec.Struct):
    """What one step makes worth telling. Shared by all outboxes, which must not change it."""

    #: every broker known, and who of them is live, after the step
    brokers: Sequence[KnownBroker]
    live_ids: frozenset[int]
    brokers_changed: bool = False
    #: incarnations that need everything: full metadata, then all their replicas
    joined: Sequence[Broker] = ()
    #: incarnations (broker id, epoch) that are over
    gone: Sequence[tuple[int, int]] = ()
    #: the whole cluster, for the joined; None when nobody joined
    everything: Rows | None = None
    #: metadata for every live broker
    metadata: Rows = {}
    #: topics to be removed from metadata, with their partitions
    removed: Mapping[TopicKey, Sequence[int]] = {}
    #: per broker: partitions whose leadership changed
    leaderships: Mapping[int, Rows] = {}
    #: (topic id, partition, broker id) of replicas that are new on their broker
    new_replicas: frozenset[tuple[str, int, int]] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not (self.brokers_changed or self.joined or self.metadata or self.removed or self.leaderships)


def requests_for(cluster: Cluster, committed: Iterable[Committed]) -> Telling:
    """What is now worth telling."""
    telling = Telling(brokers=known_brokers(cluster), live_ids=cluster.live_ids)
    joined: list[Broker] = []
    gone: list[tuple[int, int]] = []
    removed: dict[TopicKey, Sequence[int]] = {}
    led: dict[str, dict[int, bool]] = {}  # topic -> partition -> whether it is new
    metadata: dict[str, set[int]] = {}
    for one in committed:
        match one.change:
            case StateDecided() as change:
                if not change.by_leader:
                    led.setdefault(change.topic, {})[change.partition] = is_first(change)
                metadata.setdefault(change.topic, set()).add(change.partition)
            case StateFound(topic=topic, partition=number):
                metadata.setdefault(topic, set()).add(number)
            case TopicWritten(name=name):  # nothing could be told of it while it had no id
                every = cluster.topics[name].partitions
                led.setdefault(name, {}).update(dict.fromkeys(every, False))
                metadata.setdefault(name, set()).update(every)
            case BrokerLive(broker=broker):
                joined.append(broker)
            case BrokerGone(broker_id=broker_id, epoch=epoch):
                gone.append((broker_id, epoch))
            case BrokerChanged():
                telling.brokers_changed = True
            case TopicGone(name=name, topic_id=topic_id, partitions=partitions) if topic_id is not None:
                removed[name, topic_id] = partitions
            case _:
                pass
    telling.joined, telling.gone, telling.removed = joined, gone, removed
    telling.brokers_changed = telling.brokers_changed or bool(joined or gone)
    if joined:
        telling.everything = _everything(cluster)
    joined_ids = {broker.broker_id for broker in joined}
    if cluster.live_ids - joined_ids:
        # who is offline is part of a partition's metadata, so it changes with the broker
        for topic, numbers in cluster.hosted_by({*joined_ids, *(broker_id for broker_id, _ in gone)}).items():
            metadata.setdefault(topic, set()).update(numbers)
        telling.metadata = _rows(cluster, metadata)
    telling.leaderships, telling.new_replicas = _leaderships(cluster, led, joined_ids)
    return telling


def is_first(change: StateDecided) -> bool:
    """Whether a partition is led for the first time, so that its replicas are new on their brokers."""
    return change.source is PartitionStatus.NEW and change.state.leader_epoch == FIRST_LEADER_EPOCH


def known_brokers(cluster: Cluster) -> list[KnownBroker]:
    """All brokers, by id; those that are gone stay known, at least by the assignments that name them."""
    known = [KnownBroker(broker, "live") for broker in cluster.brokers.values()]
    known += [KnownBroker(broker, "gone") for broker in cluster.gone.values()]
    named_ids = cluster.hosted.keys() - cluster.brokers.keys() - cluster.gone.keys()
    known += [KnownBroker(Broker(broker_id, -1, None, -1, ()), "gone") for broker_id in named_ids]
    return sorted(known, key=lambda one: one.broker.broker_id)


def _everything(cluster: Cluster) -> Rows:
    return _rows(cluster, {name: topic.partitions for name, topic in cluster.topics.items()})


def _rows(cluster: Cluster, wanted: Mapping[str, Iterable[int]]) -> Rows:
    """Partitions that were ever led, of topics that have an id: of others nothing can be told."""
    rows: Rows = {}
    for name, numbers in wanted.items():
        topic = cluster.topics[name]
        led = {number: topic.partitions[number] for number in numbers if topic.partitions[number].state is not None}
        if led and topic.topic_id is not None:
            rows[name, topic.topic_id] = led
    return rows


def _leaderships(
    cluster: Cluster, led: Mapping[str, Mapping[int, bool]], joined_ids: set[int]
) -> tuple[dict[int, Rows], frozenset[tuple[str, int, int]]]:
    """An ISR or epoch change goes to all remaining replicas, not only to the leader. Who joined is told everything
    anyway, and only what is new there has to be said."""
    per_broker: dict[int, Rows] = {}
    new_replicas = set()
    for key, partitions in _rows(cluster, led).items():
        name, topic_id = key
        for number, partition in partitions.items():
            for broker_id in partition.replicas:
                if broker_id not in cluster.live_ids:
                    continue
                if broker_id not in joined_ids:
                    per_broker.setdefault(broker_id, {}).setdefault(key, {})[number] = partition
                if led[name][number]:
                    new_replicas.add((topic_id, number, broker_id))
    return per_broker, frozenset(new_replicas)
