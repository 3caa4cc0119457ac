"""A dedicated controller: one process beside real brokers, which is none itself. Its sessions, servers and signals.

It registers nowhere: brokers learn of it from its requests. Its decisions, and the way it holds its seat, are those of
every process of ours.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import structlog
from aiohttp import web

from controller.api.middleware.connections import BoundedListener, Connections
from controller.api.ports import NotControllerError
from controller.api.serve.app import build_app
from controller.base import log as process_log
from controller.base.config import LIMITS, ConfigError
from controller.base.connection_slots import allow_files, limits_within
from controller.core import formats
from controller.core.project.znodes import CLUSTER_ID
from controller.kafka.cluster.acl_keeper import AclKeeper
from controller.kafka.cluster.foreign_cluster import BeliefView, ForeignCluster
from controller.kafka.cluster.presence import Presence
from controller.kafka.cluster.settings import DedicatedConfig
from controller.kafka.protocol.access import SASL, TLS
from controller.kafka.server.admin_apis import HOSTED, AdminApis, TopicApis
from controller.kafka.server.broker_apis import BrokerApis
from controller.kafka.server.gate import Gate
from controller.kafka.server.listener import API_VERSIONS, Api, KafkaServer
from controller.kafka.server.login import Login
from controller.kafka.server.own_configs import own_log_dirs, with_own_configs
from controller.kafka.server.relay import ACL_CHANGES, PASSED_ON, Relay
from controller.kafka.server.scram_users import ScramUsers
from controller.kafka.takeover import Preflight, TakeoverApi, preflight, vetoes_against
from controller.seat.claim import read_seat
from controller.tell.dialects import Dialect
from controller.tell.dialects.kafka import KafkaDialect, OwnAddress
from controller.term.controller import Controller
from controller.term.parts import TermParts
from controller.term.term import first_cause
from controller.wire import bodies
from controller.wire.bodies import HTTP_LISTENER
from controller.wire.signing import Signer
from controller.zookeeper.client import ZooKeeperClient, connect, parse_connect
from controller.zookeeper.layout import ensure_chroot
from controller.zookeeper.port import SessionLostError, ZooKeeperError

log = structlog.get_logger()


class Dedicated:
    """`live` once, until it is cancelled; `say_farewell` before that."""

    def __init__(self, config: DedicatedConfig) -> None:
        self._config = config
        config.directory.mkdir(parents=True, exist_ok=True)
        self._controller = Controller(config.directory, config.broker, self._open_dialect)
        self._handle = self._controller.handle
        scheme = "HTTPS" if config.is_https else HTTP_LISTENER
        self._presence = Presence(
            config.controller_id,
            f"{scheme}://{config.http.host}:{config.http.port}",
            config.broker.zookeeper_session_timeout_ms,
        )
        self._foreign_cluster = ForeignCluster(self._handle, lambda: self._zk)
        self._acls = None if config.authorizer is None else AclKeeper(config.authorizer)
        self._users = ScramUsers(lambda: self._zk)
        self._zk: ZooKeeperClient | None = None
        self._parts: TermParts | None = None

    async def live(self) -> None:
        zk = await self._connect()
        cluster_id = await _cluster_id(zk)
        parts = self._parts = self._parts_for(cluster_id)
        acls, passed_on = self._acls, PASSED_ON if self._acls is None else PASSED_ON | ACL_CHANGES
        relay = Relay(self._handle, LIMITS, self._controller.entropy, self._config.access, passed_on)
        own = {
            **BrokerApis(self._handle, LIMITS.partitions_per_rpc).table(),
            **AdminApis(self._handle).table(),
            **TopicApis(
                self._handle,
                partitions=self._config.broker.num_partitions,
                factor=self._config.broker.default_replication_factor,
            ).table(),
            **self._users.table(),
            **own_log_dirs(self._config.directory.absolute()),
            **HOSTED,
            API_VERSIONS: Api(0, 3, 3),
        }
        passer = with_own_configs(self._config.controller_id, relay.pass_on)
        server = KafkaServer(own, relay.versions, passer, limits_within(allow_files()), self._gate())
        runner = await self._serve_http(cluster_id)
        try:
            await self._listen(server)
            async with asyncio.TaskGroup() as group:
                group.create_task(relay.keep_versions())
                if acls is not None:
                    group.create_task(acls.keep())
                await self._live_sessions(zk, parts)
        finally:
            await server.close()
            await runner.cleanup()
            if self._zk is not None:
                await self._zk.close()
            await self._controller.close()

    async def say_farewell(self) -> None:
        """A term that ends by our own will says so, and leaves the seat at once."""
        await self._controller.say_farewell()
        if self._zk is not None:
            await self._controller.give_up_seat(self._zk)

    def _gate(self) -> Gate | None:
        settings = self._config.authorizer
        if self._acls is None or settings is None:
            return None
        acls, handle = self._acls, self._handle
        return Gate(acls.authorizer, lambda: handle.cluster, acls.changed, auto_creates=settings.auto_creates)

    async def _listen(self, server: KafkaServer) -> None:
        config = self._config
        sasl, users = config.access.sasl, self._users
        for protocol, address in config.kafka.items():
            login = None if protocol not in SASL or sasl is None else partial(Login, sasl.admission, users.record_of)
            tls = config.server_tls if protocol in TLS else None
            await server.start(address.host, address.port, tls=tls, login=login)

    async def _live_sessions(self, zk: ZooKeeperClient, parts: TermParts) -> None:
        while True:
            try:
                await self._live_session(zk, parts)
            except SessionLostError as error:
                log.warning("session.ended", reason=str(error))
                await zk.close()
                zk = await self._connect_again()

    async def _live_session(self, zk: ZooKeeperClient, parts: TermParts) -> None:
        self._zk = zk
        if self._acls is not None:
            self._acls.on_session(zk)
        await self._presence.announce(zk)
        with self._controller.on_session(zk, self._config.controller_id, parts) as daemon:
            await daemon.run()

    async def _connect(self, chroot: str | None = None) -> ZooKeeperClient:
        broker = self._config.broker
        servers, own_chroot = parse_connect(broker.zookeeper_connect)
        return await connect(
            servers,
            chroot=own_chroot if chroot is None else chroot,
            session_timeout_ms=broker.zookeeper_session_timeout_ms,
            connect_timeout_ms=broker.first_session_timeout_ms,
            auth=self._config.secrets.zookeeper_auth,
            owns=broker.zookeeper_set_acl,
            tls=self._config.zookeeper_tls,
        )

    async def _connect_again(self) -> ZooKeeperClient:
        while True:
            try:
                await self._ensure_chroot()
                return await self._connect()
            except ZooKeeperError as error:
                log.warning("session.delayed", reason=str(error))

    async def _ensure_chroot(self) -> None:
        """Makes the chroot again, which existed when this process began. A tool that removed it may have removed its
        parents."""
        chroot = parse_connect(self._config.broker.zookeeper_connect)[1]
        if chroot:
            root = await self._connect(chroot="")
            try:
                await ensure_chroot(root, chroot)
            finally:
                await root.close()

    async def _serve_http(self, cluster_id: str) -> web.AppRunner:
        config, address = self._config, self._config.http
        hosts = [f"{host}:{address.port}" for host in (address.host, "localhost")]
        view = BeliefView(self._handle, self._foreign_cluster, cluster_id, config.controller_id)
        app = build_app(
            view,
            self._handle,
            listeners=hosts,
            config=config.broker,
            secrets=config.secrets,
            own=self._presence.own,
            signer=Signer(config.secrets.rpc_secrets),
            peers=self._foreign_cluster,
        )
        app.add_routes(TakeoverApi(self._handle, self._check).routes())
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        tls = config.server_tls if config.is_https else None
        await BoundedListener(
            runner, Connections(limits_within(allow_files())), address.host, address.port, tls
        ).start()
        return runner

    async def _check(self) -> Preflight:
        if self._zk is None or self._parts is None:
            raise NotControllerError("no session with ZooKeeper now")
        config = self._config
        seat = await read_seat(self._zk)
        return await preflight(self._zk, config, seat, self._parts)

    def _parts_for(self, cluster_id: str) -> TermParts:
        return self._controller.parts_for(
            cluster_id,
            is_ours=lambda registered: not bodies.speaks_http(registered.endpoints),
            is_dedicated=True,
            is_preferred=self._config.is_preferred,
            vetoes_against=lambda zk: vetoes_against(zk, self._config),
        )

    def _open_dialect(self, check: Callable[[], None]) -> tuple[Dialect, Callable[[], Awaitable[None]]]:
        config = self._config
        dialect = KafkaDialect(
            config.level,
            OwnAddress(config.controller_id, {key: (one.host, one.port) for key, one in config.kafka.items()}),
            access=config.access,
            check=check,
        )
        return dialect, dialect.close


def run_controller(config: DedicatedConfig) -> int:
    """Runs until SIGTERM or Ctrl-C, and returns the exit code. An obstacle to the start is one clear line."""
    process_log.configure(sys.stderr)
    exit_code = 1
    try:
        exit_code = asyncio.run(_run(config))
    except* (ConfigError, ZooKeeperError, OSError) as errors:
        log.critical("controller.failed", controller_id=config.controller_id, reason=str(first_cause(errors)))
    return exit_code


async def _run(config: DedicatedConfig) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    dedicated = Dedicated(config)
    async with asyncio.TaskGroup() as group:
        living = group.create_task(dedicated.live())
        await stopping.wait()
        await dedicated.say_farewell()
        living.cancel()
    return 0


async def _cluster_id(zk: ZooKeeperClient) -> str:
    node = await zk.get(CLUSTER_ID)
    if node is None:
        raise ConfigError("no Kafka broker was ever here: there is no /cluster/id (is the chroot right?)")
    return formats.decode(node.data, formats.ClusterIdZnode).id
