"""Requests to brokers, projected from changes that stand. Never asked before `Cluster.apply` has taken them.

A `Telling` is not yet a request: it says which partitions' latest state which broker should hear. The outbox of each
broker merges tellings and the dialect turns them into bytes; neither decides anything. Order, for each broker:
UpdateMetadata if the brokers changed, LeaderAndIsr, UpdateMetadata, StopReplica.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from controller.core.bitset import Bitset
from controller.core.model import Broker, Partition, Replicas
from controller.core.states import ReplicaStatus

if TYPE_CHECKING:
    from controller.core.belief.cluster import Cluster
    from controller.core.changes.cluster import Committed

#: topic name and topic id: a topic deleted and made anew is another topic
TopicKey = tuple[str, str]
NO_EPOCH = -1
#: a replica of a topic being deleted is stopped with any epoch
EPOCH_DURING_DELETE = -2
Rows = dict[TopicKey, dict[int, Partition]]


class Stop(msgspec.Struct, frozen=True, gc=False):
    """One replica to be stopped; `leader_epoch` -2 when its topic is being deleted: obeyed whatever the epoch."""

    leader_epoch: int
    delete: bool


Stops = dict[TopicKey, dict[int, Stop]]


class KnownBroker(msgspec.Struct, frozen=True):
    """A broker as all are told of it; `state` is live, draining or gone."""

    broker: Broker
    state: str


class Telling(msgspec.Struct):
    """The changes of one step that brokers are told. Shared by all outboxes, which must not change it."""

    #: every known broker, and the live ones among them, after the step
    brokers: Sequence[KnownBroker]
    live_ids: frozenset[int]
    brokers_changed: bool = False
    #: incarnations that need everything: full metadata, then all their replicas
    joined: Sequence[Broker] = ()
    #: incarnations (broker id, epoch) that are over
    gone: Sequence[tuple[int, int]] = ()
    #: the whole cluster, for the joined; None when no broker joined
    everything: Rows | None = None
    #: metadata for every live broker
    metadata: Rows = {}
    #: topics to be removed from metadata, with their partitions
    removed: Mapping[TopicKey, Sequence[int]] = {}
    #: per broker: partitions whose leadership changed
    leaderships: Mapping[int, Rows] = {}
    #: (topic id, partition, broker id) of replicas that are new on their broker
    new_replicas: frozenset[tuple[str, int, int]] = frozenset()
    #: per broker: replicas to be stopped
    stops: Mapping[int, Stops] = {}
    #: per broker: topics that it is asked about, with how many partitions each has
    questions: Mapping[int, Mapping[str, int]] = {}
    #: per live broker: (topic, partition) it cannot serve, for the list of offline replicas; empty: it has to say
    failed_dirs: Mapping[int, frozenset[tuple[str, int]]] = {}

    @property
    def is_empty(self) -> bool:
        told = self.joined or self.metadata or self.removed or self.leaderships or self.stops
        return not (self.brokers_changed or told or self.questions)


class Draft(msgspec.Struct):
    """The requests of a step, collected from its changes (`tell`)."""

    joined: list[Broker] = []
    gone: list[tuple[int, int]] = []
    brokers_changed: bool = False
    removed: dict[TopicKey, Sequence[int]] = {}
    #: topic -> partition -> whether it is led for the first time
    led: dict[str, dict[int, bool]] = {}
    #: topic -> partition -> the broker that shuts down and led it: it is told the new leader
    deposed: dict[str, dict[int, int]] = {}
    metadata: dict[str, set[int]] = {}
    stops: dict[int, Stops] = {}
    probed_ids: set[int] = set()
    #: topic -> the brokers that are asked about it
    asked: dict[str, frozenset[int]] = {}
    #: by broker: (topic, partition) to be told again; none: everything
    repeated: dict[int, Sequence[tuple[str, int]]] = {}

    def tell(self, topic: str, numbers: Iterable[int]) -> None:
        self.metadata.setdefault(topic, set()).update(numbers)

    def lead(self, topic: str, number: int, *, is_new: bool = False) -> None:
        """The leader is metadata, too."""
        self.led.setdefault(topic, {})[number] = is_new

    def stop(self, broker_id: int, key: TopicKey, number: int, leader_epoch: int, *, delete: bool = True) -> None:
        """A replica that is to be deleted is not told to stop before: one request says both."""
        stops = self.stops.setdefault(broker_id, {}).setdefault(key, {})
        if delete or number not in stops:
            stops[number] = Stop(leader_epoch, delete)


def requests_for(cluster: Cluster, committed: Iterable[Committed]) -> Telling:
    """Returns the requests that these changes are worth."""
    draft = Draft()
    for one in committed:
        one.change.tell(cluster, draft)
    renewed = [cluster.brokers[one] for one, some in draft.repeated.items() if not some and one in cluster.live_ids]
    came_ids = {broker.broker_id for broker in draft.joined}
    joined = [*draft.joined, *(broker for broker in renewed if broker.broker_id not in came_ids)]
    joined_ids = {broker.broker_id for broker in joined}
    telling = Telling(
        brokers=known_brokers(cluster),
        live_ids=cluster.live_ids,
        brokers_changed=draft.brokers_changed,
        joined=joined,
        gone=draft.gone,
        removed=draft.removed,
        questions=_questions(cluster, draft.asked),
        stops={broker_id: stops for broker_id, stops in draft.stops.items() if broker_id in cluster.live_ids},
        failed_dirs={**dict.fromkeys(cluster.duties.suspect_ids, frozenset()), **cluster.duties.failed_dirs},
    )
    if joined:
        telling.everything = _everything(cluster)
    if cluster.live_ids - joined_ids:
        for topic, led in draft.led.items():
            draft.tell(topic, led)
        # offline replicas are part of a partition's metadata, so it changes with the broker
        for topic, numbers in cluster.hosted_by({*came_ids, *(broker_id for broker_id, _ in draft.gone)}).items():
            draft.tell(topic, numbers)
        telling.metadata = _rows(cluster, draft.metadata)
    telling.leaderships, telling.new_replicas = _leaderships(cluster, draft, joined_ids)
    for broker_id in draft.probed_ids & (cluster.live_ids - joined_ids):
        hosted = {
            name: Bitset(bits=numbers.bits & ~_stopped_on(cluster, broker_id, name))
            for name, numbers in cluster.hosted.get(broker_id, {}).items()
        }
        telling.leaderships = {**telling.leaderships, broker_id: _rows(cluster, hosted)}
    for broker_id in draft.repeated.keys() & (cluster.live_ids - joined_ids):
        rows = _repeated_rows(cluster, broker_id, draft.repeated[broker_id])
        for key, decided in telling.leaderships.get(broker_id, {}).items():
            rows[key] = {**rows.get(key, {}), **decided}
        telling.leaderships = {**telling.leaderships, broker_id: rows}
        telling.new_replicas |= {
            (topic_id, number, broker_id)
            for (_, topic_id), some in rows.items()
            for number, partition in some.items()
            if _is_being_added(partition, broker_id)
        }
    return telling


def _repeated_rows(cluster: Cluster, broker_id: int, partitions: Iterable[tuple[str, int]]) -> Rows:
    """Of these the broker's own."""
    wanted: dict[str, list[int]] = {}
    for topic, number in partitions:
        partition = cluster.partition(topic, number)
        is_hosted = partition is not None and broker_id in partition.replicas
        if is_hosted and not _stopped_on(cluster, broker_id, topic) >> number & 1:
            wanted.setdefault(topic, []).append(number)
    return _rows(cluster, wanted)


