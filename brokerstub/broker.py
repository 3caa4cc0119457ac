"""One stub broker: it obeys the active controller, and keeps its followers, leaders and ISRs going.

It owns the fencing by epochs and the order of requests: one of the controller's is applied at a time. Decisions about
metadata, replicas, sessions or ISRs alone are made in their modules. It never writes to ZooKeeper.

`described` reads metadata and replicas and changes nothing: it returns, for each topic name, the ids in the metadata
and those of replicas on this broker's disks.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import structlog

from brokerstub.alter_partition import AlterPartitionManager
from brokerstub.faults import NO_FAULTS, ClientFaults, Faults, watch_faults
from brokerstub.fetch import Fetcher, Poster
from brokerstub.fetch_sessions import FetchSessions
from brokerstub.follower_fetches import FollowerFetches
from brokerstub.isr import IsrKeeper
from brokerstub.listeners import keeps_records
from brokerstub.log_dirs import LogDirs
from brokerstub.log_ends import LogEnds
from brokerstub.logs import Logs, LostRecords
from brokerstub.metadata import MetadataCache, rows_in
from brokerstub.multipart_lists import MultipartList, OutOfOrderError, pieces
from brokerstub.notifications import DirectIsrWriter, Notifications, writes_directly
from brokerstub.records.disks import Disk, FolderDisk
from brokerstub.replicas import Change, Replica, Replicas, RequestEffects, Transitions
from controller.base.clock import jump
from controller.base.config import LIMITS, BrokerConfig, Limits
from controller.core.codes import Code
from controller.core.decide.topic_ids import draw_topic_id
from controller.core.model import TopicIdPartition
from controller.wire.bodies import (
    Answer,
    DescribedId,
    DescribedTopic,
    DescribeLogAnswer,
    DescribeLogRequest,
    DescribeTopicsAnswer,
    DescribeTopicsRequest,
    FetchAnswer,
    FetchRequest,
    KnownEpoch,
    Refusal,
    StatesRequest,
    StopReplicaRequest,
    TopicRows,
    UndecodedStatesRequest,
)
from controller.wire.signing import Incarnation, Signer
from controller.zookeeper.port import ZooKeeper


def described(names: Collection[str], metadata: MetadataCache, replicas: Replicas) -> Iterator[DescribedTopic]:
    """Returns this broker's own knowledge of each topic, in the order asked: the ids that it was told, and those of
    replicas on its disks. The id of a replica that was set aside counts for nothing, its leader epochs do."""
    wanted = dict.fromkeys(names)
    on_disk: defaultdict[str, list[Replica]] = defaultdict(list)
    for replica in chain(replicas.held.values(), replicas.strays.values()):
        if replica.topic in wanted:
            on_disk[replica.topic].append(replica)
    for name in wanted:
        told = metadata.topic(name)
        rows = () if told is None else told.partitions
        ids: dict[str, dict[int, int]] = {}
        if told is not None:
            ids[told.topic_id] = {row.partition: row.leader_epoch for row in rows}
        held_ids = set()
        for replica in on_disk[name]:
            epochs = ids.setdefault(replica.topic_id, {})
            epochs[replica.partition] = max(epochs.get(replica.partition, -1), *replica.leader_epochs, -1)
            if replica.stray is None:
                held_ids.add(replica.topic_id)
        told_id = None if told is None else told.topic_id
        yield DescribedTopic(
            name,
            [
                DescribedId(
                    one, one == told_id, one in held_ids, [KnownEpoch(*pair) for pair in sorted(epochs.items())]
                )
                for one, epochs in sorted(ids.items())
            ],
        )


_EVENT_ID: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


class NotReadyError(Exception):
    """Not registered yet, or not as the incarnation the request is for: the same request may succeed soon."""


class ControllerHeaders(msgspec.Struct, frozen=True):
    """The headers."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    event_id: str | None = None
    #: the number of the attempt among all of its sender's; 0 of a sender that does not count
    sequence: int = 0

    @property
    def place(self) -> tuple[int, int, int] | None:
        """Returns the request's place in the order of controllers' requests; None when it names none."""
        match = _EVENT_ID.fullmatch(self.event_id or "")
        return None if match is None else (int(match[1]), int(match[2]), self.sequence)


