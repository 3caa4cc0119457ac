"""What is believed beside topics and brokers: deletions under way, drains granted, directories failed, configuration.

Part of the `Cluster`; only `Cluster.apply` calls `apply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from controller.core.admin import (
    AdminChange,
    BrokerForgotten,
    BrokerNoted,
    ConfigFound,
    ConfigWritten,
    DeletionMarked,
    DeletionQueued,
    DeletionWaits,
    DirsFound,
    DrainEnded,
    DrainGranted,
    MarkerDropped,
    ProducerIdsFound,
    ProducerIdsGranted,
    ReassignNodeFound,
    ReassignNodeWritten,
    ReplicasMoved,
    TermRecorded,
)
from controller.core.formats import KnownBrokerZnode, TermZnode, known_broker_for
from controller.core.model import Replicas
from controller.core.states import ReplicaStatus

_K = TypeVar("_K")
_V = TypeVar("_V")

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"
CLUSTER_DEFAULT = "<default>"


class Deletion(msgspec.Struct):
    """A topic on its way out: how far each replica is (none: not looked at yet), and what it waits for."""

    abandon_offline: bool = False
    #: it began: until then the topic is led as before
    is_queued: bool = False
    replicas: dict[tuple[int, int], ReplicaStatus] = {}  # partition and broker id
    waits_for: str | None = None
    retry_at_ms: int | None = None
    failures: int = 0


class Drain(msgspec.Struct, frozen=True):
    """Granted to one incarnation of a broker."""

    epoch: int
    is_shutdown: bool


class Duties:
    """Read it freely."""

    def __init__(self) -> None:
        self.deletions: dict[str, Deletion] = {}
        self.drains: dict[int, Drain] = {}
        #: broker id -> (topic, partition) that it cannot serve though it is live
        self.failed_dirs: dict[int, frozenset[tuple[str, int]]] = {}
        #: brokers that had bad directories under the controller before, and have not said yet which replicas that is
        self.suspect_ids: frozenset[int] = frozenset()
        #: (topic, partition) -> in-sync replicas whose broker went or bounced, until a decision that knows it stands
        self.departed: dict[tuple[str, int], frozenset[int]] = {}
        #: registrations as they are written down, the last one of each broker ever seen
        self.noted: dict[int, KnownBrokerZnode] = {}
        #: terms of the past and the present, by controller epoch
        self.terms: dict[int, TermZnode] = {}
        self.topic_configs: dict[str, Mapping[str, str]] = {}
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        #: `/admin/reassign_partitions`: what it still asks for, and its version (None: it is not there)
        self.reassign_targets: Mapping[tuple[str, int], Replicas] = {}
        self.reassign_version: int | None = None
        #: `/latest_producer_id_block`: the first id that nobody was given, and its version (None: it is not there)
        self.next_producer_id = 0
        self.producer_ids_version: int | None = None

    def is_leaving(self, topic: str) -> bool:
        """Whether a topic's deletion began: it is led no more and asked about no more."""
        return topic in self.deletions and self.deletions[topic].is_queued

    @property
    def are_pending(self) -> bool:
        """Whether time alone can make something due."""
        return bool(self.deletions or self.drains)

    def is_unclean_allowed(self, topic: str, *, default: bool) -> bool:
        """The value in force: the topic's, else the cluster's, else the process's own property."""
        for values in (self.topic_configs.get(topic), self.broker_configs.get(CLUSTER_DEFAULT)):
            if values is not None and UNCLEAN in values:
                return values[UNCLEAN].strip().lower() == "true"
        return default

    def min_isr_of(self, topic: str) -> int:
        """`min.insync.replicas` in force; what is no number counts as Kafka's default."""
        for values in (self.topic_configs.get(topic), self.broker_configs.get(CLUSTER_DEFAULT)):
            if values is not None and values.get(MIN_ISR, "").strip().isdecimal():
                return int(values[MIN_ISR])
        return 1

    def forget(self, topic: str) -> None:
        """A topic is gone."""
        self.deletions.pop(topic, None)
        self.topic_configs.pop(topic, None)
        for broker_id, failed in list(self.failed_dirs.items()):
            _keep(self.failed_dirs, broker_id, frozenset(one for one in failed if one[0] != topic))
        for key in [key for key in self.departed if key[0] == topic]:
            del self.departed[key]

    def forget_broker(self, broker_id: int, in_sync: Iterable[tuple[str, int]]) -> None:
        """A registration is over: another life has other directories, and has yet to catch up where it was in sync."""
        self.failed_dirs.pop(broker_id, None)
        self.suspect_ids -= {broker_id}
        departed, alone = self.departed, frozenset({broker_id})
        for key in in_sync:
            departed[key] = departed[key] | alone if key in departed else alone

    def apply(self, change: AdminChange) -> None:
        match change:
            case DeletionMarked(topic=topic, abandon_offline=abandon):
                self.deletions.setdefault(topic, Deletion()).abandon_offline = abandon
            case DeletionQueued(topic=topic, abandon_offline=abandon, is_held=is_held):
                deletion = self.deletions.setdefault(topic, Deletion())
                deletion.abandon_offline, deletion.is_queued = abandon, not is_held
            case DeletionWaits(topic=topic, reason=reason, retry_at_ms=retry_at_ms):
                deletion = self.deletions[topic]
                deletion.failures += retry_at_ms is not None and retry_at_ms != deletion.retry_at_ms
                deletion.waits_for, deletion.retry_at_ms = reason, retry_at_ms
            case ReplicasMoved(topic=topic, replicas=replicas, target=target):
                self.deletions[topic].replicas.update(dict.fromkeys(replicas, target))
            case MarkerDropped(topic=topic):
                self.deletions.pop(topic, None)
            case DrainGranted(broker_id=broker_id, epoch=epoch, is_shutdown=is_shutdown):
                self.drains[broker_id] = Drain(epoch, is_shutdown)
            case DrainEnded(broker_id=broker_id):
                self.drains.pop(broker_id, None)
            case BrokerNoted(broker=broker):
                self.noted[broker.broker_id] = known_broker_for(broker)
            case BrokerForgotten(broker_id=broker_id):
                self.noted.pop(broker_id, None)
            case DirsFound(broker_id=broker_id, failed=failed):
                _keep(self.failed_dirs, broker_id, failed)
                self.suspect_ids -= {broker_id}
            case (
                ConfigFound(kind=kind, entity=entity, values=values)
                | ConfigWritten(kind=kind, entity=entity, values=values)
            ):
                _keep(self.topic_configs if kind == "topics" else self.broker_configs, entity, values)
            case ReassignNodeFound(targets=targets, version=version):
                self.reassign_targets, self.reassign_version = targets, version
            case ReassignNodeWritten(targets=targets):
                self.reassign_targets = targets
                self.reassign_version = (
                    None if not targets or self.reassign_version is None else self.reassign_version + 1
                )
            case ProducerIdsFound(next_id=next_id, version=version):
                self.next_producer_id, self.producer_ids_version = next_id, version
            case ProducerIdsGranted(start=start, size=size):
                self.next_producer_id = start + size
                before = self.producer_ids_version
                self.producer_ids_version = 0 if before is None else before + 1
            case TermRecorded(controller_epoch=epoch, record=None):
                self.terms.pop(epoch, None)
            case TermRecorded(controller_epoch=epoch, record=TermZnode() as record):
                self.terms[epoch] = record
            case _:
                pass


def _keep(table: dict[_K, _V], key: _K, value: _V) -> None:
    """Only what is not empty is kept: there is one entry for each exception, not for each topic."""
    if value:
        table[key] = value
    else:
        table.pop(key, None)
