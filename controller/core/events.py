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


class TermStarted(msgspec.Struct, frozen=True):
    """The cluster was loaded: topics and states are believed already, brokers were read last and come here."""

    brokers: Mapping[int, Broker]
    zxid: int
    #: state znodes that the previous controller may have written without recording it
    found: Sequence[StateFact] = ()


class BrokersSeen(msgspec.Struct, frozen=True):
    """All registrations, in one reading. Who is not in it is gone."""

    brokers: Mapping[int, Broker]
    zxid: int


class TopicsSeen(msgspec.Struct, frozen=True):
    """`names` is the whole list of topics as of `zxid` (None: it was not read); `facts` those whose znode was read."""

    facts: Sequence[TopicFact]
    zxid: int
    names: frozenset[str] | None = None


class StatesSeen(msgspec.Struct, frozen=True):
    """State znodes that somebody else may have written. `notifications` are the znodes that announced them: they
    go when their effect stands."""

    facts: Sequence[StateFact]
    notifications: Sequence[str] = ()


class IsrWish(msgspec.Struct, frozen=True, gc=False):
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
    wishes: Sequence[IsrWish]


class CreateTopicAsked(msgspec.Struct, frozen=True):
    """Create a topic by counts, or by an explicit assignment."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, Replicas] | None = None
    configs: Mapping[str, str] = {}
    topic_id: str | None = None


Event = TermStarted | BrokersSeen | TopicsSeen | StatesSeen | AlterPartitionAsked | CreateTopicAsked
