"""The API's needs from its process: the metadata that the broker was told, and a way to ask the active controller.

The broker stub implements `ClusterView` from its metadata cache, `controller.term.controller` implements
`ControllerHandle`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from controller.base.bell import Bell
from controller.core.belief.cluster import Cluster
from controller.core.events import Event
from controller.core.model import Broker
from controller.loop.inbox import BusyError, NotControllerError, Reply
from controller.statelog.journal import RecentLines
from controller.statelog.metrics import Meters
from controller.tell.outbox import OutboxStatus
from controller.wire.bodies import BrokerEntry, PartitionRow

__all__ = [
    "BusyError",
    "ClusterView",
    "ControllerHandle",
    "NotControllerError",
    "Reply",
    "Term",
    "TermView",
    "TopicView",
    "term_of",
]


class TopicView(msgspec.Struct, frozen=True):
    """One topic as told."""

    topic: str
    topic_id: str
    partitions: Sequence[PartitionRow]


class ClusterView(Protocol):
    """The cluster as this broker was told of it. Reading it never waits."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def own_broker_id(self) -> int: ...
    @property
    def controller_id(self) -> int:
        """The sender of the newest metadata; -1 before the first."""

    @property
    def controller_epoch(self) -> int: ...
    @property
    def metadata_version(self) -> int:
        """Rises with every change to anything below, brokers included: counts of the same version stay valid."""

    @property
    def changes(self) -> Bell:
        """Rung when it was told of something new."""

    @property
    def is_told(self) -> bool:
        """Whether this process knows enough to answer questions."""

    @property
    def is_led_by_kafka(self) -> bool:
        """Whether one of Kafka's own brokers is the controller, and none of ours. Then the figures come from ZooKeeper,
        and this process takes no requests for the controller."""

    @property
    def brokers(self) -> Sequence[BrokerEntry]:
        """By id; those that are gone stay listed."""

    @property
    def topic_names(self) -> Sequence[str]:
        """Sorted."""

    @property
    def topics_with_new(self) -> Sequence[str]:
        """Those of them, sorted, of which partitions were never led, as far as this is known here."""

    def topic(self, name: str) -> TopicView | None: ...
    def topics(self) -> Iterator[TopicView]:
        """All topics in order of their names, decoded one at a time."""


class TermView(Protocol):
    """One term of any controller, as recorded; of one that is not over `to_ms` and `why` are None."""

    @property
    def controller_epoch(self) -> int: ...
    @property
    def broker_id(self) -> int: ...
    @property
    def from_ms(self) -> int: ...
    @property
    def to_ms(self) -> int | None: ...
    @property
    def why(self) -> str | None: ...
    @property
    def phases(self) -> Mapping[str, float]:
        """When each phase of the failover was over, in milliseconds."""


class Term(Protocol):
    """The term that this process holds now."""

    @property
    def since_ms(self) -> int:
        """When it began, by the wall clock: for people."""

    @property
    def age_ms(self) -> int:
        """For how long it has lasted, by the monotonic clock."""

    @property
    def foreign_brokers(self) -> Mapping[int, Broker]:
        """Registered brokers that this controller cannot speak to: listed, and assigned nothing."""

    @property
    def unread(self) -> Mapping[str, str]:
        """Znodes left out because they may not be read or are malformed, by path, and why; topics and states are in
        belief."""

    @property
    def recent_lines(self) -> RecentLines:
        """The log's lines that it remembers, from the claim on."""

    @property
    def inbox_depth(self) -> int:
        """The number of events that wait for the loop."""

    @property
    def believed(self) -> Bell:
        """Rung whenever belief has changed, and when the term is over."""

    @property
    def is_over(self) -> bool:
        """Whether it may act no more."""

    async def told(self) -> None:
        """Returns when every broker has acknowledged all earlier decisions, or is gone."""

    def history(self) -> Sequence[TermView]:
        """Returns the terms that are known, the oldest first; empty while it loads."""

    def outbox_status(self) -> Mapping[int, OutboxStatus]:
        """Returns the backlogs of brokers, by broker id."""

    async def ask(self, request: Event) -> Reply:
        """Put a request before the loop and wait for its outcome. Raises NotControllerError when the term ends before
        it was decided, BusyError when the queue is full or the session suspended."""


class ControllerHandle(Protocol):
    """The process's way to its controller."""

    @property
    def term(self) -> Term | None:
        """None on a standby."""

    @property
    def is_active(self) -> bool:
        """Whether a term is held, and belief is loaded."""

    @property
    def cluster(self) -> Cluster | None:
        """The belief of the active controller: to be read between two awaits, never changed. None on a standby, and
        while it loads."""

    @property
    def controller_epoch(self) -> int | None:
        """Of the term held now; None on a standby."""

    @property
    def phase(self) -> str:
        """standby, loading or active."""

    @property
    def is_registered(self) -> bool:
        """Whether this process is registered and its session connected."""

    @property
    def seat(self) -> tuple[int, int] | None:
        """Broker id and ephemeral owner of `/controller` as last read; None when it is vacant."""

    @property
    def seat_trouble(self) -> str | None:
        """The reason why no controller can be elected before an operator mends it, and how; None when one can be."""

    @property
    def seat_changes(self) -> Bell:
        """Rung whenever the seat or the term may have changed."""

    @property
    def meters(self) -> Meters:
        """The counters of this process."""

    @property
    def lines_lost(self) -> int:
        """Lines of the state-change log that this process could not write."""

    @property
    def lines_lost_lately(self) -> int:
        """So many of them in the last minutes; 0 when none was lost for a while."""


def term_of(handle: ControllerHandle) -> Term:
    """Returns the term held now. Raises NotControllerError on a standby."""
    term = handle.term
    if term is None:
        raise NotControllerError("this process is not the active controller")
    return term
