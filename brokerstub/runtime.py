"""The parts of one broker, and its life: from its first session with ZooKeeper to its controlled shutdown.

For each session: save it, register under it, run the controller's daemon and the broker on it. A lost session ends all
of that and a new one starts it again; the process, its HTTP server and its replicas on disk go on.

In a controlled shutdown the broker asks the active controller to move its leaderships away. It asks until no movable
leadership remains, a few times, and then stops anyway: a shutdown is never prevented. Before each attempt it looks the
controller up anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from brokerstub.broker import Broker
from brokerstub.clients.apis import ClientListeners
from brokerstub.clients.writing import ProducerIdBlocks
from brokerstub.faults import NO_FAULTS, read_faults
from brokerstub.fetch import Poster
from brokerstub.identity import DataDirectory, broker_id_of, check_cluster, read_meta_properties, write_meta_properties
from brokerstub.registration import cluster_id, ensure_feature, generated_broker_id, register, registration_for
from brokerstub.server import BrokerServer, serve
from brokerstub.zookeeper import RegistrationLostError, Sessions, end_when_unregistered
from controller.base.clock import wall_ms
from controller.base.config import BrokerConfig, ConfigError
from controller.base.tasks import run_apart
from controller.core.codes import Code
from controller.kafka.protocol.access import Admission
from controller.kafka.server.login import Login
from controller.kafka.server.scram_users import ScramUsers
from controller.security.secrets import NO_SECRETS, Secrets
from controller.security.tls import client_context_for
from controller.tell.dialects import Dialect
from controller.tell.dialects.http import HttpDialect
from controller.term.controller import Controller
from controller.term.term import first_cause
from controller.wire import bodies
from controller.wire.bodies import ControlledShutdownAnswer
from controller.wire.client import ExchangeError, HttpClient
from controller.wire.signing import Incarnation, Signer
from controller.zookeeper.client import ZooKeeperClient
from controller.zookeeper.layout import ensure_cluster_id, ensure_paths
from controller.zookeeper.port import SessionLostError

log = structlog.get_logger()


class Seat(NamedTuple):
    """The active controller, as far as it is known."""

    incarnation: Incarnation
    controller_epoch: int
    address: str


async def hand_over(
    http: Poster,
    own: Incarnation,
    config: BrokerConfig,
    controller_now: Callable[[], Seat | None],
    signer: Signer,
) -> bool:
    """Returns whether the controller said that nothing remains."""
    timeout_ms = config.controller_socket_timeout_ms
    reason = ""
    for attempt in range(config.controlled_shutdown_max_retries):
        if attempt:
            log.info("shutdown.delayed", broker_id=own.broker_id, reason=reason)
            await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1_000)
        controller = controller_now()
        if controller is None:
            reason = "no controller is known"
            continue
        address, url = controller.address, controller.address + bodies.CONTROLLED_SHUTDOWN
        epoch = {bodies.CONTROLLER_EPOCH: str(controller.controller_epoch)}
        headers = signer.headers_for("POST", url, b"{}", sender=own, receiver=controller.incarnation, more=epoch)
        try:
            status, body = await http.post(url, b"{}", headers, timeout_ms)
            reason = _obstacle_in(status, body)
        except (ExchangeError, msgspec.MsgspecError) as error:
            reason = f"{address}: {error}"
        if not reason:
            log.info("shutdown.granted", broker_id=own.broker_id, attempts=attempt + 1)
            return True
    log.warning("shutdown.uncontrolled", broker_id=own.broker_id, reason=reason)
    return False


def _obstacle_in(status: int, body: bytes) -> str:
    """Why the broker should not stop yet; empty when it may."""
    if status != 200:
        return f"the controller answered {status}"
    answer = bodies.decode(body, ControlledShutdownAnswer)
    if answer.error_code != Code.NONE:
        return f"the controller answered with code {answer.error_code}"
    if answer.remaining:
        first = answer.remaining[0]
        return f"{len(answer.remaining)} partitions are still led here, {first.topic}-{first.partition} among them"
    return ""


class Runtime:
    """`live` once, until it is cancelled; `hand_over` before that."""

    def __init__(
        self,
        config: BrokerConfig,
        directory: DataDirectory,
        secrets: Secrets = NO_SECRETS,
        admission: Admission | None = None,
    ) -> None:
        self._secrets = secrets
        self._admission = admission
        self._signer = Signer(secrets.rpc_secrets)
        self._faults = NO_FAULTS if config.klamm_faults_file is None else read_faults(Path(config.klamm_faults_file))
        self._log_directories = [
            path for index, path in enumerate(config.log_directories) if index not in self._faults.broken_dirs
        ]
        self._metas = read_meta_properties(self._log_directories)
        broker_id = broker_id_of(self._metas, config.broker_id)
        if broker_id is None and not config.broker_id_generation_enable:
            raise ConfigError("property broker.id: give one, since broker.id.generation.enable is false")
        self.config = msgspec.structs.replace(config, broker_id=-1 if broker_id is None else broker_id)
        self._controller = Controller(
            directory.path,
            config,
            self._open_dialect,
            obeyed_epoch=lambda: 0 if self._broker is None else self._broker.controller_epoch,
        )
        self._handle = self._controller.handle
        self._sessions = Sessions(config, directory, secrets.zookeeper_auth)
        self._http: HttpClient | None = None
        self._broker: Broker | None = None
        self._zk: ZooKeeperClient | None = None

    async def live(self) -> None:
        """From the first session on, until cancelled."""
        try:
            zk, cluster = await self._begin()
            self._http = HttpClient(routes=self.config.routes, tls=client_context_for(self.config))
            self._broker = broker = Broker(
                self.config,
                cluster,
                self._http,
                clock_ms=_monotonic_ms,
                wall_clock_ms=wall_ms,
                entropy=self._controller.entropy,
                faults=self._faults,
                signer=self._signer,
            )
            server = BrokerServer(broker, self._controller.journal.accept, wall_ms)
            runner = await serve(self.config, server, self._handle, self._secrets, self._signer)
            clients = None
            if broker.logs is not None:
                is_guarded = bool(self._secrets.api_tokens)
                logins = None
                if self._admission is not None:
                    logins = partial(Login, self._admission, ScramUsers(lambda: self._zk).record_of)
                clients = ClientListeners(
                    self.config, broker, broker.logs, self._handle, is_guarded=is_guarded, logins=logins
                )
            try:
                if clients is not None:
                    await clients.start(ProducerIdBlocks(broker, self._http, self._signer))
                async with asyncio.TaskGroup() as group:
                    group.create_task(broker.run())
                    group.create_task(self._live_on(zk, cluster, broker))
            finally:
                if clients is not None:
                    await clients.close()
                await runner.cleanup()
                broker.close()
                await self._http.close()
        finally:
            await self._sessions.close()  # our registration goes at once
            await self._controller.close()

    async def hand_over(self) -> None:
        """Before the end: leaderships move to others, and a term says that it ends by our own will."""
        await self._shut_down_controlled()
        await self._controller.say_farewell()

    async def _shut_down_controlled(self) -> None:
        """If there is anything to hand over."""
        broker, http = self._broker, self._http
        if not self.config.controlled_shutdown_enable or broker is None or broker.broker_epoch is None or http is None:
            return
        metadata = broker.metadata

        def controller_now() -> Seat | None:
            """Ourselves, too: we know before anybody tells us."""
            holder_id = metadata.own_broker_id if self._handle.is_active else metadata.controller_id
            address = metadata.address_of(holder_id)
            incarnation = broker.incarnation if self._handle.is_active else metadata.incarnation(holder_id)
            return None if address is None else Seat(incarnation, metadata.controller_epoch, address)

        await hand_over(http, broker.incarnation, self.config, controller_now, self._signer)

    async def _begin(self) -> tuple[ZooKeeperClient, str]:
        """The first session, and the cluster that it has joined. ZooKeeper out of reach is an error; a session that is
        lost on the way is not."""
        open_session = self._sessions.first
        while True:
            try:
                zk = await open_session()
                return zk, await self._join(zk)
            except SessionLostError as error:
                log.warning("session.ended", reason=str(error))
                open_session = self._sessions.next

    async def _join(self, zk: ZooKeeperClient) -> str:
        """Makes all nodes that a cluster has before its first broker registers, and determines the broker's id. Returns
        the cluster's id."""
        await ensure_paths(zk)
        await ensure_feature(zk)
        cluster = await cluster_id(zk, self._controller.entropy)
        check_cluster(self._metas, cluster)
        if self.config.broker_id < 0:
            broker_id = await generated_broker_id(zk, self.config.reserved_broker_max_id)
            self.config = msgspec.structs.replace(self.config, broker_id=broker_id)
            log.info("broker_id.generated", broker_id=broker_id)
        write_meta_properties(self._log_directories, self.config.broker_id, cluster)
        return cluster

    async def _live_on(self, zk: ZooKeeperClient, cluster: str, broker: Broker) -> None:
        """Session after session."""
        while True:
            self._zk = zk
            try:
                await self._live_registered(zk, cluster, broker)
            except SessionLostError as error:
                log.warning("session.ended", reason=str(error))
                zk = await self._sessions.next()
            except RegistrationLostError as error:
                log.warning("registration.ended", reason=str(error))
            except asyncio.CancelledError:
                await self._controller.give_up_seat(zk)
                raise

    async def _live_registered(self, zk: ZooKeeperClient, cluster: str, broker: Broker) -> None:
        """Register, then race for the seat as long as the registration stands."""
        broker_id = self.config.broker_id
        broker_epoch = await register(
            zk,
            broker_id,
            lambda: registration_for(self.config, wall_ms()),
            earlier_session_ids=self._sessions.own_ids,
        )
        await ensure_cluster_id(zk, cluster)  # it went with its parents, perhaps
        await ensure_feature(zk)
        broker.begin(broker_epoch, zk)
        parts = self._controller.parts_for(
            cluster,
            is_ours=lambda broker: (
                bodies.address_of(broker.endpoints, self.config.inter_broker_listener_name) is not None
            ),
            yields_to_foreign_brokers=True,
        )

        async def act() -> None:
            with self._controller.on_session(zk, broker_id, parts) as daemon:
                async with asyncio.TaskGroup() as group:
                    group.create_task(daemon.run())
                    group.create_task(end_when_unregistered(zk, broker_id))

        end: BaseException | None = None
        try:
            await run_apart(act())
        except* (SessionLostError, RegistrationLostError) as lost:
            end = first_cause(lost)  # raised below: from in here, Python 3.11.2 would wrap it into a group once more
        if end is not None:
            raise end

    def _open_dialect(self, check: Callable[[], None]) -> tuple[Dialect, Callable[[], Awaitable[None]]]:
        client = HttpClient(check, routes=self.config.routes, tls=client_context_for(self.config))
        dialect = HttpDialect(
            client,
            self.config.inter_broker_listener_name,
            signer=self._signer,
            own_epoch=None if self._broker is None else self._broker.broker_epoch,
        )
        return dialect, client.close


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
