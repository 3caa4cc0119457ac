"""This broker's metadata of the whole cluster (UpdateMetadata): brokers, and every topic's partitions.

Rows stay bytes until a reader asks or a second body touches their topic: at 100,000 partitions decoding them all would
be the main cost. It trusts the fencing that happened before, decides nothing, and does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec
import structlog

from brokerstub.multipart_lists import MultipartList
from controller.api.ports import TopicView
from controller.base.bell import Bell
from controller.core.model import LEADER_REMOVED
from controller.wire.bodies import (
    HTTP_LISTENER,
    BrokerEntry,
    PartitionRow,
    UndecodedStatesRequest,
    UndecodedTopicRows,
    address_of,
)
from controller.wire.signing import Incarnation

log = structlog.get_logger()

_rows_decoder = msgspec.json.Decoder(list[PartitionRow])
#: in a row of integers only a leader is ever -2
_REMOVAL = b",%d," % LEADER_REMOVED


class _Topic:
    """One topic: the bytes of its only body, or rows merged from several."""

    def __init__(self, topic_id: str, body: bytes) -> None:
        self.topic_id = topic_id
        self._body: bytes | None = body
        self._rows: dict[int, PartitionRow] = {}
        if _REMOVAL in body:
            self.merge(b"[]")

    def merge(self, body: bytes) -> None:
        for piece in (self._body or b"[]", body):
            for row in _rows_decoder.decode(piece):
                known = self._rows.get(row.partition)
                if row.leader == LEADER_REMOVED:
                    self._rows.pop(row.partition, None)
                elif known is None or (row.leader_epoch, row.version) >= (known.leader_epoch, known.version):
                    self._rows[row.partition] = row
        self._body = None

    def keep_newer(self, older: _Topic) -> None:
        """A list came late: rows that are older than those known already are not taken back."""
        self.merge(b"[]")
        for row in older.rows():
            known = self._rows.get(row.partition)
            if known is not None and (row.leader_epoch, row.version) > (known.leader_epoch, known.version):
                self._rows[row.partition] = row

    @property
    def is_empty(self) -> bool:
        return self._body is None and not self._rows

    def rows(self) -> list[PartitionRow]:
        if self._body is not None:
            try:
                return sorted(_rows_decoder.decode(self._body), key=lambda row: row.partition)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                log.warning("topic.unreadable", topic_id=self.topic_id, reason=str(error))
                self._body = None  # said once; the next list says better
        rows = self._rows.values()
        return sorted(rows, key=lambda row: row.partition)


class MetadataCache:
    """The cluster as told; a `controller.api.ports.ClusterView`."""

    def __init__(self, cluster_id: str, own_broker_id: int, listener: str = HTTP_LISTENER) -> None:
        self._listener = listener
        self.cluster_id = cluster_id
        self.own_broker_id = own_broker_id
        self.controller_id = -1
        self.controller_epoch = -1
        self.metadata_version = 0
        self.changes = Bell()
        self._brokers: dict[int, BrokerEntry] = {}
        self._topics: dict[str, _Topic] = {}
        self._names: tuple[str, ...] | None = ()
        self._parts: MultipartList[UndecodedStatesRequest] = MultipartList()

    @property
    def is_led_by_kafka(self) -> bool:
        return False  # a stub receives metadata from our controllers only

    @property
    def is_told(self) -> bool:
        return self.own_broker_id in self._brokers and self._brokers[self.own_broker_id].state != "gone"

    @property
    def brokers(self) -> Sequence[BrokerEntry]:
        return tuple(self._brokers.values())

    @property
    def topic_names(self) -> Sequence[str]:
        if self._names is None:
            self._names = tuple(sorted(self._topics))
        return self._names

    @property
    def topics_with_new(self) -> Sequence[str]:
        return ()  # no broker is told of a partition that was never led

    def topic(self, name: str) -> TopicView | None:
        topic = self._topics.get(name)
        return None if topic is None else TopicView(name, topic.topic_id, topic.rows())

    def topics(self) -> Iterator[TopicView]:
        for name in self.topic_names:
            view = self.topic(name)
            if view is not None:  # it may have been removed while the reader paused between two topics
                yield view

    def own_replicas(self, names: Iterable[str]) -> frozenset[tuple[str, int]] | None:
        """Returns topic id and partition of those that this broker is to have of these topics; None before the first
        metadata."""
        if not self.is_told:
            return None
        views = [view for view in map(self.topic, names) if view is not None]
        return frozenset(
            (view.topic_id, row.partition)
            for view in views
            for row in view.partitions
            if self.own_broker_id in row.replicas
        )

    def broker(self, broker_id: int) -> BrokerEntry | None:
        return self._brokers.get(broker_id)

    def incarnation(self, broker_id: int) -> Incarnation:
        """The broker as it was told last."""
        entry = self._brokers.get(broker_id)
        return Incarnation(broker_id, None if entry is None else entry.epoch)

    def address_of(self, broker_id: int) -> str | None:
        """Returns where a broker that is not gone listens for other brokers, as `http://host:port`."""
        entry = self._brokers.get(broker_id)
        if entry is None or entry.state == "gone":
            return None
        return address_of(entry.endpoints, self._listener)

    def take(self, request: UndecodedStatesRequest, controller_id: int, controller_epoch: int) -> None:
        """Believe an UpdateMetadata. Raises OutOfOrderError for a part without its predecessors."""
        bodies, is_whole = self._parts.take(_detached(request) if request.full else request, controller_epoch)
        if not bodies:
            return
        before = self._topics if controller_epoch == self.controller_epoch else {}
        if is_whole:
            self._topics = {}
        for body in bodies:
            if body.brokers:
                self._brokers = {entry.id: entry for entry in sorted(body.brokers, key=lambda entry: entry.id)}
            for topic in body.topics:
                self._merge(topic)
        if is_whole:
            for name, older in before.items():
                now = self._topics.get(name)
                if now is not None and now.topic_id == older.topic_id:
                    now.keep_newer(older)
        self._names = None
        self.controller_id, self.controller_epoch = controller_id, controller_epoch
        self.metadata_version += 1
        self.changes.ring()

    def _merge(self, told: UndecodedTopicRows) -> None:
        body = bytes(told.partitions)
        known = self._topics.get(told.topic)
        if known is not None and known.topic_id == told.topic_id:
            known.merge(body)
        else:
            # Removals of another topic id say nothing about the topic that has the name now.
            topic = _Topic(told.topic_id, body)
            if topic.is_empty:
                return
            known = self._topics[told.topic] = topic
        if known.is_empty:
            del self._topics[told.topic]


def rows_in(request: UndecodedStatesRequest) -> Iterator[tuple[str, PartitionRow]]:
    """Yields the rows of a request, by topic id; none of a topic whose rows are malformed, which `_Topic` reports."""
    for topic in request.topics:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            yield from ((topic.topic_id, row) for row in _rows_decoder.decode(topic.partitions))


def _detached(request: UndecodedStatesRequest) -> UndecodedStatesRequest:
    """A Raw keeps its whole message alive; a copy only itself."""
    topics = [UndecodedTopicRows(one.topic, one.topic_id, one.partitions.copy()) for one in request.topics]
    return msgspec.structs.replace(request, topics=topics)
