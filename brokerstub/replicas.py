"""This broker's knowledge of its own replicas, from the controller and from its disk. Pure: no clock, no I/O.

`told` belongs to one incarnation and starts empty; `held` outlives incarnations, and restarts by way of `log_dirs.py`.
Each method returns the changes; the caller writes the disk and tells the fetchers. `Transitions` are the effects of one
request of the controller on the replicas, for the broker's state-change log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Final

import msgspec

from controller.core.bitset import bits_of
from controller.core.codes import Code
from controller.core.model import LEADER_EPOCH_MAX, LEADER_REMOVED, TopicIdPartition
from controller.core.project.lines import pieces_of
from controller.wire.bodies import AlteredRow, PartitionRow, Refusal, StopRow, TopicRows, TopicStops

#: a log's history of leader epochs is cut to this
LEADER_EPOCHS_KEPT: Final = 16
#: StopReplica for a topic under deletion, and without a leader epoch
ANY_LEADER_EPOCH: Final = (-2, -1)
TOPIC_DELETED: Final = -2  # and its id is never given again
DELETED_KEPT: Final = 100_000


class SetAside(msgspec.Struct, frozen=True, gc=False):
    """Why and when (wall clock) a replica was set aside."""

    reason: str
    at_ms: int


class Replica(msgspec.Struct, frozen=True, gc=False):
    """One replica on disk. The log id stands for its log, drawn when it was created; its records are for `logs.py`."""

    topic: str
    topic_id: str
    partition: int
    log_id: str
    leader_epochs: tuple[int, ...] = ()
    #: the log directory it lives in
    directory: int = 0
    #: set aside: kept, and neither led nor followed
    stray: SetAside | None = None

    @property
    def key(self) -> TopicIdPartition:
        return self.topic_id, self.partition

    @property
    def name(self) -> tuple[str, int]:
        return self.topic, self.partition


class Change(msgspec.Struct, frozen=True, gc=False):
    """One partition's row before and after; None: not told of it."""

    key: TopicIdPartition
    before: PartitionRow | None
    after: PartitionRow | None

    @property
    def is_new_leadership(self) -> bool:
        return self.after is not None and (self.before is None or self.before.leader_epoch != self.after.leader_epoch)


class RequestEffects(msgspec.Struct, frozen=True):
    """The effects of taking in a request, or a piece of one."""

    refused: list[Refusal] = []
    changes: list[Change] = []
    #: to be written to disk before the request is answered
    written: list[Replica] = []
    deleted: list[Replica] = []


