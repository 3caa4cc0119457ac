"""The catalogue of shapes as a whole, the way from a body to its shape, and the names of events.

Order matters: the first shape that fits wins. `event` of a silver row is one of the names below, for every writer of
the line and every version of Kafka. Beside each name stand the columns that it fills; a version of Kafka may leave some
of them out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from sparkjobs.parse.patterns import Shape
from sparkjobs.parse.shapes_broker import BROKER_SHAPES
from sparkjobs.parse.shapes_controller import CLUSTER_SHAPES, CONTROLLER_SHAPES
from sparkjobs.parse.shapes_kraft import KRAFT_BROKER_SHAPES, KRAFT_CONTROLLER_SHAPES, KRAFT_SERVER_SHAPES
from sparkjobs.parse.shapes_tenure import SERVER_SHAPES, TENURE_SHAPES

SHAPES: Final[tuple[Shape, ...]] = (
    *KRAFT_BROKER_SHAPES,
    *KRAFT_SERVER_SHAPES,
    *BROKER_SHAPES,
    *KRAFT_CONTROLLER_SHAPES,
    *CONTROLLER_SHAPES,
    *CLUSTER_SHAPES,
    *TENURE_SHAPES,
    *SERVER_SHAPES,
)

#: as long as the longest anchor
KEY_LENGTH: Final = max(len(shape.anchor) for shape in SHAPES)

#: shapes of lines that are no text of Kafka's, or of no use here
UNLISTED: Final = "unlisted"

#: old names of states, and numbers that stand for words
STATE_NAMES: Final = {
    "NotExists": "NonExistentPartition",
    "New": "NewPartition",
    "Online": "OnlinePartition",
    "Offline": "OfflinePartition",
}
RECOVERY_NAMES: Final = {"0": "RECOVERED", "1": "RECOVERING"}
API_NAMES: Final = {
    "LEADER_AND_ISR": "LeaderAndIsr",
    "UPDATE_METADATA": "UpdateMetadata",
    "STOP_REPLICA": "StopReplica",
}
#: why a broker ignored a request: the first words found in its message
_REFUSALS: Final = (
    ("controller epoch", "stale_controller_epoch"),
    ("matches the current leader epoch", "same_leader_epoch"),
    ("leader epoch", "stale_leader_epoch"),
    ("not in assigned replica list", "not_a_replica"),
    ("offline", "offline_directory"),
    ("", "refused"),
)

#: the kind of a request, and the broker that ignores it
_LEADER_EPOCHS: Final = re.compile(r"leader epoch (\d+)\b.*leader epoch (?:is )?(\d+)", re.ASCII)


def refusal_in(reason: str) -> str:
    """Returns the kind of a refusal. A state that a broker already knows is old to it, too, or not higher: the numbers
    tell."""
    error = next(error for words, error in _REFUSALS if words in reason)
    epochs = _LEADER_EPOCHS.search(reason) if error == "stale_leader_epoch" else None
    return "same_leader_epoch" if epochs is not None and epochs[1] == epochs[2] else error


def _by_first_word() -> dict[str, tuple[tuple[str, str, Shape], ...]]:
    found: defaultdict[str, list[tuple[str, str, Shape]]] = defaultdict(list)
    for shape in SHAPES:
        found[shape.anchor.split(" ", 1)[0]].append((shape.anchor, shape.mark, shape))
    return {word: tuple(shapes) for word, shapes in found.items()}


_BY_FIRST_WORD: Final = _by_first_word()


def route(key: str, body: str) -> Shape | None:
    """Returns the shape that a body must have which begins like this key."""
    for anchor, mark, shape in _BY_FIRST_WORD.get(key.split(" ", 1)[0], ()):
        if key.startswith(anchor) and mark in body:
            return shape
    return None


EVENTS: Final[dict[str, str]] = {
    # the controller's machines
    "partition_changed": "topic, partition, from_state, to_state; leader, leader_epoch, isr, version, replicas as said",
    "partition_change_failed": "topic, partition, from_state, to_state; trace says why",
    "election_started": "topic, partition",
    "leader_elected": "topic, partition, leader",
    "election_failed": "topic, partition, reason",
    "election_retried": "reason: a conflict of versions",
    "preferred_election_asked": "reason: who asked; the line lists the partitions",
    "preferred_election_done": "topic, partition, leader",
    "unclean_elected": "topic, partition, leader: said outright only up to 1.0",
    "replica_changed": "topic, partition, peer_broker (the replica), from_state, to_state",
    "replica_change_failed": "topic, partition, peer_broker, from_state, to_state",
    "isr_changed": "topic, partition, isr; leader, leader_epoch, version as said. By the controller or by the leader",
    "replicas_offline": "peer_broker: replicas on a failed log directory",
    # requests
    "request_sent": "api, peer_broker; topic, partition and its state, or n_partitions",
    "response_received": "api, peer_broker, correlation_id, error when there was one",
    "request_failed": "api, peer_broker, error",
    "request_received": "api, correlation_id, controller; topic, partition and its state",
    "request_started": "api, correlation_id, controller; topic, partition, to_state (leader, follower)",
    "request_step": "what a broker does on the way: reason",
    "request_done": "api, correlation_id, controller; topic, partition, to_state; or elapsed_ms, n_partitions",
    "request_ignored": "api, error: stale_leader_epoch, same_leader_epoch, stale_controller_epoch, not_a_replica, "
    "offline_directory, leader_unavailable, not_found",
    "leader_started": "topic, partition, leader_epoch, isr, offset (where its records begin): it really serves",
    "follower_started": "topic, partition, leader, leader_epoch, offset (its own end, before it truncates)",
    "metadata_cached": "topic, partition and its state, or n_partitions",
    "metadata_deleted": "topic, partition, or n_partitions",
    # controllers
    "controller_elected": "broker, controller_epoch",
    "controller_not_elected": "broker: somebody else has it",
    "controller_epoch_raised": "broker, controller_epoch",
    "failover_started": "broker: it begins to load",
    "failover_step": "reason: registering handlers, initializing context, fetching states, ...",
    "controller_ready": "broker, controller_epoch",
    "failover_done": "broker",
    "controller_resigned": "broker",
    "controller_moved": "broker: it learned that it is no longer the one",
    "session_expired": "broker",
    "session_established": "broker; elapsed_ms: the time-out that ZooKeeper granted, where the line says it",
    "zookeeper_lost": "broker: its connection to ZooKeeper broke, or could not be made",
    "brokers_changed": "added, removed, replicas (all who live)",
    "brokers_met": "replicas (all who live), as a controller takes over",
    "broker_epochs": "reason: the registration of each live broker that this controller knows",
    "broker_failed": "removed",
    "broker_started": "added",
    "broker_shutdown_requested": "peer_broker",
    "broker_connected": "peer_broker",
    "broker_unreachable": "peer_broker",
    "partition_snapshot": "at take-over: the line lists states of many partitions",
    # topics and reassignments
    "topics_changed": "topics came or went: reason",
    "topic_deletion_started": "topic when there is one",
    "topic_deletion_halted": "topic when there is one, reason",
    "topic_deleted": "topic",
    "reassignment_started": "topic, partition, replicas (target), added, removed as said",
    "reassignment_step": "topic, partition, reason",
    "reassignment_done": "topic, partition",
    "reassignment_failed": "topic, partition, reason",
    # a broker about itself
    "isr_version_conflict": "topic, partition, version: a leader that is no longer up to date",
    "under_replicated": "topic, partition, isr: a leader's wish that the controller refused",
    "server_starting": "broker",
    "server_started": "broker",
    "server_stopping": "broker",
    "server_stopped": "broker",
    "controlled_shutdown_started": "broker",
    "controlled_shutdown_done": "broker",
    "controlled_shutdown_failed": "broker, reason",
    "registering": "broker",
    "registered": "broker, broker_epoch",
    "log_directory_failed": "broker, reason",
    # KRaft
    "metadata_seen": "topic, partition and its state: a broker read it in the metadata log and had nothing to do",
    "metadata_step": "reason: what a broker does about the metadata log; topic, partition or n_partitions",
    "quorum_leader": "controller, controller_epoch: who leads the quorum, as a node learns; nobody where it is missing",
    "quorum_state": "to_state, controller_epoch: a node's own part in the quorum",
    "quorum_activated": "controller_epoch, offset: it is the active controller from now on",
    "quorum_renounced": "controller_epoch, offset: it is no more, and what it decided behind this offset is void",
    "quorum_stopping": "broker: this controller's process ends in order",
    "quorum_fencing": "peer_broker, broker_epoch: an active controller has not heard it; true where the record has it",
    "migration_moved": "from_state, to_state: how far KRaft's controller is with a migration from ZooKeeper",
    "quorum_decided": "peer_broker, or topic and partition, reason: not committed yet",
    "quorum_elected": "topic_id, partition, leader, reason: not committed yet",
    "quorum_rejected": "peer_broker, topic, partition, reason: what a leader asked for",
    "quorum_partition_changed": "topic, partition, what changed: as a controller takes it in",
    "quorum_broker_changed": "peer_broker, broker_epoch, reason: as a controller takes it in",
    "quorum_replayed": "reason: another record, as a controller takes it in",
    "quorum_said": "nothing: another line of KRaft's controller",
    # the log of a replica
    "log_loaded": "topic, partition, offset: below it all was known to be committed",
    "log_truncated": "topic, partition, offset: a replica threw away what it had from there on",
    # our own logs, where Kafka has no word for it
    "broker_changed": "peer_broker, broker_epoch, from_state, to_state, reason",
    "topic_changed": "topic, to_state, reason",
    "states_moved": "machine, from_state, to_state, cause, partitions, part; of replicas peer_broker (theirs)",
    "records_truncated": "topic, partition, leader, offset, records, records_lost: the new leader does not have them",
    "controller_reported": "to_state, reason",
    # everything else that is understood to be of no use here
    "other": "nothing",
}
