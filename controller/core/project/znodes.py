"""Which znodes there are, and what changes write into them.

Paths are Kafka's. `writes_for` is the projection: it is asked just before a step is sent, with the versions that belief
has then. Three kinds of write say what the store must do about nodes that were never read: `Ensure` (made if missing),
`Put` (made or replaced), and the plain operations, which are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

import msgspec

from controller.core import formats
from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import (
    BrokerChanged,
    BrokerGone,
    BrokerLive,
    BrokerMissing,
    Change,
    NotificationRead,
    RefusalEnded,
    Refused,
    StateDecided,
    StateFound,
    StateLost,
    SubjectParked,
    TopicCreated,
    TopicFound,
    TopicGone,
    TopicWritten,
    Unreadable,
    WriteRefused,
)
from controller.core.changes.duties import (
    BrokerForgotten,
    BrokerNoted,
    ConfigFound,
    ConfigWritten,
    DeletionMarked,
    DeletionQueued,
    DeletionWaits,
    DirsFound,
    DirsNoted,
    DrainEnded,
    DrainGranted,
    DroppedMoved,
    DutyChange,
    ElectionsFailed,
    MarkerDropped,
    NodeRemoved,
    PartitionErased,
    ProducerIdsFound,
    ProducerIdsGranted,
    ReassignNodeFound,
    ReassignNodeWritten,
    RefusalsFound,
    RepeatedTo,
    ReplicasMoved,
    ReplicasProbed,
    ReplicasStopped,
    Reported,
    TermFound,
    TermRecorded,
    TopicAsked,
    TopicErased,
    TopicIdAnswered,
    TopicIdDisputed,
    TopicIdDropped,
    TopicIdGiven,
    TopicIdSought,
    TopicIdTaken,
)
from controller.core.model import NO_VERSION
from controller.core.operations import Create, Delete, Set

#: Kafka never writes a zero in front, and its protocol has room for no more
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_INT32_MAX = 2**31 - 1

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_NOTIFICATIONS = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CONFIG_CHANGES = "/config/changes"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
CLUSTER_ID = "/cluster/id"
PRODUCER_IDS = "/latest_producer_id_block"
#: what Kafka keeps only in memory, or nowhere
KLAMM = "/klamm"
#: there while the seat was given back to Kafka's own brokers: controllers of ours that are no brokers leave it alone
HANDED_BACK = "/klamm/handed_back"
DRAINING = "/klamm/draining"
FAILED_DIRS = "/klamm/failed_dirs"
TERMS = "/klamm/terms"
KNOWN_BROKERS = "/klamm/brokers"
#: controllers of ours that are no brokers
CONTROLLERS = "/klamm/controllers"


class Ensure(msgspec.Struct, frozen=True, gc=False):
    """Make an empty znode if it is missing."""

    path: str


class Put(msgspec.Struct, frozen=True, gc=False):
    """Make a znode, or replace what it holds at the version read in this turn."""

    path: str
    data: bytes


class Remove(msgspec.Struct, frozen=True, gc=False):
    """Delete a znode at the version read in this turn; nothing to do if it is not there."""

    path: str


class RemoveBelow(msgspec.Struct, frozen=True, gc=False):
    """Delete whatever partitions lie below a znode, though no assignment names them, and then that znode. What else is
    there is not ours to delete."""

    path: str


Write = Create | Set | Delete | Ensure | Put | Remove | RemoveBelow


def controller_path(controller_id: int) -> str:
    return f"{CONTROLLERS}/{controller_id}"


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def marker_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def writes_for(cluster: Cluster, change: Change) -> tuple[Write, ...]:
    """What one change writes; the last write is the znode whose version the change's outcome reports."""
    match change:
        case StateDecided(topic=topic, partition=number, state=state):
            return _state_writes(cluster, topic, number, formats.encode_state(state))
        case StateFound():  # a term may begin with tens of thousands
            return ()
        case TopicCreated(name=name, topic_id=topic_id, assignment=assignment, configs=configs):
            config = formats.encode(formats.ConfigZnode(dict(configs)))
            topic_data = formats.encode_topic(topic_id, dict(assignment))
            return Put(f"{CONFIG_TOPICS}/{name}", config), Create(topic_path(name), topic_data)
        case TopicWritten(name=name, topic_id=topic_id, assignment=assignment, states=states):
            data = formats.encode_topic(topic_id, dict(assignment))
            together = [write for state in states for write in writes_for(cluster, state)]
            return (*together, Set(topic_path(name), data, cluster.topics[name].version))
        case NotificationRead(path=path, version=version):
            return (Delete(path, version),)
        case (
            BrokerLive()
            | BrokerChanged()
            | BrokerGone()
            | BrokerMissing()
            | TopicFound()
            | Unreadable()
            | TopicGone()
            | StateLost()
            | SubjectParked()
            | WriteRefused()
            | RefusalEnded()
            | Refused()
        ):
            return ()
        case duty:
            return _duty_writes(cluster, duty)


