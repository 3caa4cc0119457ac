"""The events: everything that can happen to a controller, each as a whole fact or a whole request, never an order.

A fact carries the zxid it was read at. A request is decided on belief and protected by versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from controller.core.model import Assignment, Broker, Leadership, Replicas


class TopicFact(msgspec.Struct, frozen=True):
    """A topic znode as read. `trouble` says why it could not be understood; then there is no assignment."""

    name: str
    version: int
    czxid: int
    zxid: int
    topic_id: str | None = None
    assignment: Mapping[int, Assignment] = {}
    trouble: str | None = None


class StateFact(msgspec.Struct, frozen=True, gc=False):
    """A state znode as read, or its absence (`state` and `trouble` are None)."""

    topic: str
    partition: int
    state: Leadership | None
    version: int
    zxid: int
    mtime_ms: int = 0
    trouble: str | None = None

    def trouble_in(self, controller_epoch: int) -> str | None:
        """Why the znode must be left alone in this term; None when it can be believed."""
        if self.trouble is None and self.state is not None and self.state.controller_epoch > controller_epoch:
            return f"stamped by a later controller, epoch {self.state.controller_epoch}"
        return self.trouble


class TermStarted(msgspec.Struct, frozen=True):
    """The cluster was loaded: topics and states are believed already, brokers were read last and come here."""

    brokers: Mapping[int, Broker]
    zxid: int
    #: state znodes that the previous controller may have written without recording it
    found: Sequence[StateFact] = ()
    #: deletion markers: topic -> whether brokers that are gone are not to be waited for
    markers: Mapping[str, bool] = {}
    #: brokers about whose earlier registrations a note still exists
    stale_ids: frozenset[int] = frozenset()


class BrokersSeen(msgspec.Struct, frozen=True):
    """All registrations, in one reading. A broker that is not in it is gone."""

    brokers: Mapping[int, Broker]
    zxid: int


class TopicsSeen(msgspec.Struct, frozen=True):
    """`names` is the whole list of topics as of `zxid` (None: it was not read); `facts` those whose znode was read."""

    facts: Sequence[TopicFact]
    zxid: int
    names: frozenset[str] | None = None


class StatesSeen(msgspec.Struct, frozen=True):
    """State znodes that another writer may have written. `notifications` are the znodes that announced them, with the
    versions that were read: they go when their effect stands."""

    facts: Sequence[StateFact]
    notifications: Mapping[str, int] = {}


class IsrProposal(msgspec.Struct, frozen=True, gc=False):
    """One partition of an AlterPartition request: this ISR, as pairs of broker id and broker epoch."""

    topic_id: str
    partition: int
    leader_epoch: int
    version: int
    recovery: int
    isr: tuple[tuple[int, int], ...]


class AlterPartitionAsked(msgspec.Struct, frozen=True):
    """A leader asks for ISR changes."""

    broker_id: int
    broker_epoch: int
    proposals: Sequence[IsrProposal]


class CreateTopicAsked(msgspec.Struct, frozen=True):
    """Create a topic by counts, or by an explicit assignment."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, Replicas] | None = None
    configs: Mapping[str, str] = {}


class GrowTopicAsked(msgspec.Struct, frozen=True):
    """More partitions for a topic: `count` is the new total; new ones by assignment, or placed."""

    name: str
    count: int
    assignment: Mapping[int, Replicas] | None = None


class DeleteTopicAsked(msgspec.Struct, frozen=True):
    """Delete a topic; with `abandon_offline`, without waiting for brokers that are gone."""

    name: str
    abandon_offline: bool = False


class DeletionsSeen(msgspec.Struct, frozen=True):
    """All deletion markers: topic -> whether brokers that are gone are not to be waited for."""

    markers: Mapping[str, bool]
    zxid: int


class StopReplicaAnswered(msgspec.Struct, frozen=True):
    """A broker incarnation answered a StopReplica with delete: which replicas it was about, which it refused."""

    broker_id: int
    broker_epoch: int
    replicas: frozenset[tuple[str, int]]  # topic id and partition
    refused: frozenset[tuple[str, int]] = frozenset()


class LeaderAndIsrAnswered(msgspec.Struct, frozen=True):
    """A broker incarnation answered a LeaderAndIsr: replicas it serves, and those on a failed directory (code 56)."""

    broker_id: int
    broker_epoch: int
    served: frozenset[tuple[str, int]]
    failed: frozenset[tuple[str, int]] = frozenset()


class KnownId(msgspec.Struct, frozen=True):
    """A topic id that a broker knows for a name (empty: a topic without an id). `is_told`: its metadata says so;
    `is_held`: replicas on its disks do. Neither: only replicas that it set aside do."""

    topic_id: str
    is_told: bool
    is_held: bool
    #: per partition the highest that it has heard of
    leader_epochs: Mapping[int, int] = {}


class TopicsDescribed(msgspec.Struct, frozen=True):
    """A broker incarnation answered what it knows of the topics that it was asked about: nothing, or ids."""

    broker_id: int
    broker_epoch: int
    topics: Mapping[str, Sequence[KnownId]]