class Replicas:
    """The replicas of one broker."""

    def __init__(
        self,
        broker_id: int,
        found: Iterable[Replica],
        draw_log_id: Callable[[], str],
        *,
        directories: Iterable[int] = (0,),
        broken: Iterable[int] = (),
    ) -> None:
        self.broker_id = broker_id
        #: the epoch of the last obeyed controller: a grant to a leader carries no later one
        self.controller_epoch = -1
        self.told: dict[TopicIdPartition, PartitionRow] = {}
        self.held: dict[TopicIdPartition, Replica] = {}
        self.strays: dict[TopicIdPartition, Replica] = {}
        self._draw_log_id = draw_log_id
        self._topic_ids: dict[tuple[str, int], str] = {}
        #: up to which leader epoch a replica was deleted: a request that comes late, or twice, must not bring it back
        self._deleted: dict[TopicIdPartition, int] = {}
        #: replicas in each log directory
        self._load = dict.fromkeys(directories, 0)
        self._broken = set(broken)
        for replica in sorted(found, key=lambda one: one.leader_epochs, reverse=True):
            if replica.key not in self.held and replica.key not in self.strays:  # made anew while this one was offline
                (self._hold if replica.stray is None else self._set_aside)(replica)

    def begin(self) -> None:
        """A new incarnation has been told nothing yet."""
        self.told.clear()
        self._deleted.clear()

    def led(self, key: TopicIdPartition) -> PartitionRow | None:
        """Returns the partition's row, if this broker leads it."""
        row = self.told.get(key)
        return row if row is not None and row.leader == self.broker_id else None

    def within(self, directory: int) -> list[Replica]:
        """Returns all that a log directory has."""
        return [one for one in chain(self.held.values(), self.strays.values()) if one.directory == directory]

    def fail(self, directory: int) -> RequestEffects:
        """A log directory is lost: its replicas are offline, and neither led nor followed."""
        self._broken.add(directory)
        lost = [key for key in self.told if (replica := self.held.get(key)) and replica.directory == directory]
        return RequestEffects(changes=[Change(key, self.told.pop(key), None) for key in lost])

    def mend(
        self, directory: int, found: Iterable[Replica], now_ms: int, own: Collection[TopicIdPartition] | None = None
    ) -> RequestEffects:
        """A log directory is back with these replicas. The controller will tell which of them count. `own`: those that
        it has assigned to this broker already. The others were taken away while no disk could delete them, and it will
        not say so again."""
        self._broken.discard(directory)
        for replica in self.within(directory):
            self._drop(replica.key)
        taken = RequestEffects()
        for replica in found:
            is_elsewhere = replica.key in self.held or replica.key in self.strays
            is_own = own is None or replica.key in own
            if not is_elsewhere and is_own and replica.stray is None and replica.name not in self._topic_ids:
                self._hold(replica)
            elif is_elsewhere:
                taken.deleted.append(replica)  # made anew in another directory meanwhile
            else:
                aside = replica.stray or SetAside("taken away or made anew while its log directory was offline", now_ms)
                taken.written.append(self._set_aside(msgspec.structs.replace(replica, stray=aside)))
        return taken

    def take_list(self, bodies: Iterable[Sequence[TopicRows]], reason: str = "", now_ms: int = 0) -> RequestEffects:
        """Prepares for a full list: a held replica that the list does not contain is a stray, and no longer led or
        followed."""
        keys = {(topic.topic_id, row.partition) for topics in bodies for topic in topics for row in topic.partitions}
        taken = RequestEffects()
        self._deleted.clear()
        for replica in [replica for key, replica in self.held.items() if key not in keys]:
            if replica.directory in self._broken:  # cannot be moved now, and must not stand in the way either
                self._free_name(replica)
                continue
            self._drop(replica.key)
            stray = msgspec.structs.replace(replica, stray=SetAside(reason, now_ms))
            taken.written.append(self._set_aside(stray))
        for key in [key for key in self.told if key not in keys]:
            taken.changes.append(Change(key, self.told.pop(key), None))
        return taken

    def take_rows(self, topics: Iterable[TopicRows]) -> RequestEffects:
        """LeaderAndIsr, or a piece of one."""
        taken = RequestEffects()
        for topic in topics:
            for row in topic.partitions:
                code = self._take_row(topic, row, taken)
                if code is not Code.NONE:
                    is_stale = code is Code.STALE_CONTROLLER_EPOCH  # as Kafka's brokers say of a leader epoch
                    heard = self._heard_of((topic.topic_id, row.partition)) if is_stale else -1
                    taken.refused.append(Refusal(topic.topic_id, row.partition, code, heard))
        return taken

    def take_stops(self, topics: Iterable[TopicStops]) -> RequestEffects:
        """StopReplica."""
        taken = RequestEffects()
        for topic in topics:
            for stop in topic.partitions:
                code = self._take_stop((topic.topic_id, stop.partition), stop, taken)
                if code is not Code.NONE:
                    taken.refused.append(Refusal(topic.topic_id, stop.partition, code))
        return taken

    def take_metadata(self, told: Iterable[tuple[str, PartitionRow]]) -> list[Change]:
        """Adopts grants to partitions that this broker leads, if the answer was lost or overtook the leadership."""
        ours = ((topic_id, row) for topic_id, row in told if row.leader == self.broker_id)
        return [change for one in ours if (change := self.take_altered(*one)) is not None]

    def take_altered(self, topic_id: str, altered: AlteredRow | PartitionRow) -> Change | None:
        """Adopts the controller's state when it is about our leadership and newer than the known one."""
        key = topic_id, altered.partition
        row = self.told.get(key)
        if row is None or altered.leader_epoch != row.leader_epoch or altered.version <= row.version:
            return None
        by = altered.controller_epoch if isinstance(altered, PartitionRow) else self.controller_epoch
        now = msgspec.structs.replace(
            row, controller_epoch=by, isr=altered.isr, version=altered.version, recovery=altered.recovery
        )
        self.told[key] = now
        return Change(key, row, now)

    def is_current(self, topic_id: str, altered: AlteredRow) -> bool:
        """Returns whether the controller's state is the known one."""
        row = self.told.get((topic_id, altered.partition))
        return row is not None and (altered.leader_epoch, altered.version) == (row.leader_epoch, row.version)

    def _take_row(self, topic: TopicRows, row: PartitionRow, taken: RequestEffects) -> Code:
        key = topic.topic_id, row.partition
        known = self.told.get(key)
        if row.leader == LEADER_REMOVED:
            if known is not None:
                taken.changes.append(Change(key, self.told.pop(key), None))
            return Code.NONE
        on_disk = self.held.get(key) or self.strays.get(key)
        if on_disk is not None and on_disk.directory in self._broken:
            return Code.KAFKA_STORAGE_ERROR
        if self._topic_ids.get((topic.topic, row.partition), topic.topic_id) != topic.topic_id:
            return Code.INCONSISTENT_TOPIC_ID
        if row.leader_epoch < self._heard_of(key):
            return Code.STALE_CONTROLLER_EPOCH
        if known is not None and row.leader_epoch == known.leader_epoch and row.leader != known.leader:
            return Code.STALE_CONTROLLER_EPOCH  # its state was lost and begun anew: nobody leads twice in one epoch
        if self.broker_id not in row.replicas:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        if on_disk is None and self._broken and not row.is_new:
            return Code.KAFKA_STORAGE_ERROR  # it may be on the directory that we cannot see
        if known is not None and row.leader_epoch == known.leader_epoch and row.version <= known.version:
            # otherwise told again, or crossed by an answer that knew more
            return Code.STALE_CONTROLLER_EPOCH if _is_begun_anew(row, known) else Code.NONE
        self.told[key] = row
        change = Change(key, known, row)
        taken.changes.append(change)
        if change.is_new_leadership:
            self._adopt(topic, row, taken)
        return Code.NONE

    def _adopt(self, topic: TopicRows, row: PartitionRow, taken: RequestEffects) -> None:
        """The replica on disk, made if it is missing, takes note of its leader epoch. A stray that is wanted again,
        under its own topic id, is none any more."""
        key = topic.topic_id, row.partition
        before = self.held.get(key) or self.strays.get(key)
        replica = before or Replica(
            topic.topic, topic.topic_id, row.partition, self._draw_log_id(), (), self._least_loaded()
        )
        epochs = replica.leader_epochs
        if epochs[-1:] != (row.leader_epoch,):
            epochs = (*epochs, row.leader_epoch)[-LEADER_EPOCHS_KEPT:]
        replica = msgspec.structs.replace(replica, leader_epochs=epochs, stray=None)
        if replica != before:
            self._drop(key)
            self._hold(replica)
            taken.written.append(replica)
        self._topic_ids[replica.name] = topic.topic_id

    def _take_stop(self, key: TopicIdPartition, stop: StopRow, taken: RequestEffects) -> Code:
        known, on_disk = self.told.get(key), self.held.get(key) or self.strays.get(key)
        if on_disk is not None and on_disk.directory in self._broken:
            return Code.KAFKA_STORAGE_ERROR
        if known is not None:
            if stop.leader_epoch not in ANY_LEADER_EPOCH and stop.leader_epoch < known.leader_epoch:
                return Code.FENCED_LEADER_EPOCH
            taken.changes.append(Change(key, self.told.pop(key), None))
        if stop.delete:
            last_epoch = max(stop.leader_epoch, _leader_epoch_of(known, on_disk))
            self._deleted[key] = LEADER_EPOCH_MAX if stop.leader_epoch == TOPIC_DELETED else last_epoch
            if len(self._deleted) > DELETED_KEPT:
                del self._deleted[next(iter(self._deleted))]
        if stop.delete and on_disk is not None:
            self._drop(key)
            taken.deleted.append(on_disk)
        return Code.NONE

    def _heard_of(self, key: TopicIdPartition) -> int:
        """Returns the highest leader epoch of a replica that is here, or was until it was deleted."""
        on_disk = self.held.get(key) or self.strays.get(key)
        return max(_leader_epoch_of(self.told.get(key), on_disk), self._deleted.get(key, -1))

    def _least_loaded(self) -> int:
        return min(self._load.keys() - self._broken, key=lambda index: (self._load[index], index))

    def _hold(self, replica: Replica) -> None:
        self.held[replica.key] = replica
        self._load[replica.directory] += 1
        self._topic_ids[replica.name] = replica.topic_id

    def _set_aside(self, replica: Replica) -> Replica:
        self.strays[replica.key] = replica
        self._load[replica.directory] += 1
        return replica

    def _drop(self, key: TopicIdPartition) -> None:
        replica = self.held.pop(key, None) or self.strays.pop(key, None)
        if replica is not None:
            self._load[replica.directory] -= 1
            self._free_name(replica)

    def _free_name(self, replica: Replica) -> None:
        if self._topic_ids.get(replica.name) == replica.topic_id:
            del self._topic_ids[replica.name]


