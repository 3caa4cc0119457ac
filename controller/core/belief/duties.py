"""Belief beside topics and brokers: deletions under way, drains granted, directories failed, configuration.

Part of the `Cluster`: changed by changes that stand, as `Cluster.apply` has it believe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from controller.core.belief.id_searches import IdSearches
from controller.core.belief.kept_states import topic_of
from controller.core.codes import Code
from controller.core.formats import KnownBrokerZnode, TermZnode
from controller.core.model import BrokerRefusal, Leadership, Replicas
from controller.core.states import ReplicaStatus

_K = TypeVar("_K")
_V = TypeVar("_V")

Refused = Mapping[tuple[str, int], BrokerRefusal]

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"
CLUSTER_DEFAULT = "<default>"


class Deletion(msgspec.Struct):
    """A topic on its way out: the progress of each replica (none: not looked at yet), and the awaited brokers."""

    abandon_offline: bool = False
    #: it began: until then the topic is led as before
    is_queued: bool = False
    replicas: dict[tuple[int, int], ReplicaStatus] = {}  # partition and broker id
    #: those of them whose brokers were told to delete them and have not answered
    started: set[tuple[int, int]] = set()
    waits_for: str | None = None
    retry_at_ms: int | None = None  # by the term's clock
    failures: int = 0

    def move(self, replicas: Iterable[tuple[int, int]], target: ReplicaStatus) -> None:
        self.replicas.update(dict.fromkeys(replicas, target))
        if target is ReplicaStatus.DELETION_STARTED:
            self.started.update(replicas)
        else:
            self.started.difference_update(replicas)


class Dropped(msgspec.Struct):
    """Replicas of one topic that a broker has still to delete."""

    #: partition -> the leader epoch of the decision that dropped it
    leader_epochs: dict[int, int] = {}
    #: how often the broker refused, and when it is told again, by the term's clock
    failures: int = 0
    retry_at_ms: int = 0


class Drain(msgspec.Struct, frozen=True):
    """Granted to one incarnation of a broker."""

    epoch: int
    is_shutdown: bool


class Duties:
    """Read it freely."""

    def __init__(self) -> None:
        self.deletions: dict[str, Deletion] = {}
        self.drains: dict[int, Drain] = {}
        #: replicas that reassignments dropped and their brokers have not deleted: key -> broker id -> work to do
        self.dropped: dict[str, dict[int, Dropped]] = {}
        #: broker id -> (topic, partition) that it cannot serve though it is live
        self.failed_dirs: dict[int, frozenset[tuple[str, int]]] = {}
        #: broker id -> topic -> partition -> its refusal; topic "", partition -1: the metadata as a whole
        self.refusals: dict[int, dict[str, dict[int, BrokerRefusal]]] = {}
        #: brokers that had bad directories under the controller before, and have not said yet which replicas that is
        self.suspect_ids: frozenset[int] = frozenset()
        #: questions about topics' ids that are not settled
        self.ids = IdSearches()
        #: broker that went or bounced -> topic -> bits of the partitions in whose ISR it was, until a decision that
        #: knows it stands
        self.departed: dict[int, dict[str, int]] = {}
        #: (topic, partition) -> czxid of the topic, and the last state before its znode vanished: no other stands yet
        self.lost_states: dict[tuple[str, int], tuple[int, Leadership]] = {}
        #: registrations as they are written down, the last one of each broker ever seen
        self.noted: dict[int, KnownBrokerZnode] = {}
        #: terms of the past and the present, by controller epoch
        self.terms: dict[int, TermZnode] = {}
        self.topic_configs: dict[str, Mapping[str, str]] = {}
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        #: `/admin/reassign_partitions`: the plan that is left in it, and its version (None: it does not exist)
        self.reassign_targets: Mapping[tuple[str, int], Replicas] = {}
        self.reassign_version: int | None = None
        #: `/latest_producer_id_block`: the first id that was never granted, and its version (None: it does not exist)
        self.next_producer_id = 0
        self.producer_ids_version: int | None = None

    def refused_by(self, broker_id: int) -> int:
        """Returns how many states a broker refuses."""
        return sum(len(numbers) for numbers in self.refusals.get(broker_id, {}).values())

    def refusal_of(self, broker_id: int, topic: str, number: int) -> BrokerRefusal | None:
        return self.refusals.get(broker_id, {}).get(topic, {}).get(number)

    def is_id_refused(self, topic: str) -> bool:
        """Returns whether any broker says that it knows another id for a topic than it was told."""
        told = (refused.get(topic, {}) for refused in self.refusals.values())
        return any(one.code == Code.INCONSISTENT_TOPIC_ID for numbers in told for one in numbers.values())

    def is_id_open(self, topic: str) -> bool:
        """Returns whether a tool that writes an id into a topic's znode decides the topic's id."""
        return self.ids.is_undecided(topic) or self.is_id_refused(topic)

    def is_leaving(self, topic: str) -> bool:
        """Returns whether a topic's deletion began: it is led no more and asked about no more."""
        return topic in self.deletions and self.deletions[topic].is_queued

    @property
    def are_pending(self) -> bool:
        """Whether time alone can make something due."""
        return bool(self.deletions or self.drains or self.dropped or self.refusals or self.ids.open)

    def is_unclean_allowed(self, topic: str, *, default: bool) -> bool:
        """Returns the value in force: the topic's, else the cluster's, else the process's own property."""
        for values in (self.topic_configs.get(topic), self.broker_configs.get(CLUSTER_DEFAULT)):
            if values is not None and UNCLEAN in values:
                return values[UNCLEAN].strip().lower() == "true"
        return default

    def min_isr_of(self, topic: str) -> int:
        """Returns `min.insync.replicas` in force; a value that is no number counts as Kafka's default."""
        for values in (self.topic_configs.get(topic), self.broker_configs.get(CLUSTER_DEFAULT)):
            if values is not None and values.get(MIN_ISR, "").strip().isdecimal():
                return int(values[MIN_ISR])
        return 1

    def forget(self, topic: str) -> None:
        """A topic is gone."""
        self.deletions.pop(topic, None)
        self.topic_configs.pop(topic, None)
        self.ids.close(topic)
        for broker_id, failed in list(self.failed_dirs.items()):
            keep(self.failed_dirs, broker_id, frozenset(one for one in failed if one[0] != topic))
        self.settle_departed(topic, -1)
        for place in [place for place in self.dropped if topic_of(place) == topic]:
            del self.dropped[place]
        self.forget_refusals(topic)

    def forget_refusals(self, topic: str) -> None:
        for broker_id in [one for one, refused in self.refusals.items() if topic in refused]:
            del self.refusals[broker_id][topic]
            keep(self.refusals, broker_id, self.refusals[broker_id])

    def believe_refusals(self, broker_id: int, refused: Refused, ended: Iterable[tuple[str, int]]) -> None:
        """In place: a broker may refuse very much, and take it bit by bit."""
        topics = self.refusals.setdefault(broker_id, {})
        for topic, number in ended:
            if topic in topics:
                topics[topic].pop(number, None)
                keep(topics, topic, topics[topic])
        for (topic, number), refusal in refused.items():
            topics.setdefault(topic, {})[number] = refusal
        keep(self.refusals, broker_id, topics)

    def departed_of(self, topic: str, number: int) -> frozenset[int]:
        """In-sync replicas of a partition whose broker went or bounced, and no decision that knows it stands."""
        held = self.departed.items()
        return frozenset(broker_id for broker_id, topics in held if topics.get(topic, 0) >> number & 1)

    def settle_departed(self, topic: str, bits: int) -> None:
        """The decision about these partitions stands."""
        for broker_id, topics in list(self.departed.items()):
            if topic in topics:
                keep(topics, topic, topics[topic] & ~bits)
                keep(self.departed, broker_id, topics)

    def forget_broker(self, broker_id: int, in_sync: dict[str, int]) -> None:
        """A registration is over: another life has other directories, and has yet to catch up where it was in sync, in
        these partitions (topic -> bits)."""
        self.failed_dirs.pop(broker_id, None)
        self.suspect_ids -= {broker_id}
        self.refusals.pop(broker_id, None)
        before = self.departed.get(broker_id, {})
        keep(
            self.departed, broker_id, in_sync | {topic: in_sync.get(topic, 0) | bits for topic, bits in before.items()}
        )

    def configure(self, kind: str, entity: str, values: Mapping[str, str]) -> None:
        """The overrides of a topic or a broker, whole."""
        keep(self.topic_configs if kind == "topics" else self.broker_configs, entity, values)


def keep(table: dict[_K, _V], key: _K, value: _V) -> None:
    """Only values that are not empty are kept: there is one entry for each exception, not for each topic."""
    if value:
        table[key] = value
    else:
        table.pop(key, None)