class ToldRefused(msgspec.Struct, frozen=True, gc=False):
    """A broker's refusal of one replica's state, or of a whole request about none."""

    request: str  # LeaderAndIsr, UpdateMetadata, StopReplica
    code: int
    #: the leader epoch that it was told
    told_epoch: int = -1
    #: the highest one that it has heard of, if it said so
    known_epoch: int = -1


class RefusalsAnswered(msgspec.Struct, frozen=True):
    """A broker incarnation refused states, by topic id and partition ("" and -1: the whole metadata), or took at last
    some that it had refused."""

    broker_id: int
    broker_epoch: int
    refused: Mapping[tuple[str, int], ToldRefused]
    obeyed: frozenset[tuple[str, int]] = frozenset()


class LogDirsSeen(msgspec.Struct, frozen=True):
    """Brokers that announced the loss of a log directory, and the nodes that did so, with the versions read."""

    broker_ids: frozenset[int]
    notifications: Mapping[str, int]


class DrainAsked(msgspec.Struct, frozen=True):
    """Move leaderships away from a broker: because it stops (by shutdown, named with its epoch), or by hand."""

    broker_id: int
    broker_epoch: int | None = None
    is_shutdown: bool = False
    #: read late from the znode of a drain that an earlier term granted
    is_found: bool = False


class UndrainAsked(msgspec.Struct, frozen=True):
    """End a drain by hand."""

    broker_id: int


class ForgetBrokerAsked(msgspec.Struct, frozen=True):
    """Forget a broker that is gone for good."""

    broker_id: int


class ElectAsked(msgspec.Struct, frozen=True):
    """Elect the preferred leader, or uncleanly, for these partitions; None: wherever it is needed."""

    is_unclean: bool
    partitions: Sequence[tuple[str, int]] | None = None


class ElectionNodeSeen(msgspec.Struct, frozen=True):
    """`/admin/preferred_replica_election` is there; `trouble` when it is malformed (then it is only removed)."""

    partitions: Sequence[tuple[str, int]]
    version: int
    trouble: str | None = None


class ReassignAsked(msgspec.Struct, frozen=True):
    """New replicas for partitions; None ends a reassignment that runs."""

    targets: Mapping[tuple[str, int], Replicas | None]


class ReassignNodeSeen(msgspec.Struct, frozen=True):
    """`/admin/reassign_partitions` as read; `version` None: it is not there."""

    targets: Mapping[tuple[str, int], Replicas]
    version: int | None
    trouble: str | None = None


class ReassignmentsDue(msgspec.Struct, frozen=True):
    """The last commit lets these reassignments begin, end, or leave the node that asked for them."""

    partitions: frozenset[tuple[str, int]]


class ConfigsSeen(msgspec.Struct, frozen=True):
    """Overrides as read: all that were asked about, an empty map where there are none. `expired` are change
    notifications older than 15 minutes, with the versions read."""

    topics: Mapping[str, Mapping[str, str]]
    brokers: Mapping[str, Mapping[str, str]]  # by id, or "<default>"
    expired: Mapping[str, int] = {}


class ConfigAsked(msgspec.Struct, frozen=True):
    """Change overrides of a topic or a broker (or "<default>"); None removes one."""

    kind: str  # topics or brokers
    entity: str
    values: Mapping[str, str | None]


class ProducerIdsAsked(msgspec.Struct, frozen=True):
    """A broker asks for a block of producer ids, to give to idempotent producers."""

    broker_id: int
    broker_epoch: int


class ProducerIdsSeen(msgspec.Struct, frozen=True):
    """`/latest_producer_id_block` as read: the first id that was never granted. `version` None: the node is missing."""

    next_id: int
    version: int | None
    trouble: str | None = None


class TermTold(msgspec.Struct, frozen=True):
    """Facts about terms that should be kept: our own so far, and how the one before us ended."""

    from_ms: int
    phases: Mapping[str, float]
    #: when and why our own ended, if it is resigning
    to_ms: int | None = None
    why: str | None = None
    why_before: str = "unknown"


class TimePassed(msgspec.Struct, frozen=True):
    """The clock moved, so work may be due. `is_balance_due`: the interval of automatic preferred elections is over."""

    is_balance_due: bool = False


Fact = (
    TermStarted
    | BrokersSeen
    | TopicsSeen
    | StatesSeen
    | DeletionsSeen
    | StopReplicaAnswered
    | LeaderAndIsrAnswered
    | TopicsDescribed
    | RefusalsAnswered
    | LogDirsSeen
    | ElectionNodeSeen
    | ReassignNodeSeen
    | ReassignmentsDue
    | ConfigsSeen
    | ProducerIdsSeen
    | TermTold
    | TimePassed
)
RequestEvent = (
    AlterPartitionAsked
    | CreateTopicAsked
    | GrowTopicAsked
    | DeleteTopicAsked
    | DrainAsked
    | UndrainAsked
    | ForgetBrokerAsked
    | ElectAsked
    | ReassignAsked
    | ConfigAsked
    | ProducerIdsAsked
)
Event = Fact | RequestEvent
