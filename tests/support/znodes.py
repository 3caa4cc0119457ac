"""Kafka's znodes by their paths: the family and content of each, for tests of recordings."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from controller.core import formats


class Kind(msgspec.Struct, frozen=True):
    """A family of znodes: its name, and the type of its content (None: nothing)."""

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
        # nodes that brokers keep for themselves: known, and none of the controller's business
        (r"/(migration|delegation_token|kafka-acl|kafka-acl-changes|kafka-acl-extended.*)(/.*)?", "broker data", None),
        (r"/config/(changes|topics|brokers|clients|users|ips)", "top", None),
    )
)


def kind_of(path: str) -> Kind | None:
    """Returns the kind of a path, by Kafka's layout; None for a path Kafka does not know."""
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(path)), None)


def decode_as(kind: Kind, data: bytes) -> object:
    """A znode's content by its own type; FormatError when it is something else."""
    if kind.holds is None:
        return None
    return formats.decode_epoch(data) if kind.holds is int else formats.decode(data, kind.holds)


def generic(data: bytes) -> Any:
    """Returns the JSON as plain values, to compare equal ones with keys in any order."""
    return formats.decode(data, object)
