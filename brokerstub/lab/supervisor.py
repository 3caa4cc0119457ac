"""The lab's supervisor: starts ZooKeeper and the brokers, serves orders about the brokers, and ends all processes.

It owns the order in which things start and end, `lab.json`, and the streaming job: `klamm logs stream` over the
brokers' logs, whose sums the brokers serve. It must never let a child outlive it, nor start one again on its own: a
broker or a job that ended is a fact to look at. Nothing of the cluster waits for the job or depends on it.
"""

from __future__ import annotations

import asyncio
import glob
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from brokerstub.lab.bodies import AGGREGATES, ProcessRow, State, Trouble, TroubleOrder
from brokerstub.lab.brokers import LabBroker, servers_for
from brokerstub.lab.child_process import Child, last_lines, launched
from brokerstub.lab.peers import Peers
from brokerstub.lab.server import serve
from brokerstub.lab.settings import HOST, LabError, LabFile, LabSettings, lab_secrets, sole_owner, write_lab_file
from brokerstub.lab.troubles import Troubles
from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.base.connection_slots import allow_files

#: it may be killed at any moment: a line that it had not kept yet is read again
STOP_TIMEOUT_MS = 5_000


class Aggregating:
    """One process, started once."""

    def __init__(self, var: Path) -> None:
        self._logs = f"{glob.escape(str(var))}/broker-*/state-change.log*"
        self._folder = var / "aggregates"
        self._child: Child | None = None
        self._is_ending = False

    @property
    def row(self) -> ProcessRow:
        child, state = self._child, self._state
        pid = child.pid if child is not None and state in ("running", "stopping") else None
        last_lines = child.last_lines() if child is not None and state == "exited" else []
        exit_code = None if child is None else child.exit_code
        return ProcessRow(AGGREGATES, pid, state, "-", exit_code, log=str(self._log), last_lines=last_lines)

    async def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sparkjobs", "logs", "stream", self._logs, "--out", str(self._folder)]
        self._child = await launched(command, self._log)

    async def stop(self) -> None:
        if self._child is None:
            return
        self._is_ending = True
        self._child.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
                await self._child.wait()
        except TimeoutError:
            self._child.signal(signal.SIGKILL)
            await self._child.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "aggregates.log"

    @property
    def _state(self) -> State:
        if self._child is None:
            return "stopped"
        if self._child.exit_code is None:
            return "stopping" if self._is_ending else "running"
        return "stopped" if self._is_ending else "exited"


REACH_TIMEOUT_MS = 3_000
TICK_TIME_MS = 500

log = structlog.get_logger()


