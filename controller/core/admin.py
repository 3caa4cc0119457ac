"""The changes that duties ask for: deletions, drains, request nodes, configuration, failed directories.

As all changes (`changes.py`): each is one thing that should become true, and takes the same way. Their effect on
belief is in `duties.py`, what they write in `znodes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from controller.core.formats import TermZnode
from controller.core.model import Broker, Replicas
from controller.core.states import ReplicaStatus


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
    """A deletion cannot go on, and why; None: it can again. It is looked at again at `retry_at_ms`."""

    reason: str | None
    retry_at_ms: int | None = None


class ReplicasMoved(OfTopic, frozen=True):
    """Replicas of a topic being deleted moved to `target`; those that start are told to delete."""

    replicas: tuple[tuple[int, int], ...]  # partition and broker id
    target: ReplicaStatus


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


class DrainGranted(OfBroker, frozen=True):
    """A broker incarnation is to lead nothing; with `is_shutdown`, also to be in no ISR that can do without it."""

    epoch: int
    is_shutdown: bool


class DrainEnded(OfBroker, frozen=True):
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


class ReplicasProbed(OfBroker, frozen=True):
    """Ask a broker for all its replicas by a LeaderAndIsr whose only purpose is the answer."""


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


AdminChange = (
    DeletionMarked
    | DeletionQueued
    | DeletionWaits
    | ReplicasMoved
    | PartitionErased
    | TopicErased
    | MarkerDropped
    | DrainGranted
    | DrainEnded
    | BrokerNoted
    | BrokerForgotten
    | DirsFound
    | ReplicasProbed
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