def known_brokers(cluster: Cluster) -> list[KnownBroker]:
    """Returns all brokers, by id; those that are gone stay known, at least by the assignments that name them."""
    drains = cluster.duties.drains
    known = [
        KnownBroker(broker, "draining" if broker.broker_id in drains else "live") for broker in cluster.brokers.values()
    ]
    known += [KnownBroker(broker, "gone") for broker in cluster.gone.values()]
    named_ids = cluster.hosted.keys() - cluster.brokers.keys() - cluster.gone.keys()
    known += [KnownBroker(Broker(broker_id, -1, None, -1, ()), "gone") for broker_id in named_ids]
    return sorted(known, key=lambda one: one.broker.broker_id)


def _everything(cluster: Cluster) -> Rows:
    return _rows(cluster, {name: topic.partitions for name, topic in cluster.topics.items()})


def _rows(cluster: Cluster, wanted: Mapping[str, Iterable[int]]) -> Rows:
    """Partitions that were ever led, of topics with an undisputed id that stay: brokers can be told of no others."""
    rows: Rows = {}
    for name, numbers in wanted.items():
        topic = cluster.topics.get(name)
        if topic is None or cluster.duties.is_leaving(name) or name in cluster.duties.ids.disputes:
            continue
        partitions = topic.partitions
        led = {number: one for number in numbers if (one := partitions[number]).state is not None}
        if led and topic.topic_id is not None:
            rows[name, topic.topic_id] = led
    return rows


