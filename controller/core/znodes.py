"""Which znodes there are, and what changes write into them.

Paths are Kafka's. `writes_for` is the projection: it is asked just before a step is sent, with the versions that belief
has then. Three kinds of write say what the store must do about nodes that were never read: `Ensure` (made if missing),
`Put` (made or replaced), and the plain operations, which are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from controller.core import formats
from controller.core.admin import (
    BrokerForgotten,
    BrokerNoted,
    ConfigWritten,
    DeletionMarked,
    DirsFound,
    DrainEnded,
    DrainGranted,
    MarkerDropped,
    NodeRemoved,
    PartitionErased,
    ProducerIdsGranted,
    ReassignNodeWritten,
    TermRecorded,
    TopicErased,
)
from controller.core.changes import Change, NotificationRead, StateDecided, StateFound, TopicCreated, TopicWritten
from controller.core.cluster import Cluster
from controller.core.model import NO_VERSION
from controller.core.writes import Create, Delete, Set

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
    """Delete whatever partitions lie below a znode, though no assignment names them, and then that znode."""

    path: str


Write = Create | Set | Delete | Ensure | Put | Remove | RemoveBelow


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
        case NotificationRead(path=path):
            return (Delete(path, 0),)
        case _:
            return _admin_writes(cluster, change)


def _admin_writes(cluster: Cluster, change: Change) -> tuple[Write, ...]:
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
        case DirsFound(broker_id=broker_id, epoch=epoch, failed=failed):
            path = f"{FAILED_DIRS}/{broker_id}"
            if not failed:
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
        case _:
            return ()


def _parents(path: str) -> tuple[Write, ...]:
    return Ensure(KLAMM), Ensure(path)


def _state_writes(cluster: Cluster, topic: str, number: int, data: bytes) -> tuple[Write, ...]:
    known = cluster.partition(topic, number)
    path = state_path(topic, number)
    if known is not None and known.version != NO_VERSION:
        return (Set(path, data, known.version),)
    return Ensure(partitions_path(topic)), Ensure(path.rpartition("/")[0]), Create(path, data)


class Kind(msgspec.Struct, frozen=True):
    """A family of znodes: what it is called, and the type of what it holds (None: nothing)."""

    name: str
    holds: type | None


_KINDS: tuple[tuple[re.Pattern[str], Kind], ...] = tuple(
    (re.compile(pattern), Kind(name, holds))
    for pattern, name, holds in (
        (r"/controller", "controller", formats.ControllerZnode),
        (r"/controller_epoch", "controller epoch", int),
        (r"/brokers/ids/\d+", "broker", formats.BrokerZnode),
        (r"/brokers/topics/[^/]+", "topic", formats.TopicZnode),
        (r"/brokers/topics/[^/]+/partitions(/\d+)?", "partitions", None),
        (r"/brokers/topics/[^/]+/partitions/\d+/state", "state", formats.StateZnode),
        (r"/admin/reassign_partitions", "reassignment", formats.ReassignZnode),
        (r"/admin/preferred_replica_election", "preferred election", formats.PartitionsZnode),
        (r"/admin/delete_topics/[^/]+", "deletion", None),
        (r"/isr_change_notification/isr_change_\d+", "ISR notification", formats.PartitionsZnode),
        (r"/log_dir_event_notification/log_dir_event_\d+", "log dir event", formats.LogDirEventZnode),
        (r"/config/changes/config_change_\d+", "config notification", formats.ConfigChangeZnode),
        (r"/config/(topics|brokers|clients|users|ips)/[^/]+", "config", formats.ConfigZnode),
        (r"/config/users/[^/]+/clients/[^/]+", "config", formats.ConfigZnode),
        (r"/cluster/id", "cluster id", formats.ClusterIdZnode),
        (r"/feature", "features", formats.FeatureZnode),
        (r"/latest_producer_id_block", "producer ids", formats.ProducerIdsZnode),
        (r"/(brokers|admin|config|cluster|consumers|isr_change_notification|log_dir_event_notification)", "top", None),
        (r"/brokers/(ids|topics|seqid)|/admin/delete_topics|/config/users/[^/]+/clients", "top", None),
        # what brokers keep for themselves: known, and none of the controller's business
        (r"/(migration|delegation_token|kafka-acl|kafka-acl-changes|kafka-acl-extended.*)(/.*)?", "broker data", None),
        (r"/config/(changes|topics|brokers|clients|users|ips)", "top", None),
    )
)


def kind_of(path: str) -> Kind | None:
    """What a path is, by Kafka's layout; None for a path Kafka does not know."""
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(path)), None)


def decode_as(kind: Kind, data: bytes) -> object:
    """A znode's content by its own type; FormatError when it is something else."""
    if kind.holds is None:
        return None
    return formats.decode_epoch(data) if kind.holds is int else formats.decode(data, kind.holds)


def numbers_in(names: Iterator[str]) -> list[int]:
    """Children whose name is a number (brokers, partitions), in order; anything else is not Kafka's."""
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())
