"""A dedicated controller: one process beside real brokers, which is none itself. Its sessions, servers and signals.

It registers nowhere: brokers hear of it by what it tells them. What it decides and how it holds its seat is what every
process of ours does.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from functools import partial
from random import Random, SystemRandom
from typing import Final

import structlog
from aiohttp import web

from controller import log as process_log
from controller import wire
from controller.api.app import build_app
from controller.api.connections import Connections, Site
from controller.api.view import NotControllerError
from controller.claim import Claim, read_seat, release
from controller.clock import wall_ms
from controller.config import LIMITS, ConfigError
from controller.core import formats
from controller.core.znodes import CLUSTER_ID
from controller.daemon import Daemon
from controller.dialects.kafka import KafkaDialect, OwnAddress
from controller.dialects.kafka_access import SASL, TLS
from controller.door import Door
from controller.guard import TermGuard
from controller.journal import Journal
from controller.kafka.admin_apis import AdminApis
from controller.kafka.broker_apis import BrokerApis
from controller.kafka.check import Check, check
from controller.kafka.login import Login
from controller.kafka.lookout import Lookout
from controller.kafka.own_configs import own_log_dirs, with_own_configs
from controller.kafka.presence import Presence
from controller.kafka.reasons import reasons_against
from controller.kafka.relay import Relay
from controller.kafka.seat import SeatApi
from controller.kafka.server import API_VERSIONS, Api, KafkaServer
from controller.kafka.settings import DedicatedConfig
from controller.kafka.topic_apis import TopicApis
from controller.kafka.users import ScramUsers
from controller.kafka.view import BeliefView
from controller.metrics import Meters
from controller.outbox import Outboxes
from controller.signing import Signer
from controller.term import first_cause
from controller.tools import OnAnswer, Tools, close_at_end
from controller.wire import HTTP_LISTENER
from controller.zk import ZooKeeperClient, connect, parse_connect
from controller.zk_model import SessionLostError, ZooKeeperError

FAREWELL_S: Final = 5.0

log = structlog.get_logger()


class Dedicated:
    """`live` once, until it is cancelled; `say_farewell` before that."""

    def __init__(self, config: DedicatedConfig) -> None:
        self._config = config
        self._entropy = Random(SystemRandom().getrandbits(128))
        config.directory.mkdir(parents=True, exist_ok=True)
        self._journal = Journal(config.directory / "state-change.log")
        self._door = Door(self._journal, Meters())
        scheme = "HTTPS" if config.is_https else HTTP_LISTENER
        self._presence = Presence(
            config.controller_id,
            f"{scheme}://{config.http.host}:{config.http.port}",
            config.broker.zookeeper_session_timeout_ms,
        )
        self._lookout = Lookout(self._door, lambda: self._zk)
        self._zk: ZooKeeperClient | None = None
        self._tools: Tools | None = None

    async def live(self) -> None:
        zk = await self._connect()
        cluster_id = await _cluster_id(zk)
        tools = self._tools = self._tools_for(cluster_id)
        relay = Relay(self._door, LIMITS, self._entropy, self._config.access)
        own = {
            **BrokerApis(self._door, LIMITS.partitions_per_rpc).table(),
            **AdminApis(self._door).table(),
            **TopicApis(
                self._door,
                partitions=self._config.broker.num_partitions,
                factor=self._config.broker.default_replication_factor,
            ).table(),
            **own_log_dirs(self._config.directory.absolute()),
            API_VERSIONS: Api(0, 3, 3),
        }
        passer = with_own_configs(self._config.controller_id, relay.pass_on)
        server = KafkaServer(own, relay.versions, passer, LIMITS)
        runner = await self._serve_http(cluster_id)
        try:
            await self._listen(server)
            async with asyncio.TaskGroup() as group:
                group.create_task(relay.keep_versions())
                await self._live_sessions(zk, tools)
        finally:
            await server.close()
            await runner.cleanup()
            if self._zk is not None:
                await self._zk.close()
            await self._journal.close()

    async def say_farewell(self) -> None:
        """A term that ends by our own will says so, and leaves the seat at once."""
        zk = self._zk
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._door.resign("shut down")
                if zk is not None and await release(zk):
                    log.info("seat.released")
        except (ZooKeeperError, TimeoutError) as error:
            log.warning("seat.kept", reason=str(error) or "no answer")  # it goes with the session

    async def _listen(self, server: KafkaServer) -> None:
        config = self._config
        sasl, users = config.access.sasl, ScramUsers(lambda: self._zk)
        for protocol, address in config.kafka.items():
            login = None if protocol not in SASL or sasl is None else partial(Login, sasl, users.record_of)
            tls = config.server_tls if protocol in TLS else None
            await server.start(address.host, address.port, tls=tls, login=login)

    async def _live_sessions(self, zk: ZooKeeperClient, tools: Tools) -> None:
        while True:
            try:
                await self._live_session(zk, tools)
            except SessionLostError as error:
                log.warning("session.ended", reason=str(error))
                await zk.close()
                zk = await self._connect_again()

    async def _live_session(self, zk: ZooKeeperClient, tools: Tools) -> None:
        self._zk = zk
        daemon = Daemon(zk, self._config.controller_id, tools)
        await self._presence.announce(zk)
        self._door.open_to(daemon)
        try:
            await daemon.run()
        finally:
            self._door.open_to(None)

    async def _connect(self) -> ZooKeeperClient:
        broker = self._config.broker
        servers, chroot = parse_connect(broker.zookeeper_connect)
        return await connect(
            servers,
            chroot=chroot,
            session_timeout_ms=broker.zookeeper_session_timeout_ms,
            connect_timeout_ms=broker.first_session_timeout_ms,
            auth=self._config.secrets.zookeeper_auth,
            owns=broker.zookeeper_set_acl,
        )

    async def _connect_again(self) -> ZooKeeperClient:
        while True:
            try:
                return await self._connect()
            except ZooKeeperError as error:
                log.warning("session.delayed", reason=str(error))

    async def _serve_http(self, cluster_id: str) -> web.AppRunner:
        config, address = self._config, self._config.http
        hosts = [f"{host}:{address.port}" for host in (address.host, "localhost")]
        view = BeliefView(self._door, self._lookout, cluster_id, config.controller_id)
        app = build_app(
            view,
            self._door,
            listeners=hosts,
            config=config.broker,
            secrets=config.secrets,
            own=self._presence.own,
            signer=Signer(config.secrets.rpc_secrets),
            peers=self._lookout,
        )
        app.add_routes(SeatApi(self._door, self._check).routes())
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        tls = config.server_tls if config.is_https else None
        await Site(runner, Connections(), address.host, address.port, tls).start()
        return runner

    async def _check(self) -> Check:
        if self._zk is None or self._tools is None:
            raise NotControllerError("no session with ZooKeeper now")
        config = self._config
        seat = await read_seat(self._zk)
        return await check(self._zk, config, seat, self._tools)

    def _tools_for(self, cluster_id: str) -> Tools:
        broker = self._config.broker
        interval_s = broker.leader_imbalance_check_interval_seconds
        return Tools(
            cluster_id=cluster_id,
            open_outboxes=self._open_outboxes,
            journal=self._journal,
            limits=LIMITS,
            now_ms=wall_ms,
            entropy=self._entropy,
            meters=self._door.meters,
            seat_changes=self._door.seat_changes,
            is_ours=lambda registered: not wire.speaks_http(registered.endpoints),
            is_dedicated=True,
            is_preferred=self._config.is_preferred,
            reasons_against=lambda zk: reasons_against(zk, self._config),
            unclean_default=broker.unclean_leader_election_enable,
            delete_enabled=broker.delete_topic_enable,
            imbalance_percentage=broker.leader_imbalance_per_broker_percentage,
            balance_interval_s=interval_s if broker.auto_leader_rebalance_enable else None,
        )

    def _open_outboxes(
        self,
        claim: Claim,
        guard: TermGuard,
        group: asyncio.TaskGroup,
        on_fenced: Callable[[str], None],
        on_answer: OnAnswer,
    ) -> Outboxes:
        config = self._config
        dialect = KafkaDialect(
            config.level,
            OwnAddress(config.controller_id, {key: (one.host, one.port) for key, one in config.kafka.items()}),
            access=config.access,
            check=guard.check,
        )
        group.create_task(close_at_end(dialect.close))
        return Outboxes(
            group,
            dialect,
            claim.broker_id,
            claim.controller_epoch,
            on_answer=on_answer,
            on_fenced=lambda: on_fenced("a broker obeys a later controller"),
            entropy=self._entropy,
        )


def run_controller(config: DedicatedConfig) -> int:
    """Run until SIGTERM or Ctrl-C; the exit code. What stops a start is one clear line."""
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