class Supervisor:
    """One lab, from its start to its end."""

    def __init__(self, settings: LabSettings) -> None:
        self.settings = settings
        self.secrets = lab_secrets()
        self._peers = Peers(settings.ports)
        self.brokers = {number: LabBroker(number, settings, self._peers) for number in settings.ports}
        self.zookeeper = (
            ZooKeeperServer(settings.var / "zookeeper", settings.zookeeper_port, tick_time_ms=TICK_TIME_MS)
            if settings.zookeeper is None
            else None
        )
        self.aggregating = None if settings.aggregates_file is None else Aggregating(settings.var)
        self._troubles: Troubles | None = None  # while it serves
        self._running: asyncio.Task[None] | None = None
        self._is_ending = False
        self._has_zookeeper_served = False

    async def run(self) -> None:
        """Run until `end`. All processes started by then are stopped, the last first."""
        self._running = asyncio.current_task()
        assert self._running is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end)
        async with AsyncExitStack() as started:
            try:
                await self._start(started)
                await loop.create_future()
            except asyncio.CancelledError:
                if not self._is_ending:
                    raise
                self._running.uncancel()  # the rest is no longer about being cancelled
        log.info("lab.ended")

    def end(self) -> None:
        """Once is enough: a second signal would interrupt the stopping."""
        if self._running is not None and not self._is_ending:
            self._is_ending = True
            self._running.cancel()

    def rows(self) -> list[ProcessRow]:
        """Returns the supervisor, ZooKeeper, the brokers, and the process that keeps aggregates."""
        here = ProcessRow("supervisor", os.getpid(), "running", f"http://{HOST}:{self.settings.port_base}")
        rows = [here, self._zookeeper_row(), *(broker.row for broker in self.brokers.values())]
        return rows if self.aggregating is None else [*rows, self.aggregating.row]

    async def trouble(self, order: TroubleOrder) -> Trouble:
        """For Kafka's clients."""
        if self._troubles is None:
            raise LabError("the lab is still starting, or ending: try again", "BROKER_NOT_AVAILABLE")
        return await self._troubles.make(order)

    async def _start(self, started: AsyncExitStack) -> None:
        for broker in self.brokers.values():
            broker.check_port()
        await serve(self, self.settings.port_base, started)
        started.callback((self.settings.var / "lab.json").unlink, missing_ok=True)
        self._write_file()
        if self.zookeeper is not None:
            started.push_async_callback(self.zookeeper.stop)
            await self.zookeeper.start()
            self._has_zookeeper_served = True
            self._write_file()
        else:
            await _check_reachable(self.settings)
        log.info("zookeeper.found", address=self.settings.connect_string)
        started.push_async_callback(self._close_brokers)
        self._peers.open()
        for broker in self.brokers.values():
            await broker.open()
            await broker.start()
        self._troubles = Troubles(self.brokers)
        started.push_async_callback(self._troubles.close)
        log.info("brokers.launched", broker_ids=list(self.brokers))
        if self.aggregating is not None:
            started.push_async_callback(self.aggregating.stop)
            await self.aggregating.start()

    async def _close_brokers(self) -> None:
        async with asyncio.TaskGroup() as closing:
            for broker in self.brokers.values():
                closing.create_task(broker.close())
        await self._peers.close()

    def _zookeeper_row(self) -> ProcessRow:
        if self.zookeeper is None:
            return ProcessRow("zookeeper", None, "running", self.settings.connect_string)
        address, log_path = self.zookeeper.address, self.zookeeper.data_dir / "zookeeper.log"
        if self.zookeeper.pid is not None:
            return ProcessRow("zookeeper", self.zookeeper.pid, "running", address, log=str(log_path))
        if not self._has_zookeeper_served:
            return ProcessRow("zookeeper", None, "stopped", address, log=str(log_path))
        return ProcessRow("zookeeper", None, "exited", address, log=str(log_path), last_lines=last_lines(log_path))

    def _write_file(self) -> None:
        urls = {str(number): broker.url for number, broker in self.brokers.items()}
        pid = self.zookeeper.pid if self.zookeeper is not None else None
        address = self.settings.connect_string
        lab = LabFile(os.getpid(), self.settings.port_base, urls, address, pid, self.settings.bootstrap_servers)
        write_lab_file(self.settings.var, lab)


def run_lab(settings: LabSettings) -> None:
    """Run a lab in this process until it is told to end."""
    allow_files()  # many brokers have many ways between them
    with sole_owner(settings.var):
        (settings.var / "lab.json").unlink(missing_ok=True)  # of a supervisor that was killed
        asyncio.run(Supervisor(settings).run())


async def _check_reachable(settings: LabSettings) -> None:
    """One server that accepts a connection is enough: the brokers try them all."""
    reasons = []
    for host, port in servers_for(settings)[0]:
        try:
            async with asyncio.timeout(REACH_TIMEOUT_MS / 1000):
                _, writer = await asyncio.open_connection(host, port)
        except OSError as error:  # a time-out is one
            number = error.errno or 0
            reasons.append(f"{host}:{port} {os.strerror(number) if number > 0 else str(error) or 'no answer'}".lower())
        else:
            writer.transport.abort()
            return
    raise LabError(f"no ZooKeeper at {settings.connect_string}: {'; '.join(reasons)}", "ZOOKEEPER_UNREACHABLE")
