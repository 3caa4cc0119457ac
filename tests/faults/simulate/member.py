"""One broker process of a simulation: the real broker, daemon, registration and outboxes on simulated surroundings.

It replaces `brokerstub.runtime` and `brokerstub.server`, which deal with signals, files and HTTP. It decides nothing:
it acts as they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from brokerstub.broker import Broker, ControllerHeaders, NotReadyError
from brokerstub.logs import LostRecords
from brokerstub.registration import cluster_id, ensure_feature, register, registration_for
from brokerstub.replicas import TOPIC_DELETED
from brokerstub.runtime import Seat, hand_over
from brokerstub.server import truncation_line
from brokerstub.zookeeper import RegistrationLostError, end_when_unregistered
from controller.api.ports import term_of
from controller.api.v1.rpc import proposals_of
from controller.base.config import BrokerConfig, Limits
from controller.base.tasks import run_apart
from controller.core.codes import Code
from controller.core.events import AlterPartitionAsked, DrainAsked, Event
from controller.core.project.lines import Line
from controller.loop.inbox import BusyError, IsrReply, NotControllerError, Reply, ShutdownReply
from controller.seat.claim import Claim, KnownEpochs, release
from controller.seat.guard import TermGuard
from controller.tell.dialects.http import HttpDialect
from controller.tell.outbox import Outboxes
from controller.term.controller import Handle
from controller.term.daemon import Daemon
from controller.term.parts import OnAnswer, TermParts
from controller.term.term import first_cause
from controller.wire import bodies
from controller.wire.signing import Signer
from controller.zookeeper.layout import ensure_cluster_id, ensure_paths
from controller.zookeeper.port import SessionLostError, ZooKeeperError
from tests.faults.simulate.client import SimClient
from tests.faults.simulate.delays import LateMeters
from tests.faults.simulate.loop import Process
from tests.faults.simulate.machine import disk_keeps, wall_clock_off_ms
from tests.faults.simulate.network import SimHttp
from tests.faults.simulate.records import FETCH_PATH, PRODUCE_PATH

if TYPE_CHECKING:
    from tests.faults.simulate.cluster import SimCluster

LIMITS = Limits(rpc_timeout_ms=2_000, request_deadline_ms=5_000)
#: a step is one transaction, or has to be several: each life of a process draws its own
WRITES_PER_TRANSACTION = (LIMITS.writes_per_transaction, 4)
SESSION_TIMEOUT_MS = 4_000


class SimJournal:
    """Keeps lines as they are accepted: the lines that a process wrote before it died stay. Lines carry the
    simulation's time, not the process's own wall clock, because rules compare them with the observations of others."""

    lines_lost = lines_lost_lately = 0

    def __init__(self, lines: list[Line], now_ms: Callable[[], int]) -> None:
        self._lines = lines
        self._now_ms = now_ms

    def accept(self, lines: Sequence[Line]) -> None:
        self._lines.extend(replace(line, at_ms=self._now_ms()) for line in lines)


class Member:
    """One life of one broker process, until it is killed or stopped."""

    def __init__(self, cluster: SimCluster, broker_id: int, life: int, directory: Path) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.name = f"b{broker_id}:80"
        self.process = Process(self.name, cluster.loop)
        own_seed = f"{cluster.seed} broker {broker_id} life {life}"
        self.random = Random(own_seed)
        self.limits = replace(LIMITS, writes_per_transaction=Random(f"{own_seed} cut").choice(WRITES_PER_TRANSACTION))
        self.journal = SimJournal(cluster.lines, lambda: cluster.zookeeper.now_ms)
        self.handle = Handle(self.journal, LateMeters(broker_id, cluster))  # type: ignore[arg-type]
        self.zk: SimClient | None = None
        self.broker: Broker | None = None
        self.epochs = KnownEpochs(lambda: 0 if self.broker is None else self.broker.controller_epoch)
        self.sessions: set[int] = set()
        records = cluster.records
        clients = "" if records is None else f",PLAINTEXT://b{broker_id}:9092"
        properties: dict[str, Any] = {} if records is None else records.properties
        self.config = BrokerConfig(
            broker_id=broker_id,
            zookeeper_connect="simulated",
            log_dirs=str(directory),
            listeners=f"HTTP://{self.name}{clients}",
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            replica_lag_time_max_ms=3_000,
            replica_fetch_wait_max_ms=1_000,
            leader_imbalance_check_interval_seconds=30,
            controlled_shutdown_retry_backoff_ms=500,
            controller_socket_timeout_ms=3_000,
            auto_leader_rebalance_enable=cluster.balances,
            **properties,
        )
        self._http = SimHttp(cluster.network, self.process)
        self._signer = Signer()
        self.task = self.process.start(self.live())
        self.task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.process.is_dead:
            self.cluster.bugs.append(f"broker {self.broker_id} ended: {error!r} {getattr(error, 'exceptions', '')}")
            # a process closes its session, for whatever reason it ends
            if self.zk is not None and self.zk.is_connected:
                self.cluster.zookeeper.expire(self.zk.session_id)
            self.process.kill()
            self.cluster.ended(self)

    def _wall_ms(self) -> int:
        """The time of day as this machine has it."""
        now_ms = self.cluster.zookeeper.now_ms
        off_ms = 0 if self.cluster.is_healed else wall_clock_off_ms(self.cluster.seed, self.broker_id, now_ms)
        return now_ms + off_ms

    # ------------------------------------------------------------------ as brokerstub.runtime does

    async def live(self) -> None:
        zk = self._next_session()
        while True:
            try:
                await ensure_paths(zk)
                await ensure_feature(zk)
                cluster = await cluster_id(zk, self.random)
                break
            except SessionLostError:
                zk = self._next_session()
        loop = asyncio.get_running_loop()
        records = self.cluster.records
        disks: dict[str, Any] = {} if records is None else {"open_disk": lambda _: records.disk(self.broker_id)}
        self.broker = broker = Broker(
            self.config,
            cluster,
            self._http,
            clock_ms=lambda: int(loop.time() * 1000),
            wall_clock_ms=self._wall_ms,
            entropy=self.random,
            limits=LIMITS,
            **disks,
        )
        broker.on_lost = self._on_lost
        self.cluster.network.listen(self.name, self.process, self._serve)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(broker.run())
                group.create_task(self._live_on(zk, cluster, broker))
        finally:
            broker.close()

    def _on_lost(self, lost: LostRecords) -> None:
        assert self.broker is not None
        self.journal.accept([truncation_line(self.broker, lost, self._wall_ms())])

    def _next_session(self) -> SimClient:
        self.zk = self.cluster.new_session(self)
        self.sessions.add(self.zk.session_id)
        return self.zk

    async def _live_on(self, zk: SimClient, cluster: str, broker: Broker) -> None:
        while True:
            try:
                await self._live_registered(zk, cluster, broker)
            except SessionLostError:
                await self.cluster.reachable(self)
                zk = self._next_session()
            except RegistrationLostError:
                continue

    async def _live_registered(self, zk: SimClient, cluster: str, broker: Broker) -> None:
        broker_epoch = await register(
            zk,
            self.broker_id,
            lambda: registration_for(self.config, self._wall_ms()),
            earlier_session_ids=self.sessions | self.cluster.earlier_sessions(self.broker_id),
        )
        await ensure_cluster_id(zk, cluster)
        await ensure_feature(zk)
        broker.begin(broker_epoch, zk)
        daemon = Daemon(zk, self.broker_id, self._parts(cluster, zk))

        async def act() -> None:
            async with asyncio.TaskGroup() as group:
                self.handle.open_to(daemon)
                group.create_task(daemon.run())
                group.create_task(end_when_unregistered(zk, self.broker_id))

        end: BaseException | None = None
        try:
            await run_apart(act())
        except* (SessionLostError, RegistrationLostError) as lost:
            end = first_cause(lost)  # raised below, as in `Runtime`
        finally:
            self.handle.open_to(None)
        if end is not None:
            raise end

    def _parts(self, cluster: str, zk: SimClient) -> TermParts:
        loop, config = asyncio.get_running_loop(), self.config
        balance_s = config.leader_imbalance_check_interval_seconds if config.auto_leader_rebalance_enable else None
        return TermParts(
            cluster_id=cluster,
            open_outboxes=lambda *given: self._open_outboxes(zk, *given),
            journal=self.journal,
            limits=self.limits,
            wall_ms=self._wall_ms,
            entropy=self.random,
            meters=self.handle.meters,
            epochs=self.epochs,
            balance_interval_s=balance_s,
            clock=loop.time,
        )

    def _open_outboxes(
        self,
        zk: SimClient,
        claim: Claim,
        guard: TermGuard,
        group: asyncio.TaskGroup,
        on_fenced: Callable[[str], None],
        on_answer: OnAnswer,
    ) -> Outboxes:
        loop = asyncio.get_running_loop()
        client = SimHttp(self.cluster.network, self.process, guard.check, lambda: loop.time() - zk.deadline)
        return Outboxes(
            group,
            HttpDialect(client, limits=LIMITS),  # type: ignore[arg-type]
            claim.broker_id,
            claim.controller_epoch,
            on_answer=on_answer,
            on_fenced=lambda: on_fenced("a broker obeys a later controller"),
            on_epoch=self.epochs.note,
            entropy=self.random,
            limits=LIMITS,
            clock=loop.time,
        )

    def stop(self) -> None:
        """A controlled shutdown, as SIGTERM begins it."""
        self.process.start(self._stop()).add_done_callback(self._on_end)

    async def _stop(self) -> None:
        broker = self.broker
        if broker is not None and broker.broker_epoch is not None:
            await hand_over(self._http, broker.incarnation, self.config, self._controller_now, self._signer)
            await self._within(2.0, self.handle.resign("shut down"))
        if self.zk is not None:
            await self._within(2.0, self._leave(self.zk))
        self.process.kill()
        self.cluster.ended(self)

    def _controller_now(self) -> Seat | None:
        """As `Runtime` looks it up."""
        assert self.broker is not None
        told = self.broker.metadata
        holder_id = told.own_broker_id if self.handle.is_active else told.controller_id
        address = told.address_of(holder_id)
        incarnation = self.broker.incarnation if self.handle.is_active else told.incarnation(holder_id)
        return None if address is None else Seat(incarnation, told.controller_epoch, address)

    async def _leave(self, zk: SimClient) -> None:
        self.task.cancel()
        try:
            await release(zk)
        except ZooKeeperError:
            self.cluster.note(f"broker {self.broker_id} keeps the seat until its session goes")
        await zk.close()

    async def _within(self, seconds: float, doing: Any) -> None:
        try:
            async with asyncio.timeout(seconds):
                await doing
        except TimeoutError:
            self.cluster.note(f"broker {self.broker_id} did not finish in time")

    # ------------------------------------------------------------------ as brokerstub.server and the API do

    async def ask(self, event: Event) -> Reply:
        return await term_of(self.handle).ask(event)

    async def _serve(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        assert self.broker is not None, "it listens only afterwards"
        if path in (PRODUCE_PATH, FETCH_PATH) and self.cluster.records is not None:
            return await self.cluster.records.serve(self, path, body)
        try:
            answer = await self._answer(self.broker, path, headers, body)
            return 200, answer if isinstance(answer, bytes) else bodies.encode(answer)
        except (NotReadyError, BusyError):
            return 503, b"{}"
        except msgspec.MsgspecError:
            return 400, b"{}"

    async def _answer(self, broker: Broker, path: str, headers: Mapping[str, str], body: bytes) -> object:
        match path:
            case bodies.LEADER_AND_ISR:
                return await self._lead(broker, _heads(headers), bodies.decode(body, bodies.StatesRequest))
            case bodies.UPDATE_METADATA:
                return await broker.on_update_metadata(
                    _heads(headers), bodies.decode(body, bodies.UndecodedStatesRequest)
                )
            case bodies.STOP_REPLICA:
                return await self._stop_replicas(
                    broker, _heads(headers), bodies.decode(body, bodies.StopReplicaRequest)
                )
            case bodies.DESCRIBE_TOPICS:
                return await broker.on_describe_topics(
                    _heads(headers), bodies.decode(body, bodies.DescribeTopicsRequest)
                )
            case bodies.FETCH:
                sender_id, sender_epoch = map(int, headers[bodies.SENDER].split(" "))
                fetched = await broker.on_fetch_records(
                    sender_id, sender_epoch, bodies.decode(body, bodies.FetchRequest)
                )
                return bodies.with_batches(*fetched) if fetched[0].records else fetched[0]
            case _:
                return await self._asked(path, headers, body)

    async def _lead(self, broker: Broker, heads: ControllerHeaders, request: bodies.StatesRequest) -> bodies.Answer:
        """A full list is obeyed in any case: a topic that was left out of it would be set aside."""
        disobeyed = {topic_id for broker_id, topic_id in self.cluster.disobeyed if broker_id == self.broker_id}
        kept = [] if request.full else [one for one in request.topics if one.topic_id in disobeyed]
        if not kept:
            return await broker.on_leader_and_isr(heads, request)
        others = [one for one in request.topics if one not in kept]
        answer = await broker.on_leader_and_isr(heads, replace(request, topics=others))
        code = Code.UNKNOWN_SERVER_ERROR
        refused = [bodies.Refusal(topic.topic_id, row.partition, code) for topic in kept for row in topic.partitions]
        return answer if answer.error_code else bodies.Answer(Code.NONE, [*answer.partitions, *refused])

    async def _stop_replicas(
        self, broker: Broker, heads: ControllerHeaders, request: bodies.StopReplicaRequest
    ) -> bodies.Answer:
        """While the disk refuses to delete, refuse all replicas of topics that are being deleted."""
        cluster, kept = self.cluster, list[bodies.TopicStops]()
        if not cluster.is_healed and disk_keeps(cluster.seed, self.broker_id, cluster.zookeeper.now_ms):
            kept = [one for one in request.topics if all(row.leader_epoch == TOPIC_DELETED for row in one.partitions)]
        others = [one for one in request.topics if one not in kept]
        answer = await broker.on_stop_replica(heads, bodies.StopReplicaRequest(others))
        code = Code.KAFKA_STORAGE_ERROR
        refused = [bodies.Refusal(topic.topic_id, stop.partition, code) for topic in kept for stop in topic.partitions]
        return answer if answer.error_code else bodies.Answer(Code.NONE, [*answer.partitions, *refused])

    async def _asked(self, path: str, headers: Mapping[str, str], body: bytes) -> object:
        sender_id, sender_epoch = map(int, headers[bodies.SENDER].split(" "))
        is_shutdown = path == bodies.CONTROLLED_SHUTDOWN
        kind: Any = bodies.ControlledShutdownAnswer if is_shutdown else bodies.AlterPartitionAnswer
        event: Event = DrainAsked(sender_id, sender_epoch, is_shutdown=True)
        if not is_shutdown:
            event = AlterPartitionAsked(
                sender_id, sender_epoch, proposals_of(bodies.decode(body, bodies.AlterPartitionRequest))
            )
        try:
            reply = await term_of(self.handle).ask(event)
        except NotControllerError:
            return kind(Code.NOT_CONTROLLER)
        if reply.is_unknown:
            raise BusyError(reply.detail)
        match reply:
            case IsrReply(topics=found) | ShutdownReply(remaining=found):
                return kind(reply.code, found)
            case _:
                return kind(reply.code)


def _heads(headers: Mapping[str, str]) -> ControllerHeaders:
    return ControllerHeaders(
        int(headers[bodies.CONTROLLER_ID]),
        int(headers[bodies.CONTROLLER_EPOCH]),
        int(headers[bodies.BROKER_EPOCH]),
        headers.get(bodies.EVENT_ID),
        int(headers.get(bodies.SEQUENCE, "0")),
    )
