"""The logs of this broker's replicas: those that it leads and follows, its appends, and the high watermarks.

It owns the folders of records in the log directories, and the files of high watermarks. Leaders come from the
controller (`on_change`), the configuration of topics from `topic_settings.py`, followers' fetches from
`follower_fetches.py`, requests of clients from `clients/`. The records that an unclean election lost are named where a
follower truncates.

An error of a disk ends its log directory, as a fault of the lab does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from brokerstub.log_dirs import HIGH_WATERMARKS, DamagedCheckpointError, decode_offsets, encode_offsets
from brokerstub.records.batches import Bytes
from brokerstub.records.disks import Disk, FolderDisk
from brokerstub.records.errors import (
    LogFailedError,
    NotLeaderError,
    RecordsError,
    UnknownPartitionError,
)
from brokerstub.records.log import Appended, Log
from brokerstub.records.replication import Fetch, Fetched, Follower, Leader
from brokerstub.replicas import Change, Replica, Replicas
from brokerstub.topic_settings import TopicConfigs, TopicSettings, settings_for
from controller.base.config import BrokerConfig
from controller.core.model import NO_LEADER, TopicIdPartition
from controller.wire.bodies import PartitionRow, Truncation
from controller.zookeeper.port import ZooKeeper

#: the folder of records in each log directory; each log in a folder of its own, named by topic id and number
FOLDER: Final = "records"
#: of all logs of a log directory
_SAVED: Final = f"{FOLDER}/{HIGH_WATERMARKS}"
#: how often old segments are looked for, high watermarks are written down, and `flush.ms` is looked at
KEEP_INTERVAL_S: Final = 5.0
#: of all partitions; the state-change log has all
TRUNCATIONS_KEPT: Final = 1_000
#: between two partitions that are kept, so that no request waits for all of them
KEPT_AT_ONCE: Final = 20

log = structlog.get_logger()


class LostRecords(msgspec.Struct, frozen=True):
    """Records that a follower had and its leader has not: `start` up to `end`. Those below the high watermark that the
    follower knew were committed: an unclean election lost them."""

    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    start: int
    end: int
    committed: int
    #: the leader epoch of the first of them
    records_epoch: int


class PartitionLogEnds(msgspec.Struct, frozen=True):
    """Of one partition, as this broker knows it: where the log of each replica ends (-1: not known here)."""

    log_start: int
    log_end: int
    high_watermark: int
    replicas: Mapping[int, int]


class PartitionLog:
    """One replica's log and this broker's role for it."""

    def __init__(self, replica: Replica, records: Log, high_watermark: int) -> None:
        self.replica = replica
        self.log = records
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.leader_id = NO_LEADER
        #: since when this broker has led without a break: leader epochs may rise meanwhile, and nothing is truncated
        self.tenure = 0
        self.settings: TopicSettings | None = None
        self._saved = high_watermark
        #: woken in the order in which they came
        self._watchers: dict[asyncio.Event, None] = {}

    @property
    def high_watermark(self) -> int:
        role = self.leader or self.follower
        return self._saved if role is None else role.high_watermark

    def lead(self, leader: Leader) -> None:
        self.tenure += self.leader is None
        self._saved, self.leader, self.follower = self.high_watermark, leader, None
        self.ring()

    def follow(self, follower: Follower | None) -> None:
        """None: there is no leader."""
        self._saved, self.leader, self.follower = self.high_watermark, None, follower
        self.ring()

    def ring(self) -> None:
        """A change that readers and producers wait for: of the high watermark, or of the leader."""
        for watcher in self._watchers:
            watcher.set()

    @contextmanager
    def watched_by(self, watcher: asyncio.Event) -> Iterator[None]:
        self._watchers[watcher] = None
        try:
            yield
        finally:
            self._watchers.pop(watcher, None)


class Logs:
    """Of one broker. `begin` at each registration, `run` once, `close` at the end."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: Replicas,
        *,
        clock_ms: Callable[[], int],
        wall_clock_ms: Callable[[], int],
        on_disk_error: Callable[[int], None],
        on_lost: Callable[[LostRecords], None],
        open_disk: Callable[[Path], Disk] = FolderDisk,
    ) -> None:
        self._config = config
        self._open_disk = open_disk
        self._replicas = replicas
        self._clock_ms = clock_ms
        self._wall_clock_ms = wall_clock_ms
        self._on_disk_error = on_disk_error
        self._on_lost = on_lost
        self._paths = config.log_directories
        self._disks: dict[int, Disk] = {}
        self._saved: dict[int, dict[tuple[str, int], int]] = {}
        self._open: dict[TopicIdPartition, PartitionLog] = {}
        self._keys: dict[tuple[str, int], TopicIdPartition] = {}
        self._settings: dict[str, TopicSettings] = {}
        self._broker_epoch = -1
        #: led, and a member of the ISR may lack something
        self._behind: dict[TopicIdPartition, None] = {}
        self.configs = TopicConfigs(config, self._on_settings)
        #: told of appended records, just before and after, and of leaders
        self.on_append: list[Callable[[TopicIdPartition, Leader], None]] = []
        self.on_end_moved: list[Callable[[TopicIdPartition], None]] = []
        self.on_high_watermark: list[Callable[[TopicIdPartition], None]] = []
        self._lost: deque[tuple[int, LostRecords]] = deque(maxlen=TRUNCATIONS_KEPT)

    def begin(self, broker_epoch: int, zk: ZooKeeper | None) -> None:
        """A new incarnation was told nothing yet."""
        self.configs.begin(zk)
        if broker_epoch == self._broker_epoch:
            return
        self._broker_epoch = broker_epoch
        for key in list(self._open):
            self._close(key)

    def close(self) -> None:
        """The high watermarks are written down; logs need nothing."""
        with suppress(OSError):
            for directory in list(self._disks):
                self._save(directory)
        for disk in self._disks.values():
            disk.close()

    async def run(self) -> None:
        """Keeps logs small, and the high watermarks on disk."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.configs.run())
            while True:
                await asyncio.sleep(KEEP_INTERVAL_S)
                await self.keep()

    async def keep(self) -> None:
        """Once: retention, `flush.ms`, settled segments, high watermarks."""
        for number, (key, one) in enumerate(list(self._open.items())):
            if number % KEPT_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._open.get(key) is one:
                with self.failing(one):
                    now_ms = self._wall_clock_ms()
                    one.log.flush_due(now_ms)
                    if one.settings is not None and one.leader is not None:
                        one.log.retain(now_ms, one.high_watermark)
                    one.log.settle()
        for directory in list(self._disks):
            try:
                self._save(directory)
            except OSError as error:
                log.error("high_watermarks.unsaved", reason=str(error))
                self._on_disk_error(directory)

    def on_change(self, change: Change) -> None:
        """This broker was told something else about a partition."""
        key, row = change.key, change.after
        if row is None:
            self._close(key)
            return
        one = self._open.get(key)
        if not change.is_new_leadership and one is not None:
            if one.leader is not None:
                before = one.leader.high_watermark
                one.leader.take_isr(row.isr, row.replicas)
                self._moved(key, one, before)
            return
        replica = self._replicas.held[key]
        try:
            one = one or self._opened(replica)
            self._take_role(key, one, row)
        except OSError as error:
            log.error("log.refused", topic=replica.topic, partition=replica.partition, reason=str(error))
            self._on_disk_error(replica.directory)
        except RecordsError as error:  # its own log is ahead of the leader's: no record is served from it
            log.error("log.fenced", topic=replica.topic, partition=replica.partition, reason=str(error))
            if one is not None:
                one.follow(None)

    def delete(self, replica: Replica) -> None:
        """The controller had the replica deleted: its records go, too."""
        self._close(replica.key)
        folder = _folder_of(replica)
        try:
            disk = self._disk(replica.directory)
            for name in disk.names(folder):
                disk.remove(f"{folder}/{name}")
            disk.remove_folder(folder)
        except FileNotFoundError:
            pass  # it had no log yet
        except OSError as error:
            log.warning("log.left", path=folder, reason=str(error))
        self._saved.get(replica.directory, {}).pop(replica.key, None)

    def fail(self, directory: int) -> None:
        """A log directory is lost: nothing of it is open."""
        for key in [key for key, one in self._open.items() if one.replica.directory == directory]:
            self._close(key)
        if (disk := self._disks.pop(directory, None)) is not None:
            disk.close()
        self._saved.pop(directory, None)

    def of(self, topic: str, partition: int) -> PartitionLog:
        """By name. Raises UnknownPartitionError: this broker has no such replica."""
        key = self._keys.get((topic, partition))
        if key is None:
            raise UnknownPartitionError(f"{topic}-{partition} is not on this broker")
        return self._open[key]

    def get(self, key: TopicIdPartition) -> PartitionLog | None:
        return self._open.get(key)

    def led(self, topic: str, partition: int, leader_epoch: int = -1) -> tuple[PartitionLog, Leader]:
        """Returns a led partition for a client's request. `leader_epoch`: the one that the client believes in."""
        try:
            one = self.of(topic, partition)
        except UnknownPartitionError as error:
            raise NotLeaderError(str(error)) from None
        if one.leader is None:
            raise NotLeaderError(f"this broker does not lead {topic}-{partition}")
        one.leader.check_epoch(leader_epoch)
        return one, one.leader

    def append(self, one: PartitionLog, leader: Leader, data: Bytes, *, acks: int) -> Appended:
        """Returns a producer's batch. Raises RecordsError; an error of the disk is one."""
        settings = one.settings
        if settings is None:
            raise NotLeaderError(f"the configuration of {one.replica.topic} was not read yet")
        key, before = one.replica.key, leader.high_watermark
        with self.failing(one):
            for told in self.on_append:
                told(key, leader)
            appended = leader.append(data, self._wall_clock_ms(), min_isr=settings.min_isr if acks == -1 else 1)
            if len(leader.isr) > 1:
                self._behind[key] = None
            for moved in self.on_end_moved:
                moved(key)
            self._moved(key, one, before)
            return appended
        raise LogFailedError(f"{_folder_of(one.replica)}: its disk failed")

    def fetched(self, key: TopicIdPartition, fetch: Fetch, max_bytes: int) -> Fetched:
        """Returns a follower's question. Raises RecordsError."""
        one = self._open.get(key)
        if one is None or one.leader is None:
            raise NotLeaderError("this broker does not lead it")
        before = one.leader.high_watermark
        with self.failing(one):
            answer = one.leader.fetched(fetch, max_bytes, self._clock_ms())
            self._moved(key, one, before)
            return answer
        raise LogFailedError(f"{_folder_of(one.replica)}: its disk failed")

    def question(self, key: TopicIdPartition) -> Fetch | None:
        """Returns the next question to the leader; None where this broker does not follow."""
        one = self._open.get(key)
        return None if one is None or one.follower is None else one.follower.fetch()

    def take(self, key: TopicIdPartition, asked: Fetch, answer: Fetched) -> None:
        """Takes in the leader's answer. Raises RecordsError for an answer that does not fit."""
        one = self._open.get(key)
        if one is None or one.follower is None or one.follower.leader_epoch != asked.leader_epoch:
            return
        known, before = one.follower.high_watermark, one.log.end_offset
        with self.failing(one):
            truncated = one.follower.take(asked, answer, self._wall_clock_ms())
            if truncated is not None:
                committed = max(0, min(known, truncated.end) - truncated.start)
                replica = one.replica
                lost = LostRecords(
                    *(replica.topic, replica.topic_id, replica.partition, one.leader_id, one.follower.leader_epoch),
                    *(truncated.start, truncated.end, committed, truncated.epoch),
                )
                self._lost.append((self._wall_clock_ms(), lost))
                self._on_lost(lost)
            if one.log.end_offset != before:
                one.ring()

    # The questions of the ISR's keeper.

    def wanted_isr(
        self, key: TopicIdPartition, now_ms: int, is_eligible: Callable[[int, int], bool]
    ) -> tuple[int, ...] | None:
        """The ISR as the log would have it; None where there is none."""
        one = self._open.get(key)
        return None if one is None or one.leader is None else one.leader.wanted_isr(now_ms, is_eligible)

    def ask(self, key: TopicIdPartition, members: Collection[int]) -> None:
        """The controller is asked for this ISR; for none: it has not granted it."""
        one = self._open.get(key)
        if one is not None and one.leader is not None:
            before = one.leader.high_watermark
            if members:
                one.leader.ask(members)
            else:
                one.leader.take_isr(one.leader.isr)
            self._moved(key, one, before)

    def stands(self, key: TopicIdPartition, row: PartitionRow) -> None:
        """Adopts the controller's answer."""
        one = self._open.get(key)
        if one is not None and one.leader is not None and one.leader.leader_epoch == row.leader_epoch:
            before = one.leader.high_watermark
            one.leader.take_isr(row.isr, row.replicas)
            self._moved(key, one, before)

    def lagging(self) -> Iterator[TopicIdPartition]:
        """Led partitions of which a member of the ISR may lack something."""
        for key in list(self._behind):
            one = self._open.get(key)
            if one is None or one.leader is None or one.leader.high_watermark == one.log.end_offset:
                del self._behind[key]
            else:
                yield key

    def ends(self, topic: str, partition: int) -> PartitionLogEnds | None:
        """Returns the known ends of a partition's logs; None: this broker has none of it."""
        key = self._keys.get((topic, partition))
        if key is None:
            return None
        one = self._open[key]
        own = {self._replicas.broker_id: one.log.end_offset}
        known = own if one.leader is None else one.leader.ends()
        return PartitionLogEnds(one.log.start_offset, one.log.end_offset, one.high_watermark, known)

    def truncations(self, topic: str, partition: int) -> list[Truncation]:
        """Those of this process that it remembers, the oldest first."""
        own_id = self._replicas.broker_id
        return [
            Truncation(
                *(own_id, at_ms, one.leader, one.leader_epoch),
                *(one.start, one.end, one.committed, one.records_epoch),
            )
            for at_ms, one in self._lost
            if (one.topic, one.partition) == (topic, partition)
        ]

    @contextmanager
    def failing(self, one: PartitionLog) -> Iterator[None]:
        """An error of its disk ends the whole log directory. The code after the block then runs all the same."""
        try:
            yield
        except OSError as error:
            log.error("log.failed", topic=one.replica.topic, partition=one.replica.partition, reason=str(error))
            self._on_disk_error(one.replica.directory)
        except LogFailedError:
            self._on_disk_error(one.replica.directory)

    def _take_role(self, key: TopicIdPartition, one: PartitionLog, row: PartitionRow) -> None:
        one.leader_id = row.leader
        self._behind.pop(key, None)
        if row.leader == self._replicas.broker_id:
            one.lead(
                Leader(
                    one.log,
                    self._replicas.broker_id,
                    row.leader_epoch,
                    replicas=row.replicas,
                    isr=row.isr,
                    high_watermark=one.high_watermark,
                    lag_ms=self._config.replica_lag_time_max_ms,
                    now_ms=self._clock_ms(),
                )
            )
            self._behind[key] = None
            for moved in self.on_end_moved:  # followers that asked before may be answered now
                moved(key)
        elif row.leader == NO_LEADER:
            one.follow(None)
        else:
            one.follow(
                Follower(one.log, self._replicas.broker_id, self._broker_epoch, row.leader_epoch, one.high_watermark)
            )

    def _opened(self, replica: Replica) -> PartitionLog:
        disk = self._disk(replica.directory)
        settings = self._settings.get(replica.topic)
        defaults = settings_for(self._config, replica.topic, {})
        records = Log(disk, _folder_of(replica), (settings or defaults).log)
        if records.recovered is not None:
            log.warning(
                "log.recovered",
                topic=replica.topic,
                partition=replica.partition,
                end_offset=records.recovered.end_offset,
                lost_bytes=records.recovered.lost_bytes,
                reason=records.recovered.reason,
            )
        known = self._saved[replica.directory].get(replica.key, 0)
        one = PartitionLog(replica, records, max(records.start_offset, min(known, records.end_offset)))
        one.settings = settings
        self._open[replica.key] = one
        self._keys[replica.name] = replica.key
        self.configs.want(replica.topic)
        return one

    def _disk(self, directory: int) -> Disk:
        disk = self._disks.get(directory)
        if disk is None:
            disk = self._open_disk(self._paths[directory])
            disk.make_folder(FOLDER)
            self._saved[directory] = _saved_on(disk)
            self._disks[directory] = disk
        return disk

    def _close(self, key: TopicIdPartition) -> None:
        one = self._open.pop(key, None)
        if one is None:
            return
        self._behind.pop(key, None)
        if self._keys.get(one.replica.name) == key:
            del self._keys[one.replica.name]
        if (saved := self._saved.get(one.replica.directory)) is not None:
            saved[key] = one.high_watermark
        one.follow(None)
        if not any(name == one.replica.topic for name, _ in self._keys):
            self.configs.unwant(one.replica.topic)
            self._settings.pop(one.replica.topic, None)

    def _save(self, directory: int) -> None:
        saved = self._saved[directory]
        saved |= {key: one.high_watermark for key, one in self._open.items() if one.replica.directory == directory}
        self._disks[directory].replace(_SAVED, encode_offsets(saved))

    def _moved(self, key: TopicIdPartition, one: PartitionLog, before: int) -> None:
        """The high watermark may have risen."""
        if one.leader is not None and one.leader.high_watermark != before:
            one.ring()
            for told in self.on_high_watermark:
                told(key)

    def _on_settings(self, name: str, settings: TopicSettings) -> None:
        self._settings[name] = settings
        for one in self._open.values():
            if one.replica.topic == name:
                one.settings, one.log.config = settings, settings.log


def _folder_of(replica: Replica) -> str:
    """By the id: a topic that is deleted and made anew shares nothing with the one before."""
    return f"{FOLDER}/{replica.topic_id}-{replica.partition}"


def _saved_on(disk: Disk) -> dict[tuple[str, int], int]:
    """Returns high watermarks, by topic id and number. Those that cannot be read are learned again from leaders."""
    try:
        return decode_offsets(disk.read(_SAVED, 0, disk.size(_SAVED)))
    except FileNotFoundError:
        return {}
    except DamagedCheckpointError as error:
        log.warning("high_watermarks.ignored", path=_SAVED, reason=str(error))
        return {}
