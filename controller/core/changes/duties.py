"""The changes that duties ask for: deletions, drains, request nodes, configuration, failed directories.

As all changes (`cluster.py`): each is one thing that should become true, and takes the same way. Their effect on
belief is in `belief/duties.py`, what they write in `project/znodes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from controller.core.causes import Cause, Failure
from controller.core.formats import TermZnode
from controller.core.model import Broker, BrokerRefusal, Replicas
from controller.core.states import ReplicaStatus, Status


def topic_subject(name: str) -> str:
    return f"topic {name}"


def broker_subject(broker_id: int) -> str:
    return f"broker {broker_id}"


def node_subject(path: str) -> str:
    return f"node {path}"


def config_subject(kind: str, entity: str) -> str:
    return topic_subject(entity) if kind == "topics" else node_subject(f"/config/{kind}/{entity}")


class OfTopic(msgspec.Struct, frozen=True):
    """A change whose subject is a topic."""

    topic: str

    @property
    def subject(self) -> str:
        return topic_subject(self.topic)


class OfBroker(msgspec.Struct, frozen=True):
    """A change whose subject is a broker."""

    broker_id: int

    @property
    def subject(self) -> str:
        return broker_subject(self.broker_id)


class DeletionMarked(OfTopic, frozen=True):
    """Write a topic's deletion marker: from here on the deletion is durable."""

    abandon_offline: bool


class DeletionQueued(OfTopic, frozen=True):
    """Believe a deletion marker. Unless something holds it, the topic is led no more, and everybody forgets it."""

    abandon_offline: bool
    is_held: bool = False


class DeletionWaits(OfTopic, frozen=True):
    """A deletion cannot go on, and why; None: it can again. It is looked at again when the term's
    clock says `retry_at_ms`."""

    reason: str | None
    retry_at_ms: int | None = None


class ReplicasMoved(OfTopic, frozen=True):
    """Replicas of a topic being deleted moved, state by state; those that start are told to delete."""

    replicas: tuple[tuple[int, int], ...]  # partition and broker id
    way: tuple[ReplicaStatus, ...]

    @property
    def target(self) -> ReplicaStatus:
        return self.way[-1]


class DroppedMoved(OfTopic, frozen=True):
    """Replicas on one broker that a reassignment dropped moved, state by state; those that start are told to delete."""

    topic_id: str
    broker_id: int
    partitions: tuple[int, ...]
    way: tuple[ReplicaStatus, ...]
    #: how often the broker refused, and when it is told again, by the term's clock
    failures: int = 0
    retry_at_ms: int = 0


class ReplicasStopped(OfTopic, frozen=True):
    """Replicas on a live broker that shuts down go offline and are stopped; they were in no ISR."""

    broker_id: int
    partitions: tuple[int, ...]


class Held(msgspec.Struct, frozen=True):
    """Which partitions, or replicas on one broker, are in a state: topic -> bits."""

    status: Status
    broker_id: int | None
    topics: Mapping[str, int]


class TermFound(msgspec.Struct, frozen=True):
    """Say in which state a term finds partitions and replicas: how many there are, and which are not online."""

    partitions: int
    replicas: int
    held: tuple[Held, ...]

    @property
    def subject(self) -> str:
        return node_subject("/controller")


class ElectionsFailed(OfTopic, frozen=True):
    """Say that elections of these partitions (bits) chose nobody. Nothing changes by it."""

    failure: Failure
    bits: int
    cause: Cause


class PartitionErased(OfTopic, frozen=True):
    """Remove one partition's znodes."""

    partition: int


class TopicErased(OfTopic, frozen=True):
    """Remove what is left of a topic: its znode, its configuration, its marker last. Then it is forgotten."""

    topic_id: str | None
    partitions: tuple[int, ...]


class MarkerDropped(OfTopic, frozen=True):
    """Remove a deletion marker without deleting: the topic is unknown, or deletion is not allowed."""

    reason: str


class OfDrain(msgspec.Struct, frozen=True):
    """What is written down of a broker's drain. A subject of its own: a broker does not live or die by it."""

    broker_id: int

    @property
    def subject(self) -> str:
        return node_subject(f"/klamm/draining/{self.broker_id}")


class DrainGranted(OfDrain, frozen=True):
    """A broker incarnation is to lead nothing; with `is_shutdown`, also to be in no ISR that can do without it."""

    epoch: int
    is_shutdown: bool


class DrainEnded(OfDrain, frozen=True):
    """A drain is over: by hand, or with the registration it was granted to."""

    reason: str


class BrokerNoted(msgspec.Struct, frozen=True):
    """Write a registration down, so that a broker stays known when it is gone, over terms too. A subject of its own:
    a broker does not live or die by it."""

    broker: Broker

    @property
    def subject(self) -> str:
        return node_subject(f"/klamm/brokers/{self.broker.broker_id}")


class BrokerForgotten(OfBroker, frozen=True):
    """Remove what was written down of a broker that is gone: it is known no more."""


class DirsFound(OfBroker, frozen=True):
    """Which replicas of a broker incarnation lie on failed directories, all of them: (topic, partition)."""

    epoch: int
    failed: frozenset[tuple[str, int]]
    #: those that had failed and are served again
    mended: frozenset[tuple[str, int]] = frozenset()