def _stopped_on(cluster: Cluster, broker_id: int, topic: str) -> int:
    """The bits of a topic's partitions that a broker stopped as it began to shut down: of these it is told no more."""
    if broker_id not in cluster.duties.drains or broker_id not in cluster.leaving_ids:
        return 0
    return cluster.states.replicas_in(broker_id, ReplicaStatus.OFFLINE).get(topic, 0)


def _is_being_added(partition: Partition, broker_id: int) -> bool:
    """A replica that is being added is new until it is in sync: over failovers, and where its broker refused
    it."""
    return broker_id in partition.adding and broker_id not in isr_of(partition)


def _leaderships(
    cluster: Cluster, draft: Draft, joined_ids: set[int]
) -> tuple[dict[int, Rows], frozenset[tuple[str, int, int]]]:
    """An ISR or epoch change goes to all remaining replicas, not only to the leader. A broker that joined is told
    everything anyway, and only new partitions there have to be named. A broker that shuts down is told of its stopped
    replicas only that it leads them no more."""
    led, drains = draft.led, cluster.duties.drains
    per_broker: dict[int, Rows] = {}
    new_replicas = set()
    for key, partitions in _rows(cluster, led).items():
        name, topic_id = key
        here: defaultdict[int, dict[int, Partition]] = defaultdict(dict)
        stopped = {one: _stopped_on(cluster, one, name) for one in drains} if drains else {}
        deposed = draft.deposed.get(name, {}) if drains else {}
        for number, partition in partitions.items():
            is_first = led[name][number]
            for broker_id in partition.replicas:
                if stopped and stopped.get(broker_id, 0) >> number & 1 and deposed.get(number) != broker_id:
                    continue
                here[broker_id][number] = partition
                if is_first or _is_being_added(partition, broker_id):
                    new_replicas.add((topic_id, number, broker_id))
        for broker_id in (here.keys() & cluster.live_ids) - joined_ids:
            per_broker.setdefault(broker_id, {})[key] = here[broker_id]
    return per_broker, frozenset(new for new in new_replicas if new[2] in cluster.live_ids)


def _questions(cluster: Cluster, asked: Mapping[str, frozenset[int]]) -> dict[int, dict[str, int]]:
    """A broker that is not live cannot be asked."""
    questions: dict[int, dict[str, int]] = {}
    for name, broker_ids in asked.items():
        topic = cluster.topics.get(name)
        for broker_id in broker_ids & cluster.live_ids:
            questions.setdefault(broker_id, {})[name] = 0 if topic is None else len(topic.partitions)
    return questions


def isr_of(partition: Partition) -> Replicas:
    return () if partition.state is None else partition.state.isr
