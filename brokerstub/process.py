"""One broker process: what it is made of, and its life from the first session to SIGTERM.

For each session: save it, register under it, run the controller's daemon and the broker on it. A lost session ends all
of that and a new one starts it again; the process, its HTTP server and its replicas on disk go on.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from random import Random, SystemRandom

import structlog

from brokerstub.broker import Broker
from brokerstub.door import Door
from brokerstub.identity import DataDirectory, DirectoryLockedError
from brokerstub.registration import (
    DuplicateBrokerError,
    cluster_id,
    ensure_paths,
    register,
    registration_for,
)
from brokerstub.server import BrokerServer, serve
from brokerstub.zookeeper import RegistrationLostError, Sessions, end_when_unregistered
from controller import log as process_log
from controller.claim import Claim
from controller.config import LIMITS, BrokerConfig, ConfigError
from controller.daemon import Daemon
from controller.dialects.http import HttpDialect
from controller.guard import TermGuard
from controller.http import HttpClient
from controller.journal import Journal
from controller.outbox import Outboxes
from controller.term import Tools, first_cause
from controller.wire import Answer
from controller.zk import ZooKeeperClient
from controller.zk_model import SessionLostError, ZooKeeperError

log = structlog.get_logger()


def run_broker(config: BrokerConfig) -> int:
    """Run until SIGTERM or Ctrl-C; the exit code. What stops a start is one clear line."""
    process_log.configure(sys.stderr)
    exit_code = 1
    try:
        exit_code = asyncio.run(_run(config))
    except* (DirectoryLockedError, DuplicateBrokerError, ConfigError, ZooKeeperError, OSError) as errors:
        log.critical("broker.failed", broker_id=config.broker_id, reason=str(first_cause(errors)))
    return exit_code


async def _run(config: BrokerConfig) -> int:
    directory = DataDirectory(config.log_dirs)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    life = asyncio.create_task(Process(config, directory).live())
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((life, stop), return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            life.result()  # only an error ends a life by itself
        log.info("broker.stopping", broker_id=config.broker_id)
        return 0
    finally:
        stop.cancel()
        life.cancel()
        await asyncio.gather(life, stop, return_exceptions=True)
        directory.close()


class Process:
    """The parts of one process, put together."""

    def __init__(self, config: BrokerConfig, directory: DataDirectory) -> None:
        self._config = config
        self._directory = directory
        self._entropy = Random(SystemRandom().getrandbits(128))
        self._door = Door()
        self._journal = Journal(directory.path / "state-change.log")
        self._sessions = Sessions(config, directory)

    async def live(self) -> None:
        """From the first session on, until cancelled."""
        try:
            zk = await self._sessions.first()
            await ensure_paths(zk)
            cluster = await cluster_id(zk, self._entropy)
            http = HttpClient()
            broker = Broker(
                self._config, cluster, self._directory.path, http, clock_ms=_monotonic_ms, entropy=self._entropy
            )
            server = BrokerServer(broker, self._journal.accept, _wall_ms)
            runner = await serve(self._config, server, self._door)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(broker.run())
                    group.create_task(self._live_on(zk, cluster, broker))
            finally:
                await runner.cleanup()
                broker.close()
                await http.close()
        finally:
            await self._sessions.close()  # our registration and seat go at once
            await self._journal.close()

    async def _live_on(self, zk: ZooKeeperClient, cluster: str, broker: Broker) -> None:
        """Session after session."""
        while True:
            try:
                await self._live_registered(zk, cluster, broker)
            except SessionLostError as error:
                log.warning("session.ended", reason=str(error))
                zk = await self._sessions.next()
            except RegistrationLostError as error:
                log.warning("registration.ended", reason=str(error))

    async def _live_registered(self, zk: ZooKeeperClient, cluster: str, broker: Broker) -> None:
        """Register, then race for the seat as long as the registration stands."""
        broker_id = self._config.broker_id
        broker_epoch = await register(
            zk,
            broker_id,
            lambda: registration_for(self._config, _wall_ms()),
            earlier_session_ids=self._sessions.own_ids,
        )
        broker.begin(broker_epoch)
        tools = Tools(
            cluster_id=cluster,
            open_outboxes=self._open_outboxes,
            journal=self._journal,
            limits=LIMITS,
            now_ms=_wall_ms,
            entropy=self._entropy,
            unclean_default=self._config.unclean_leader_election_enable,
        )
        daemon = Daemon(zk, broker_id, tools)
        try:
            async with asyncio.TaskGroup() as group:
                self._door.open_to(daemon)
                group.create_task(daemon.run())
                group.create_task(end_when_unregistered(zk, broker_id))
        except* SessionLostError as lost:
            raise SessionLostError(str(lost.exceptions[0])) from None
        except* RegistrationLostError as lost:
            raise RegistrationLostError(str(lost.exceptions[0])) from None
        finally:
            self._door.open_to(None)

    def _open_outboxes(
        self, claim: Claim, guard: TermGuard, group: asyncio.TaskGroup, on_fenced: Callable[[str], None]
    ) -> Outboxes:
        client = HttpClient(guard.check)
        group.create_task(_close_at_end(client))
        return Outboxes(
            group,
            HttpDialect(client),
            claim.broker_id,
            claim.controller_epoch,
            on_answer=_note_refusals,
            on_fenced=lambda: on_fenced("a broker obeys a later controller"),
            entropy=self._entropy,
        )


async def _close_at_end(client: HttpClient) -> None:
    """The client lives as long as the term's group."""
    try:
        await asyncio.Event().wait()
    finally:
        await client.close()


def _note_refusals(broker_id: int, broker_epoch: int, path: str, answer: Answer) -> None:
    if answer.partitions:
        first = answer.partitions[0]
        log.warning(
            "request.refused", broker_id=broker_id, path=path, partitions=len(answer.partitions), code=first.error_code
        )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
