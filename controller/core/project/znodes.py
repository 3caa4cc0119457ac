"""Which znodes there are, by path, and the kinds of write that changes are made of.

Paths are Kafka's. A change is asked for its writes just before its step is sent, with the versions that belief has
then. Three kinds of write tell the store how to treat nodes that were never read: `Ensure` (made if missing),
`Put` (made or replaced), and the plain operations, which are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from controller.core import formats
from controller.core.model import NO_VERSION, Leadership
from controller.core.operations import Create, Delete, Set

if TYPE_CHECKING:
    from controller.core.belief.cluster import Cluster

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
#: Klamm's own nodes, for facts that Kafka keeps only in memory, or nowhere
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
    """Make a znode, or replace its content at the version read in this turn."""

    path: str
    data: bytes


class Remove(msgspec.Struct, frozen=True, gc=False):
    """Delete a znode at the version read in this turn; nothing to do if it is not there."""

    path: str


class RemoveBelow(msgspec.Struct, frozen=True, gc=False):
    """Delete all partitions below a znode, though no assignment names them, and then that znode. Its other children are
    not ours to delete."""

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


def config_path(kind: str, entity: str) -> str:
    return f"/config/{kind}/{entity}"


def known_broker_path(broker_id: int) -> str:
    return f"{KNOWN_BROKERS}/{broker_id}"


def parents_of(path: str) -> tuple[Write, ...]:
    """Returns the parents that are needed before a node of our own is written."""
    return Ensure(KLAMM), Ensure(path)


def state_writes(cluster: Cluster, topic: str, number: int, state: Leadership) -> tuple[Write, ...]:
    """Of a partition's leadership: where it has no state znode yet, its parents are made, too."""
    data = formats.encode_state(state)
    known = cluster.partition(topic, number)
    path = state_path(topic, number)
    if known is not None and known.version != NO_VERSION:
        return (Set(path, data, known.version),)
    return Ensure(partitions_path(topic)), Ensure(path.rpartition("/")[0]), Create(path, data)


def numbers_in(names: Iterable[str]) -> list[int]:
    """Children whose name is a number within the bounds of Kafka's protocol, written as Kafka writes it, in order;
    other names are not Kafka's."""
    return sorted(number for name in names if _NUMBER.fullmatch(name) and (number := int(name)) <= _INT32_MAX)