#: each is a folder and a file; others have their turn in between
LOGS_OPENED_AT_ONCE: Final = 200
#: of strays set aside by one list, so many are named in the log
STRAYS_LISTED: Final = 100

log = structlog.get_logger()


class Broker:
    """To be made inside a running event loop. `begin` at each registration, `run` once, `close` at the end."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        http: Poster,
        *,
        clock_ms: Callable[[], int],
        wall_clock_ms: Callable[[], int],
        entropy: Random,
        faults: Faults = NO_FAULTS,
        limits: Limits = LIMITS,
        signer: Signer | None = None,
        open_disk: Callable[[Path], Disk] = FolderDisk,
    ) -> None:
        broker_id, interval_ms = config.broker_id, config.replica_fetch_wait_max_ms
        lag_ms = config.replica_lag_time_max_ms
        self.broker_id = broker_id
        self.broker_epoch: int | None = None
        self.controller_epoch = -1
        """The highest seen, over all incarnations."""
        self.metadata = MetadataCache(cluster_id, broker_id, config.inter_broker_listener_name)
        self._newest = (-1, -1, -1)
        """Controller epoch and number of the newest event that this incarnation was told of."""
        self._clock_ms = clock_ms
        self._wall_clock_ms = wall_clock_ms
        self._limits = limits
        self._faults = faults
        self._faults_path = None if config.klamm_faults_file is None else Path(config.klamm_faults_file)
        dirs = self._dirs = LogDirs(config.log_directories, faults.broken_dirs)
        self.replicas = Replicas(
            broker_id, dirs.found, lambda: draw_topic_id(entropy), directories=dirs.indexes, broken=dirs.broken
        )
        self.sessions = FetchSessions(self._leader_epoch_of, lambda: entropy.randrange(1, 1 << 31))
        self.on_lost: Callable[[LostRecords], None] = _said_nowhere
        """What is told of records that had to go."""
        self.on_client_faults: Callable[[ClientFaults], None] = _suffered_by_nobody
        """What is told of the trouble that Kafka's clients are to have."""
        self.on_transitions: Callable[[ControllerHeaders, Transitions], None] = _nowhere
        """What is told of replicas that a request made leaders or followers, or ended."""
        self.logs = self._logs_for(config, open_disk) if keeps_records(config) else None
        self.isr = IsrKeeper(
            self.replicas,
            self.sessions,
            self.metadata.broker,
            lag_ms=lag_ms,
            partitions_max=limits.partitions_per_rpc,
            logs=self.logs,
        )
        self.log_ends = None if self.logs is None else LogEnds(self.logs, self.metadata, http, signer or Signer())
        self._follower_fetches = (
            None if self.logs is None else FollowerFetches(self.logs, self.sessions, clock_ms, self._on_outsider)
        )
        self.notifications = Notifications(config, clock_ms)
        self._fetcher = Fetcher(
            http, self.metadata, self._log_id_of, interval_ms, self._is_held_back, signer, self.logs
        )
        tick_ms = max(1, min(interval_ms, lag_ms // 2))
        new_sender: Callable[..., AlterPartitionManager] = AlterPartitionManager
        if writes_directly(config.inter_broker_protocol_version):
            new_sender = partial(DirectIsrWriter, replicas=self.replicas, notifications=self.notifications)
        new_sender = partial(new_sender, http, self.isr, self.metadata, clock_ms=clock_ms, entropy=entropy)
        self._isr_sender = new_sender(tick_ms=tick_ms, limits=limits, signer=signer)
        self._leaderships: MultipartList[StatesRequest] = MultipartList()
        self._one_at_a_time = asyncio.Lock()
        self._disk_error: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(self.broker_id, self.broker_epoch)

    def begin(self, broker_epoch: int, zk: ZooKeeper | None = None) -> None:
        """Registered, under this session: a new incarnation. It keeps its disk and the highest controller epoch, and
        nothing else."""
        self.notifications.begin(zk)
        if self.logs is not None:
            self.logs.begin(broker_epoch, zk)
        if broker_epoch == self.broker_epoch:
            return
        self.broker_epoch = broker_epoch
        self._newest = (-1, -1, -1)
        self.replicas.begin()
        self.sessions.begin()
        if self._follower_fetches is not None:
            self._follower_fetches.begin()
        if self.log_ends is not None:
            self.log_ends.begin(broker_epoch)
        self.isr.begin(broker_epoch)
        self._fetcher.begin(broker_epoch)
        self._isr_sender.begin(broker_epoch)

    async def run(self) -> None:
        """Fetch from leaders and ask for ISR changes, for ever. The loss of the last log directory ends it: a group
        with the OSError."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fetcher.run())
            tasks.create_task(self._isr_sender.run())
            tasks.create_task(self.notifications.run())
            if self.logs is not None:
                tasks.create_task(self.logs.run())
            if self._faults_path is not None:
                tasks.create_task(watch_faults(self._faults_path, self.on_faults))
            await self._disk_error

    def close(self) -> None:
        if self.logs is not None:
            self.logs.close()
        self._dirs.close()

    def on_faults(self, faults: Faults) -> None:
        """The faults to be suffered from now on."""
        before, self._faults = self._faults, faults
        jump(faults.clock_ahead_ms)
        self.on_client_faults(faults.clients)
        broken = faults.broken_dirs & set(self._dirs.indexes)
        for directory in sorted(broken - self._dirs.broken):
            self._fail(directory)
        for directory in sorted((self._dirs.broken & before.broken_dirs) - broken):
            self._mend(directory)
        changes = []
        for key, row in self.replicas.told.items():
            name = self.replicas.held[key].name
            if (name in before.held) != (name in faults.held):
                changes.append(Change(key, row if name in faults.held else None, row))
        self._fetcher.on_changes(changes)

    async def on_leader_and_isr(self, headers: ControllerHeaders, request: StatesRequest) -> Answer:
        async with self._one_at_a_time:
            if code := self._fence(headers):
                return self._refusal(code)
            try:
                bodies, is_whole = self._leaderships.take(request, headers.controller_epoch)
            except OutOfOrderError as error:
                log.warning("leader_and_isr.refused", reason=str(error))
                return Answer(Code.INVALID_REQUEST)
            topics = [body.topics for body in bodies]
            transitions = Transitions(self.broker_id, chain.from_iterable(topics))
            if is_whole:
                transitions.take(self._set_aside(topics))
            refused: list[Refusal] = []
            for piece in pieces(topics, self._limits.partitions_per_rpc if self.logs is None else LOGS_OPENED_AT_ONCE):
                if code := self._fence(headers):  # the incarnation may have ended between two pieces
                    return self._refusal(code)
                taken = self.replicas.take_rows(piece)
                self._settle(taken)
                transitions.take(taken)
                refused += taken.refused
                await asyncio.sleep(0)
            self.on_transitions(headers, transitions)
            return Answer(Code.NONE, refused)

    async def on_update_metadata(self, headers: ControllerHeaders, request: UndecodedStatesRequest) -> Answer:
        async with self._one_at_a_time:
            if code := self._fence(headers):
                return self._refusal(code)
            before = {entry.id: entry for entry in self.metadata.brokers}
            try:
                self.metadata.take(request, headers.controller_id, headers.controller_epoch)
            except OutOfOrderError as error:
                log.warning("update_metadata.refused", reason=str(error))
                return Answer(Code.INVALID_REQUEST)
            if not request.full:
                self._pass_on(self.replicas.take_metadata(rows_in(request)))
            changed_ids = [entry.id for entry in self.metadata.brokers if before.get(entry.id) != entry]
            for broker_id in changed_ids:
                self.isr.on_broker(broker_id, self._clock_ms())
            if changed_ids:
                self._fetcher.wake_all()
            self._isr_sender.wake()
            return Answer()

    async def on_stop_replica(self, headers: ControllerHeaders, request: StopReplicaRequest) -> Answer:
        async with self._one_at_a_time:
            if code := self._fence(headers):
                return self._refusal(code)
            taken, transitions = self.replicas.take_stops(request.topics), Transitions(self.broker_id, request.topics)
            self._settle(taken)
            transitions.take(taken)
            self.on_transitions(headers, transitions)
            return Answer(Code.NONE, taken.refused)

    async def on_describe_topics(
        self, headers: ControllerHeaders, request: DescribeTopicsRequest
    ) -> DescribeTopicsAnswer:
        """In its turn among the controller's other requests: the answer is as of those before it."""
        async with self._one_at_a_time:
            if code := self._fence(headers):
                return DescribeTopicsAnswer(code)
            topics = []
            for topic in described(request.topics, self.metadata, self.replicas):
                topics.append(topic)
                await asyncio.sleep(0)
            return DescribeTopicsAnswer(Code.NONE, topics=topics)

    def on_fetch(self, follower_id: int, follower_epoch: int, request: FetchRequest) -> FetchAnswer:
        if self.broker_epoch is None:
            raise NotReadyError("this broker is not registered")
        entry = self.metadata.broker(follower_id)
        if entry is not None and follower_epoch < entry.epoch:
            return FetchAnswer(Code.STALE_BROKER_EPOCH)
        now_ms = self._clock_ms()
        answer, moved = self.sessions.take(follower_id, follower_epoch, request, now_ms)
        self.isr.on_moved(moved, now_ms)
        if self.isr.has_work:
            self._isr_sender.wake()
        return answer

    async def on_fetch_records(
        self, follower_id: int, follower_epoch: int, request: FetchRequest
    ) -> tuple[FetchAnswer, list[bytes]]:
        """As `on_fetch`, with the records for the follower, which may wait for them."""
        answer = self.on_fetch(follower_id, follower_epoch, request)
        if self._follower_fetches is None or answer.error_code != Code.NONE:
            return answer, []
        return await self._follower_fetches.answer(follower_id, follower_epoch, request, answer)

    def on_describe_log(self, request: DescribeLogRequest) -> DescribeLogAnswer:
        """Returns this broker's log ends of a partition."""
        if self.log_ends is None:
            return DescribeLogAnswer(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return self.log_ends.own(request)

    def _fence(self, headers: ControllerHeaders) -> Code:
        """Code.NONE for a request that may be applied; the highest controller epoch is then the request's."""
        if self.broker_epoch is None or headers.broker_epoch > self.broker_epoch:
            # The controller saw our registration before its answer reached us. `begin` will start us from nothing.
            raise NotReadyError(f"not registered with broker epoch {headers.broker_epoch}")
        if headers.broker_epoch < self.broker_epoch:
            return Code.STALE_BROKER_EPOCH
        if headers.controller_epoch < self.controller_epoch:
            return Code.STALE_CONTROLLER_EPOCH
        if (place := headers.place) is not None:
            if place < self._newest:
                # A request that its sender gave up, then sent anew with what was decided meanwhile; it came late.
                return Code.INVALID_REQUEST
            self._newest = place
        self.controller_epoch = self.replicas.controller_epoch = headers.controller_epoch
        return Code.NONE

    def _refusal(self, code: Code) -> Answer:
        """Refuses a late request, and names the controller that this broker obeys, so that the next request is not
        late."""
        return Answer(code, controller_epoch=self.controller_epoch if code is Code.STALE_CONTROLLER_EPOCH else -1)

    def _set_aside(self, topics: list[Sequence[TopicRows]]) -> RequestEffects:
        """Sets aside the replicas on disk that a full list does not contain."""
        taken = self.replicas.take_list(
            topics, f"not in the full list of controller epoch {self.controller_epoch}", self._wall_clock_ms()
        )
        self._settle(taken)
        if taken.written:
            names = [f"{one.topic}-{one.partition} ({one.topic_id})" for one in taken.written[:STRAYS_LISTED]]
            log.warning(
                "strays.set_aside", replicas=len(taken.written), controller_epoch=self.controller_epoch, of=names
            )
        return taken

    def _settle(self, taken: RequestEffects) -> None:
        """Writes the disk first, then passes the changes on. Rows that a disk did not take are refused."""
        self._check_disks()
        failed = self._dirs.write(taken, self.replicas.within)
        self._pass_on(taken.changes)
        if self.logs is not None:
            for replica in taken.deleted:
                self.logs.delete(replica)
        for directory in failed:
            self._fail(directory)
            lost = [one for one in (*taken.written, *taken.deleted) if one.directory == directory]
            taken.refused.extend(Refusal(one.topic_id, one.partition, Code.KAFKA_STORAGE_ERROR) for one in lost)
        self._check_disks()

    def _check_disks(self) -> None:
        if self._disk_error.done():
            raise NotReadyError("no log directory is left")

    def _fail(self, directory: int) -> None:
        """Its replicas are neither led nor followed any more, and the controller is to ask."""
        if directory in self._dirs.broken:
            return
        self._pass_on(self.replicas.fail(directory).changes)
        if self.logs is not None:
            self.logs.fail(directory)
        self.notifications.on_log_dir()
        try:
            self._dirs.fail(directory)
        except OSError as error:
            # As Kafka does when no log directory is left: the process ends.
            self._disk_error.set_exception(error)

    def _mend(self, directory: int) -> None:
        try:
            found = list(self._dirs.open(directory))
            own = self.metadata.own_replicas({one.topic for one in found})
            taken = self.replicas.mend(directory, found, self._wall_clock_ms(), own)
        except OSError as error:
            log.warning("log_dir.unusable", directory=directory, reason=str(error))
            return
        self._settle(taken)
        self.notifications.on_log_dir()
        log.info("log_dir.mended", directory=directory)

    def _pass_on(self, changes: Sequence[Change]) -> None:
        now_ms = self._clock_ms()
        for change in changes:
            if self.logs is not None:
                self.logs.on_change(change)
            self.isr.on_change(change, now_ms)
        if self._follower_fetches is not None and any(change.is_new_leadership for change in changes):
            self._follower_fetches.wake_all()
        self._fetcher.on_changes(changes)
        self._isr_sender.wake()

    def _logs_for(self, config: BrokerConfig, open_disk: Callable[[Path], Disk]) -> Logs:
        return Logs(
            config,
            self.replicas,
            clock_ms=self._clock_ms,
            wall_clock_ms=self._wall_clock_ms,
            on_disk_error=self._fail,
            on_lost=self._pass_on_lost,
            open_disk=open_disk,
        )

    def _pass_on_lost(self, lost: LostRecords) -> None:
        self.on_lost(lost)

    def _on_outsider(self, key: TopicIdPartition) -> None:
        self.isr.on_outsider(key)
        self._isr_sender.wake()

    def _is_held_back(self, key: TopicIdPartition) -> bool:
        return self.replicas.held[key].name in self._faults.held

    def _leader_epoch_of(self, key: TopicIdPartition) -> int | None:
        row = self.replicas.led(key)
        return None if row is None else row.leader_epoch

    def _log_id_of(self, key: TopicIdPartition) -> str:
        return self.replicas.held[key].log_id


def _nowhere(_headers: ControllerHeaders, _transitions: Transitions) -> None:
    """A broker without HTTP writes no line."""


def _suffered_by_nobody(_faults: ClientFaults) -> None:
    """Without records there are no clients."""


def _said_nowhere(lost: LostRecords) -> None:
    log.warning("records.truncated", topic=lost.topic, partition=lost.partition, start=lost.start, end=lost.end)