class DirsNoted(msgspec.Struct, frozen=True):
    """Write down whether a broker incarnation has replicas on failed directories. A subject of its own, as a drain is:
    who leads what does not wait for it."""

    broker_id: int
    epoch: int
    has_failed: bool

    @property
    def subject(self) -> str:
        return node_subject(f"/klamm/failed_dirs/{self.broker_id}")


class ReplicasProbed(OfBroker, frozen=True):
    """Ask a broker for all its replicas by a LeaderAndIsr whose only purpose is the answer."""


class TopicAsked(OfTopic, frozen=True):
    """Ask brokers what they know of a topic: its ids, and the leader epochs of its partitions."""

    broker_ids: frozenset[int]


class RefusalsFound(OfBroker, frozen=True):
    """What a broker incarnation refuses of what it was told, and what it refuses no more: (topic, partition)."""

    refused: Mapping[tuple[str, int], BrokerRefusal]
    #: of these, what it was not known to refuse, or for another reason
    begun: frozenset[tuple[str, int]] = frozenset()
    ended: tuple[tuple[str, int], ...] = ()


class RepeatedTo(OfBroker, frozen=True):
    """Tell a broker again what stands of these partitions; of none: everything."""

    partitions: tuple[tuple[str, int], ...]


class TopicIdSought(OfTopic, frozen=True):
    """A topic has no id: it is searched for, until this moment of the term's clock at most."""

    until_ms: int


class TopicIdAnswered(OfTopic, frozen=True):
    """Which ids a broker knows for a topic whose id is searched for."""

    broker_id: int
    ids: frozenset[str]


class TopicIdTaken(OfTopic, frozen=True):
    """A topic's id is searched for no more. `in_doubt`: brokers with replicas who did not say what they know."""

    in_doubt: frozenset[int]


class TopicIdDisputed(OfTopic, frozen=True):
    """More than one id is known for a topic, by these brokers (none: its znode): nothing is told of it until somebody
    decides."""

    claims: Mapping[str, tuple[int, ...]]
    in_doubt: frozenset[int]


class TopicIdDropped(OfTopic, frozen=True):
    """An id that a topic had is not its id: what was told under it is taken back."""

    topic_id: str
    partitions: tuple[int, ...]


class TopicIdGiven(OfTopic, frozen=True):
    """The id in a topic's znode is its id, since somebody decided so: all of it is told."""


class OfConfig(msgspec.Struct, frozen=True):
    """The overrides of a topic or a broker, whole."""

    kind: str  # topics or brokers
    entity: str
    values: Mapping[str, str]

    @property
    def subject(self) -> str:
        return config_subject(self.kind, self.entity)


class ConfigFound(OfConfig, frozen=True):
    """Believe overrides that were read."""


class ConfigWritten(OfConfig, frozen=True):
    """Write overrides, and a notification of it."""


class ReassignNodeWritten(msgspec.Struct, frozen=True):
    """What is left to do in `/admin/reassign_partitions`; nothing: it is removed."""

    targets: Mapping[tuple[str, int], Replicas]

    @property
    def subject(self) -> str:
        return node_subject("/admin/reassign_partitions")


class ReassignNodeFound(msgspec.Struct, frozen=True):
    """Believe `/admin/reassign_partitions` (None: it is not there)."""

    targets: Mapping[tuple[str, int], Replicas]
    version: int | None

    @property
    def subject(self) -> str:
        return node_subject("/admin/reassign_partitions")


class NodeRemoved(msgspec.Struct, frozen=True):
    """Remove a request node that was carried out, or that made no sense."""

    path: str
    version: int
    reason: str

    @property
    def subject(self) -> str:
        return node_subject(self.path)


class ProducerIdsFound(msgspec.Struct, frozen=True):
    """Believe `/latest_producer_id_block` (version None: it is not there)."""

    next_id: int
    version: int | None

    @property
    def subject(self) -> str:
        return node_subject("/latest_producer_id_block")


class ProducerIdsGranted(msgspec.Struct, frozen=True):
    """Give a block of producer ids to a broker: from `start` on, so many."""

    broker_id: int
    start: int
    size: int

    @property
    def subject(self) -> str:
        return node_subject("/latest_producer_id_block")


class TermRecorded(msgspec.Struct, frozen=True):
    """Write down a term; None: it is too long ago."""

    controller_epoch: int
    record: TermZnode | None

    @property
    def subject(self) -> str:
        return node_subject(f"/klamm/terms/{self.controller_epoch}")


class Reported(msgspec.Struct, frozen=True):
    """Something that an operator did makes no sense: said once in the log."""

    subject: str
    trouble: str


DutyChange = (
    DeletionMarked
    | DeletionQueued
    | DeletionWaits
    | ReplicasMoved
    | DroppedMoved
    | ReplicasStopped
    | ElectionsFailed
    | TermFound
    | PartitionErased
    | TopicErased
    | MarkerDropped
    | DrainGranted
    | DrainEnded
    | BrokerNoted
    | BrokerForgotten
    | DirsFound
    | DirsNoted
    | ReplicasProbed
    | TopicAsked
    | RefusalsFound
    | RepeatedTo
    | TopicIdSought
    | TopicIdAnswered
    | TopicIdTaken
    | TopicIdDisputed
    | TopicIdDropped
    | TopicIdGiven
    | ConfigFound
    | ConfigWritten
    | ReassignNodeWritten
    | ReassignNodeFound
    | NodeRemoved
    | ProducerIdsFound
    | ProducerIdsGranted
    | TermRecorded
    | Reported
)
