"""What this broker was told about its own replicas, and which replicas its disk has. Pure: no clock, no I/O.

`told` belongs to one incarnation and starts empty; `held` outlives incarnations, and restarts by way of
`replica_log.py`. Each method returns what changed; whoever calls it writes the disk and tells the fetchers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from controller.core.codes import Code
from controller.core.model import LEADER_REMOVED
from controller.wire import AlteredRow, PartitionRow, Refusal, StopRow, TopicRows, TopicStops

#: topic id and partition
Key = tuple[str, int]

#: a log's history of leader epochs is cut to this
LEADER_EPOCHS_KEPT: Final = 16
#: StopReplica for a topic under deletion, and without a leader epoch
ANY_LEADER_EPOCH: Final = (-2, -1)


class Replica(msgspec.Struct, frozen=True, gc=False):
    """One replica on disk. A stub keeps no records: the log id stands for the log, drawn when it was created."""

    topic: str
    topic_id: str
    partition: int
    log_id: str
    leader_epochs: tuple[int, ...] = ()

    @property
    def key(self) -> Key:
        return self.topic_id, self.partition


class Change(msgspec.Struct, frozen=True, gc=False):
    """One partition's row before and after; None: not told of it."""

    key: Key
    before: PartitionRow | None
    after: PartitionRow | None

    @property
    def is_new_leadership(self) -> bool:
        return self.after is not None and (self.before is None or self.before.leader_epoch != self.after.leader_epoch)


class Taken(msgspec.Struct, frozen=True):
    """What came of taking in a request, or a piece of one."""

    refused: list[Refusal] = []
    changes: list[Change] = []
    #: to be written to disk before the request is answered
    written: list[Replica] = []
    deleted: list[Key] = []


class Replicas:
    """The replicas of one broker."""

    def __init__(self, broker_id: int, held: Mapping[Key, Replica], draw_log_id: Callable[[], str]) -> None:
        self.broker_id = broker_id
        self.told: dict[Key, PartitionRow] = {}
        self.held = dict(held)
        #: held, but not in the last full list
        self.stray_keys: set[Key] = set()
        self._draw_log_id = draw_log_id
        self._topic_ids = {(replica.topic, replica.partition): replica.topic_id for replica in self.held.values()}

    def begin(self) -> None:
        """A new incarnation has been told nothing yet."""
        self.told.clear()

    def led(self, key: Key) -> PartitionRow | None:
        """The partition's row, if this broker leads it."""
        row = self.told.get(key)
        return row if row is not None and row.leader == self.broker_id else None

    def take_list(self, bodies: Iterable[Sequence[TopicRows]]) -> Taken:
        """A full list is about to be taken in: what is held and not in it is a stray, and no longer led or followed."""
        keys = {(topic.topic_id, row.partition) for topics in bodies for topic in topics for row in topic.partitions}
        self.stray_keys = self.held.keys() - keys
        for key in self.stray_keys:
            replica = self.held[key]
            if self._topic_ids.get((replica.topic, replica.partition)) == replica.topic_id:
                del self._topic_ids[replica.topic, replica.partition]
        taken = Taken()
        for key in [key for key in self.told if key not in keys]:
            taken.changes.append(Change(key, self.told.pop(key), None))
        return taken

    def take_rows(self, topics: Iterable[TopicRows]) -> Taken:
        """LeaderAndIsr, or a piece of one."""
        taken = Taken()
        for topic in topics:
            for row in topic.partitions:
                code = self._take_row(topic, row, taken)
                if code is not Code.NONE:
                    taken.refused.append(Refusal(topic.topic_id, row.partition, code))
        return taken

    def take_stops(self, topics: Iterable[TopicStops]) -> Taken:
        """StopReplica."""
        taken = Taken()
        for topic in topics:
            for stop in topic.partitions:
                code = self._take_stop((topic.topic_id, stop.partition), stop, taken)
                if code is not Code.NONE:
                    taken.refused.append(Refusal(topic.topic_id, stop.partition, code))
        return taken

    def take_altered(self, topic_id: str, altered: AlteredRow) -> Change | None:
        """What the controller says stands: adopted when it is about our leadership and newer than what we know."""
        key = topic_id, altered.partition
        row = self.told.get(key)
        if row is None or altered.leader_epoch != row.leader_epoch or altered.version <= row.version:
            return None
        now = msgspec.structs.replace(row, isr=altered.isr, version=altered.version, recovery=altered.recovery)
        self.told[key] = now
        return Change(key, row, now)

    def _take_row(self, topic: TopicRows, row: PartitionRow, taken: Taken) -> Code:
        key = topic.topic_id, row.partition
        known = self.told.get(key)
        if row.leader == LEADER_REMOVED:
            if known is not None:
                taken.changes.append(Change(key, self.told.pop(key), None))
            return Code.NONE
        if self._topic_ids.get((topic.topic, row.partition), topic.topic_id) != topic.topic_id:
            return Code.INCONSISTENT_TOPIC_ID
        if known is not None and row.leader_epoch < known.leader_epoch:
            return Code.STALE_CONTROLLER_EPOCH
        if self.broker_id not in row.replicas:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        if known is not None and row.leader_epoch == known.leader_epoch and row.version <= known.version:
            return Code.NONE  # told again, or crossed by an answer that knew more
        self.told[key] = row
        self.stray_keys.discard(key)
        change = Change(key, known, row)
        taken.changes.append(change)
        if change.is_new_leadership:
            self._adopt(topic, row, taken)
        return Code.NONE

    def _adopt(self, topic: TopicRows, row: PartitionRow, taken: Taken) -> None:
        """The replica on disk, made if it is missing, takes note of its leader epoch."""
        key = topic.topic_id, row.partition
        replica = self.held.get(key)
        if replica is None:
            replica = Replica(topic.topic, topic.topic_id, row.partition, self._draw_log_id())
        if replica.leader_epochs[-1:] != (row.leader_epoch,):
            epochs = (*replica.leader_epochs, row.leader_epoch)[-LEADER_EPOCHS_KEPT:]
            self.held[key] = replica = msgspec.structs.replace(replica, leader_epochs=epochs)
            taken.written.append(replica)
        self._topic_ids[topic.topic, row.partition] = topic.topic_id

    def _take_stop(self, key: Key, stop: StopRow, taken: Taken) -> Code:
        known = self.told.get(key)
        if known is not None:
            if stop.leader_epoch not in ANY_LEADER_EPOCH and stop.leader_epoch < known.leader_epoch:
                return Code.FENCED_LEADER_EPOCH
            taken.changes.append(Change(key, self.told.pop(key), None))
        if stop.delete and (replica := self.held.pop(key, None)) is not None:
            self.stray_keys.discard(key)
            if self._topic_ids.get((replica.topic, replica.partition)) == replica.topic_id:
                del self._topic_ids[replica.topic, replica.partition]
            taken.deleted.append(key)
        return Code.NONE


def pieces(bodies: Iterable[Sequence[TopicRows]], partitions_max: int) -> Iterator[list[TopicRows]]:
    """The rows of some bodies in pieces of at most so many partitions, in order."""
    piece: list[TopicRows] = []
    room = partitions_max
    for topic in (topic for topics in bodies for topic in topics):
        start = 0
        while start < len(topic.partitions):
            rows = topic.partitions[start : start + room]
            piece.append(TopicRows(topic.topic, topic.topic_id, rows))
            start += len(rows)
            room -= len(rows)
            if not room:
                yield piece
                piece, room = [], partitions_max
    if piece:
        yield piece