def target_of(cluster: Cluster, change: Change) -> str | None:
    """The znode that a change is about: the one whose version its outcome reports, and all of a deletion's that below
    which partitions are. None when it writes nothing."""
    if isinstance(change, StateDecided):
        return state_path(change.topic, change.partition)
    if isinstance(change, PartitionErased | TopicErased):
        return partitions_path(change.topic)
    if isinstance(change, TopicCreated | TopicWritten):
        return topic_path(change.name)
    if isinstance(change, ReassignNodeWritten):
        return REASSIGN
    writes = writes_for(cluster, change)
    return writes[-1].path if writes else None


def _duty_writes(cluster: Cluster, change: DutyChange) -> tuple[Write, ...]:
    match change:
        case DeletionMarked(topic=topic, abandon_offline=abandon):
            return (Put(marker_path(topic), formats.encode_marker(abandon_offline=abandon)),)
        case MarkerDropped(topic=topic):
            return (Remove(marker_path(topic)),)
        case PartitionErased(topic=topic, partition=number):
            path = state_path(topic, number)
            return Remove(path), Remove(path.rpartition("/")[0])
        case TopicErased(topic=topic):  # the marker last: until then a successor goes on
            paths = (topic_path(topic), f"{CONFIG_TOPICS}/{topic}", marker_path(topic))
            return (RemoveBelow(partitions_path(topic)), *(Remove(path) for path in paths))
        case DrainGranted(broker_id=broker_id, epoch=epoch, is_shutdown=is_shutdown):
            data = formats.encode(formats.DrainZnode(epoch, "shutdown" if is_shutdown else "hand"))
            return (*_parents(DRAINING), Put(f"{DRAINING}/{broker_id}", data))
        case DrainEnded(broker_id=broker_id):
            return (Remove(f"{DRAINING}/{broker_id}"),)
        case BrokerNoted(broker=broker):
            data = formats.encode(formats.known_broker_for(broker))
            return (*_parents(KNOWN_BROKERS), Put(f"{KNOWN_BROKERS}/{broker.broker_id}", data))
        case BrokerForgotten(broker_id=broker_id):
            return (Remove(f"{KNOWN_BROKERS}/{broker_id}"),)
        case DirsNoted(broker_id=broker_id, epoch=epoch, has_failed=has_failed):
            path = f"{FAILED_DIRS}/{broker_id}"
            if not has_failed:
                return (Remove(path),)
            return (*_parents(FAILED_DIRS), Put(path, formats.encode(formats.FailedDirsZnode(epoch))))
        case ConfigWritten(kind=kind, entity=entity, values=values):
            notification = formats.encode(formats.ConfigChangeZnode(version=2, entity_path=f"{kind}/{entity}"))
            return (
                Create(f"{CONFIG_CHANGES}/config_change_", notification, sequential=True),
                Put(f"/config/{kind}/{entity}", formats.encode(formats.ConfigZnode(dict(values)))),
            )
        case ReassignNodeWritten(targets=targets):
            version = cluster.duties.reassign_version
            if version is None:
                return ()
            return (Set(REASSIGN, formats.encode_targets(targets), version) if targets else Delete(REASSIGN, version),)
        case ProducerIdsGranted(broker_id=broker_id, start=start, size=size):
            block = formats.encode(formats.ProducerIdsZnode(broker_id, str(start), str(start + size - 1)))
            known = cluster.duties.producer_ids_version
            return (Create(PRODUCER_IDS, block) if known is None else Set(PRODUCER_IDS, block, known),)
        case TermRecorded(controller_epoch=epoch, record=record):
            path = f"{TERMS}/{epoch}"
            return (Remove(path),) if record is None else (*_parents(TERMS), Put(path, formats.encode(record)))
        case NodeRemoved(path=path, version=version):
            return (Delete(path, version),)
        case (
            DeletionQueued()
            | DeletionWaits()
            | ReplicasMoved()
            | DroppedMoved()
            | ReplicasStopped()
            | ElectionsFailed()
            | TermFound()
            | DirsFound()
            | ReplicasProbed()
            | TopicAsked()
            | RefusalsFound()
            | RepeatedTo()
            | TopicIdSought()
            | TopicIdAnswered()
            | TopicIdTaken()
            | TopicIdDisputed()
            | TopicIdDropped()
            | TopicIdGiven()
            | ConfigFound()
            | ReassignNodeFound()
            | ProducerIdsFound()
            | Reported()
        ):
            return ()
        case _:
            assert_never(change)


def _parents(path: str) -> tuple[Write, ...]:
    return Ensure(KLAMM), Ensure(path)


def _state_writes(cluster: Cluster, topic: str, number: int, data: bytes) -> tuple[Write, ...]:
    known = cluster.partition(topic, number)
    path = state_path(topic, number)
    if known is not None and known.version != NO_VERSION:
        return (Set(path, data, known.version),)
    return Ensure(partitions_path(topic)), Ensure(path.rpartition("/")[0]), Create(path, data)


def numbers_in(names: Iterable[str]) -> list[int]:
    """Children whose name is a number that Kafka's protocol has room for, written as Kafka writes it, in order;
    anything else is not Kafka's."""
    return sorted(number for name in names if _NUMBER.fullmatch(name) and (number := int(name)) <= _INT32_MAX)