def _is_begun_anew(row: PartitionRow, known: PartitionRow) -> bool:
    """Whether a leadership of the same leader epoch, and of no later version, is another one than the known one: a tool
    removed the state znode, and a controller that knew of no leadership made it again."""
    if row.version == known.version:
        return set(row.isr) != set(known.isr)
    return row.controller_epoch > known.controller_epoch


def _leader_epoch_of(row: PartitionRow | None, replica: Replica | None) -> int:
    """Returns the highest leader epoch known. The controller's is void after the incarnation, the one on disk is
    not."""
    if row is not None:
        return row.leader_epoch
    return replica.leader_epochs[-1] if replica is not None and replica.leader_epochs else -1


class RoleChange(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    STOPPED = "stopped"
    DELETED = "deleted"
    #: no longer in a full list, and kept on disk
    SET_ASIDE = "set aside"


class Transitions:
    """The transitions of one request, by replica. A new ISR or version is none."""

    def __init__(self, broker_id: int, topics: Iterable[TopicRows | TopicStops]) -> None:
        self._broker_id = broker_id
        self._names = {topic.topic_id: topic.topic for topic in topics}
        self._numbers: dict[RoleChange, dict[str, list[int]]] = {}

    def take(self, taken: RequestEffects) -> None:
        """Records the effects of a piece of the request, once the disk has taken it."""
        refused = {(one.topic_id, one.partition) for one in taken.refused}
        aside = {one.key: one.topic for one in taken.written if one.stray is not None}
        deleted = {one.key: one.topic for one in taken.deleted}
        for became, keys in ((RoleChange.SET_ASIDE, aside), (RoleChange.DELETED, deleted)):
            for key, topic in keys.items():
                if key not in refused:
                    self._note(became, topic, key[1])
        for change in taken.changes:
            key, row = change.key, change.after
            if key in refused or key in aside or key in deleted:
                continue
            if row is None:
                self._note(RoleChange.STOPPED, self._names.get(key[0], key[0]), key[1])
            elif change.is_new_leadership:
                is_leader = row.leader == self._broker_id
                self._note(RoleChange.LEADER if is_leader else RoleChange.FOLLOWER, self._names[key[0]], key[1])

    def groups(self) -> Iterator[tuple[RoleChange, Mapping[str, str]]]:
        """Topic -> partitions as "0-4,7", by their new state, in pieces that each fit into a line of 64 KiB."""
        for became, topics in self._numbers.items():
            for piece in pieces_of({topic: bits_of(numbers) for topic, numbers in topics.items()}):
                yield became, piece

    def _note(self, became: RoleChange, topic: str, number: int) -> None:
        self._numbers.setdefault(became, {}).setdefault(topic, []).append(number)
