"""One stub broker: takes in what the active controller tells it, and keeps its followers, leaders and ISRs going.

It owns the fencing by epochs and the order of requests: one of the controller's is applied at a time. What only
concerns metadata, replicas, sessions or ISRs is decided in their modules. It never writes to ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import structlog

from brokerstub.asker import Asker
from brokerstub.fetch import Fetcher, Poster
from brokerstub.isr import IsrKeeper
from brokerstub.metadata import MetadataCache
from brokerstub.parts import OutOfOrderError, Parts
from brokerstub.replica_log import ReplicaLog
from brokerstub.replicas import Key, Replicas, Taken, pieces
from brokerstub.sessions import Sessions
from controller.config import LIMITS, BrokerConfig, Limits
from controller.core.codes import Code
from controller.core.topics import draw_topic_id
from controller.wire import (
    Answer,
    FetchAnswer,
    FetchRequest,
    Refusal,
    StatesRequest,
    StopReplicaRequest,
    UndecodedStatesRequest,
)

log = structlog.get_logger()


class NotReadyError(Exception):
    """Not registered yet, or not as the incarnation the request is for: the same request may succeed soon."""


class Heads(msgspec.Struct, frozen=True):
    """What a controller's request says beside its body."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    event_id: str | None = None


class Broker:
    """To be made inside a running event loop. `begin` at each registration, `run` once, `close` at the end."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        directory: Path,
        http: Poster,
        *,
        clock_ms: Callable[[], int],
        entropy: Random,
        limits: Limits = LIMITS,
    ) -> None:
        broker_id, interval_ms = config.broker_id, config.replica_fetch_wait_max_ms
        lag_ms = config.replica_lag_time_max_ms
        self.broker_id = broker_id
        self.broker_epoch: int | None = None
        self.controller_epoch = -1
        """The highest seen, over all incarnations."""
        self.metadata = MetadataCache(cluster_id, broker_id)
        self._clock_ms = clock_ms
        self._limits = limits
        self._replica_log = ReplicaLog(directory / "replicas.jsonl")
        self.replicas = Replicas(broker_id, self._replica_log.found, lambda: draw_topic_id(entropy))
        self.sessions = Sessions(self._leader_epoch_of, lambda: entropy.randrange(1, 1 << 31))
        self.isr = IsrKeeper(
            self.replicas, self.sessions, self.metadata.broker, lag_ms=lag_ms, partitions_max=limits.partitions_per_rpc
        )
        self._fetcher = Fetcher(http, self.metadata.address_of, self._log_id_of, broker_id, interval_ms)
        tick_ms = max(1, min(interval_ms, lag_ms // 2))
        self._asker = Asker(
            http, self.isr, self.metadata, clock_ms=clock_ms, entropy=entropy, tick_ms=tick_ms, limits=limits
        )
        self._leaderships: Parts[StatesRequest] = Parts()
        self._one_at_a_time = asyncio.Lock()
        self._disk_error: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, broker_epoch: int) -> None:
        """Registered: a new incarnation. It keeps its disk and the highest controller epoch, and nothing else."""
        if broker_epoch == self.broker_epoch:
            return
        self.broker_epoch = broker_epoch
        self.replicas.begin()
        self.sessions.begin()
        self.isr.begin(broker_epoch)
        self._fetcher.begin(broker_epoch)
        self._asker.begin(broker_epoch)

    async def run(self) -> None:
        """Fetch from leaders and ask for ISR changes, for ever. A failing disk ends it: a group with the OSError."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fetcher.run())
            tasks.create_task(self._asker.run())
            await self._disk_error

    def close(self) -> None:
        self._replica_log.close()

    async def on_leader_and_isr(self, heads: Heads, request: StatesRequest) -> Answer:
        async with self._one_at_a_time:
            if code := self._fence(heads):
                return Answer(code)
            try:
                bodies, is_whole = self._leaderships.take(request, heads.controller_epoch)
            except OutOfOrderError as error:
                log.warning("leader_and_isr.refused", reason=str(error))
                return Answer(Code.INVALID_REQUEST)
            topics = [body.topics for body in bodies]
            if is_whole:
                self._settle(self.replicas.take_list(topics))
            refused: list[Refusal] = []
            for piece in pieces(topics, self._limits.partitions_per_rpc):
                if code := self._fence(heads):  # the incarnation may have ended between two pieces
                    return Answer(code)
                taken = self.replicas.take_rows(piece)
                self._settle(taken)
                refused += taken.refused
                await asyncio.sleep(0)
            return Answer(Code.NONE, refused)

    async def on_update_metadata(self, heads: Heads, request: UndecodedStatesRequest) -> Answer:
        async with self._one_at_a_time:
            if code := self._fence(heads):
                return Answer(code)
            before = {entry.id: entry for entry in self.metadata.brokers}
            try:
                self.metadata.take(request, heads.controller_id, heads.controller_epoch)
            except OutOfOrderError as error:
                log.warning("update_metadata.refused", reason=str(error))
                return Answer(Code.INVALID_REQUEST)
            changed_ids = [entry.id for entry in self.metadata.brokers if before.get(entry.id) != entry]
            for broker_id in changed_ids:
                self.isr.on_broker(broker_id, self._clock_ms())
            if changed_ids:
                self._fetcher.wake_all()
            self._asker.wake()
            return Answer()

    async def on_stop_replica(self, heads: Heads, request: StopReplicaRequest) -> Answer:
        async with self._one_at_a_time:
            if code := self._fence(heads):
                return Answer(code)
            taken = self.replicas.take_stops(request.topics)
            self._settle(taken)
            return Answer(Code.NONE, taken.refused)

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
            self._asker.wake()
        return answer

    def _fence(self, heads: Heads) -> Code:
        """Code.NONE for a request that may be applied; the highest controller epoch is then the request's."""
        if self.broker_epoch is None or heads.broker_epoch > self.broker_epoch:
            # The controller saw our registration before its answer reached us. `begin` will start us from nothing.
            raise NotReadyError(f"not registered with broker epoch {heads.broker_epoch}")
        if heads.broker_epoch < self.broker_epoch:
            return Code.STALE_BROKER_EPOCH
        if heads.controller_epoch < self.controller_epoch:
            return Code.STALE_CONTROLLER_EPOCH
        self.controller_epoch = heads.controller_epoch
        return Code.NONE

    def _settle(self, taken: Taken) -> None:
        """First the disk, then everybody whom the changes concern."""
        if self._disk_error.done():
            raise NotReadyError("the data directory has failed")
        if taken.written or taken.deleted:
            try:
                self._replica_log.write(taken.written, taken.deleted, self.replicas.held)
            except OSError as error:
                # As Kafka does when no log directory is left: the process ends.
                self._disk_error.set_exception(error)
                raise NotReadyError("the data directory has failed") from error
        now_ms = self._clock_ms()
        for change in taken.changes:
            self.isr.on_change(change, now_ms)
        self._fetcher.on_changes(taken.changes)
        self._asker.wake()

    def _leader_epoch_of(self, key: Key) -> int | None:
        row = self.replicas.led(key)
        return None if row is None else row.leader_epoch

    def _log_id_of(self, key: Key) -> str:
        return self.replicas.held[key].log_id
