"""The changes: everything a decision can ask for. The only effect the core has.

A change is one thing that should become true. Projections say what it costs: znode writes (`project/znodes.py`),
requests to brokers (`project/requests.py`), lines in the state-change log (`project/lines.py`). One that costs no write
(a broker is live) takes the same way. Whatever `Cluster.apply` is given has been committed.

Changes are yielded in *slices*: (step number, some changes). A step is all slices of one number; the next step goes
out when the last one stands. Everything about one *subject* is decided before any of it is yielded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from controller.core.causes import Cause
from controller.core.changes.duties import DutyChange, broker_subject, topic_subject
from controller.core.codes import Code
from controller.core.events import TopicFact
from controller.core.model import Assignment, Broker, Leadership, Replicas
from controller.core.states import PartitionStatus


class BrokerLive(msgspec.Struct, frozen=True):
    """A broker incarnation is live: it is told everything, all others are told of it."""

    broker: Broker
    reason: str
    cause: Cause

    @property
    def subject(self) -> str:
        return broker_subject(self.broker.broker_id)


class BrokerChanged(msgspec.Struct, frozen=True):
    """A live broker's endpoints, rack or features are new; its incarnation is not."""

    broker: Broker

    @property
    def subject(self) -> str:
        return broker_subject(self.broker.broker_id)


class BrokerGone(msgspec.Struct, frozen=True):
    """A broker incarnation is over."""

    broker_id: int
    epoch: int
    reason: str
    cause: Cause

    @property
    def subject(self) -> str:
        return broker_subject(self.broker_id)


class BrokerMissing(msgspec.Struct, frozen=True):
    """A broker that hosts replicas is not there as a term starts: what it hosts goes offline."""

    broker_id: int
    cause: Cause

    @property
    def subject(self) -> str:
        return broker_subject(self.broker_id)


class TopicFound(msgspec.Struct, frozen=True):
    """Believe what a topic znode says: a new topic, new partitions, or just a new version of it."""

    fact: TopicFact

    @property
    def subject(self) -> str:
        return topic_subject(self.fact.name)


class Unreadable(msgspec.Struct, frozen=True):
    """A topic's znode, or one of its state znodes, makes no sense: say so once, leave it alone, serve the others."""

    name: str
    partition: int | None
    trouble: str
    zxid: int

    @property
    def subject(self) -> str:
        return topic_subject(self.name)


class TopicCreated(msgspec.Struct, frozen=True):
    """Write a new topic and its configuration."""

    name: str
    topic_id: str
    assignment: Mapping[int, Assignment]
    configs: Mapping[str, str]

    @property
    def subject(self) -> str:
        return topic_subject(self.name)


class TopicWritten(msgspec.Struct, frozen=True):
    """Rewrite a topic znode, whole: an id was missing, partitions were added, replicas are to be others."""

    name: str
    topic_id: str
    assignment: Mapping[int, Assignment]
    reason: str
    cause: Cause
    #: partitions whose assignment this changes; None: all have to be told anew
    touched: tuple[int, ...] | None = None
    #: (partition, broker id) of replicas that are assigned no more: they are told to delete
    dropped: tuple[tuple[int, int], ...] = ()
    is_reassignment: bool = False
    #: leaderships written in the same transaction, so that no ISR ever leaves its assignment
    states: tuple[StateDecided, ...] = ()

    @property
    def subject(self) -> str:
        return topic_subject(self.name)


class TopicGone(msgspec.Struct, frozen=True):
    """A topic's znode is gone: forget it, and tell brokers to."""

    name: str
    topic_id: str | None
    partitions: tuple[int, ...]

    @property
    def subject(self) -> str:
        return topic_subject(self.name)


class StateDecided(msgspec.Struct, frozen=True, gc=False):
    """Write this leadership. `source` and `target` are the partition's move.

    `by_leader` marks an ISR change that the leader asked for: it keeps the leader epoch, and only metadata is told.
    """

    topic: str
    partition: int
    state: Leadership
    source: PartitionStatus
    target: PartitionStatus
    reason: str
    cause: Cause
    by_leader: bool = False
    #: the leader was not in sync
    is_unclean: bool = False
    #: live brokers that shut down, whose replica goes offline by this and is stopped
    stopped: Replicas = ()
    #: of these the one that led
    deposed_id: int | None = None

    @property
    def subject(self) -> str:
        return topic_subject(self.topic)


class StateFound(msgspec.Struct, frozen=True, gc=False):
    """Believe a state znode that somebody else wrote. Its cause is `FOUND` if an earlier term did and this one
    reads it for the first time."""

    topic: str
    partition: int
    state: Leadership
    version: int
    zxid: int
    reason: str
    cause: Cause
    #: where that puts the partition, if the brokers that decide it are not believed in yet
    target: PartitionStatus | None = None

    @property
    def subject(self) -> str:
        return topic_subject(self.topic)


class StateLost(msgspec.Struct, frozen=True, gc=False):
    """A state znode that was believed is not there: the partition is new again."""

    topic: str
    partition: int
    zxid: int

    @property
    def subject(self) -> str:
        return topic_subject(self.topic)


class NotificationRead(msgspec.Struct, frozen=True):
    """A notification has had its effect: remove it, unless somebody has rewritten the version that was read."""

    path: str
    version: int = 0

    @property
    def subject(self) -> str:
        return f"node {self.path}"


class SubjectParked(msgspec.Struct, frozen=True):
    """Deciding about this subject met a bug: leave it out for the rest of the term, and say so."""

    subject: str
    trouble: str


class WriteRefused(msgspec.Struct, frozen=True):
    """ZooKeeper refuses a write, and no reading explains it: it is left out alone, and tried again for as long as the
    term lasts. Told when it begins."""

    target: str
    subject: str
    change: Change
    verb: str  # create, read, write or delete
    path: str
    code: int
    since_ms: int
    #: how long it waits until it is tried again
    retry_ms: int
    attempts: int = 1
    #: of a deletion that is refused: what is below the znode and was not to be deleted
    below: tuple[str, ...] = ()
    #: somebody asked for it and was told: nobody but him tries it again
    is_asked: bool = False


class RefusalEnded(msgspec.Struct, frozen=True):
    """What ZooKeeper refused to write was written, or is wanted no more."""

    target: str
    subject: str
    reason: str


class Refused(msgspec.Struct, frozen=True):
    """Part of a request is refused with one of Kafka's codes; nothing is changed by it."""

    subject: str
    code: Code
    detail: str
    topic_id: str = ""
    partition: int = -1


Change = (
    DutyChange
    | BrokerLive
    | BrokerChanged
    | BrokerGone
    | BrokerMissing
    | TopicFound
    | Unreadable
    | TopicCreated
    | TopicWritten
    | TopicGone
    | StateDecided
    | StateFound
    | StateLost
    | NotificationRead
    | SubjectParked
    | WriteRefused
    | RefusalEnded
    | Refused
)


class Slice(msgspec.Struct, frozen=True):
    """What one yield of `decide` carries."""

    step: int
    changes: Sequence[Change]


class Committed(msgspec.Struct, frozen=True, gc=False):
    """A change that stands: since `zxid`, with its znode at `version` (None: it wrote none)."""

    change: Change
    version: int | None = None
    zxid: int = 0
