"""The lab's brokers: one process each, behind a proxy of its own to each ZooKeeper server and to each other broker.

Owns a broker's process, its proxies to ZooKeeper, and `server.properties` in its directory. It must never restart a
broker on its own, and it leaves the broker's data alone.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from brokerstub.faults import ClientFaults, read_faults, taken_from, write_faults
from brokerstub.lab.bodies import ProcessRow, State
from brokerstub.lab.child_process import Child, launched
from brokerstub.lab.peers import Peers
from brokerstub.lab.ports import is_free
from brokerstub.lab.settings import HOST, LabError, LabSettings
from brokerstub.lab.zk_proxy import ZooKeeperProxy
from controller.base.files import write_atomically
from controller.zookeeper.client import parse_connect

#: less than the process that ends a lab waits for it
STOP_TIMEOUT_MS = 30_000

#: a lab's brokers take half a second for work that has longer on a real broker
IMPATIENT_PROPERTIES = {
    "controlled.shutdown.retry.backoff.ms": 500,
    "controller.socket.timeout.ms": 3_000,
    "klamm.isr.notification.interval.ms": 250,
    "klamm.isr.notification.quiet.ms": 500,
    "klamm.isr.notification.delay.max.ms": 6_000,
}

_AFTERWARDS: dict[State, State] = {"running": "exited", "frozen": "exited", "stopping": "stopped"}


def servers_for(settings: LabSettings) -> tuple[list[tuple[str, int]], str]:
    """ZooKeeper's servers, and the chroot (with its slash; empty for none)."""
    try:
        return parse_connect(settings.connect_string)
    except ValueError as error:
        raise LabError(f"--zookeeper {error}") from None


class LabBroker:
    """One broker. A verb whose effect already holds changes nothing: verbs return whether they changed anything."""

    def __init__(self, broker_id: int, settings: LabSettings, peers: Peers) -> None:
        self.broker_id = broker_id
        self.port = settings.port_base + broker_id
        self.kafka_port = settings.kafka_port(broker_id)
        self.folder = settings.var / f"broker-{broker_id}"
        self._settings = settings
        servers, self._chroot = servers_for(settings)
        self._proxies = [ZooKeeperProxy(server) for server in servers]
        self._peers = peers
        self._child: Child | None = None
        self._end: asyncio.Task[None] | None = None  # of the child, until no way to it is open
        self._state: State = "stopped"  # the last thing done to it
        self._is_cut = False
        self._is_closed = False
        self._launching = asyncio.Lock()
        self._thawing: asyncio.TimerHandle | None = None
        self._troubles = 0  # that its clients have had so far

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def state(self) -> State:
        return self._state if self._is_running else _AFTERWARDS.get(self._state, self._state)

    @property
    def row(self) -> ProcessRow:
        return ProcessRow(
            f"broker-{self.broker_id}",
            self._child.pid if self._child is not None and self._is_running else None,
            self.state,
            self.url,
            self._child.exit_code if self._child is not None else None,
            self._is_cut,
            str(self._log_path),
            self._child.last_lines() if self._child is not None and self.state == "exited" else [],
            sorted(read_faults(self._faults_path).broken_dirs),
            self._peers.cut_from(self.broker_id),
            self._peers.mute_to(self.broker_id),
        )

    def check_port(self) -> None:
        """Both, if it serves Kafka's clients."""
        for port, choice in ((self.port, "--port-base"), (self.kafka_port, "--kafka-port-base, or --no-records")):
            if port is not None and not is_free(port):
                raise LabError(
                    f"port {port} on {HOST}, for broker {self.broker_id}, is in use: stop what listens there, or "
                    f"choose other ports ({choice})",
                    "PORT_IN_USE",
                )

    async def open(self) -> None:
        """Start the proxies; they stay for the life of the lab."""
        for proxy in self._proxies:
            await proxy.start()

    async def close(self) -> None:
        """Stop it, for good."""
        self._is_closed = True
        await self.stop()
        if self._end is not None:
            await self._end
        for proxy in self._proxies:
            await proxy.close()

    async def start(self) -> bool:
        async with self._launching:
            if self._is_running:
                if self._state != "running":
                    raise LabError(f"broker {self.broker_id} is {self._state}", "BROKER_NOT_AVAILABLE")
                return False
            if self._is_closed:
                raise LabError("the lab is ending", "BROKER_NOT_AVAILABLE")
            self.check_port()
            self._write_properties()
            self._suffer(clients=ClientFaults())
            words = self._settings.broker_command
            program = [sys.executable, "-m", "brokerstub"] if words is None else shlex.split(words)
            if self._end is not None:
                await self._end
            self._child = await launched([*program, "--config", str(self.folder / "server.properties")], self._log_path)
            self._end = asyncio.create_task(self._until_end(self._child))
            await self._peers.admit(self.broker_id)
            self._state = "running"
            return True

    async def stop(self) -> bool:
        """A controlled shutdown, and the end of it if that takes too long."""
        async with self._launching:
            child = self._child
        if child is None or not self._is_running:
            return False
        self.thaw()  # a frozen process would not notice
        self._state = "stopping"
        child.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
                await self._ended()
        except TimeoutError:
            await self.kill()
        return True

    async def kill(self) -> bool:
        if self._child is None or not self._is_running:
            return False
        self._state = "killed"
        self._child.signal(signal.SIGKILL)
        await self._ended()
        return True

    def freeze(self, for_ms: int | None = None) -> bool:
        child = self._running_child()
        self._forget_thawing()
        if for_ms is not None:
            self._thawing = asyncio.get_running_loop().call_later(for_ms / 1000, self.thaw)
        if self._state == "frozen":
            return for_ms is not None
        child.signal(signal.SIGSTOP)
        self._state = "frozen"
        return True

    def thaw(self) -> bool:
        self._forget_thawing()
        if self._child is None or self.state != "frozen":
            return False
        self._child.signal(signal.SIGCONT)
        self._state = "running"
        return True

    def cut(self, peer: int | None = None, *, one_way: bool = False) -> bool:
        """From ZooKeeper, or from another broker."""
        if peer is not None:
            return (self._peers.mute if one_way else self._peers.cut)(self.broker_id, peer)
        if self._is_cut:
            return False
        for proxy in self._proxies:
            proxy.cut()
        self._is_cut = True
        return True

    def heal(self, peer: int | None = None) -> bool:
        """Returns the way to another broker, or all of its ways."""
        if peer is not None:
            return self._peers.heal(self.broker_id, peer)
        has_changed = self._is_cut
        for proxy in self._proxies:
            proxy.heal()
        self._is_cut = False
        return self._peers.heal_all_of(self.broker_id) or has_changed

    def break_disk(self, index: int | None = None) -> bool:
        """A log directory of it fails, also one that does not run."""
        broken = read_faults(self._faults_path).broken_dirs
        good = [each for each in range(len(self._log_dirs)) if each not in broken]
        index = next(iter(good), None) if index is None else self._checked(index)
        return index is not None and self._suffer(broken_dirs=broken | {index})

    def mend_disk(self, index: int | None = None) -> bool:
        broken = read_faults(self._faults_path).broken_dirs
        return self._suffer(broken_dirs=broken - (broken if index is None else {self._checked(index)}))

    def hold(self, topic: str, partition: int) -> bool:
        """It does not fetch this partition."""
        return self._suffer(held=read_faults(self._faults_path).held | {(topic, partition)})

    def jump(self, ahead_ms: int) -> bool:
        """Its wall clock is so much ahead of the machine's from now on, or behind."""
        return self._suffer(clock_ahead_ms=ahead_ms)

    def trouble_clients(self, faults: ClientFaults) -> int:
        """Give Kafka's clients trouble with this broker, in place of earlier faults. It ends with `calm_clients` of the
        returned number, or with the broker's next start."""
        if self.kafka_port is None:
            raise LabError("its brokers keep no records, so they have no clients", "INVALID_REQUEST")
        self._troubles += 1
        self._suffer(clients=msgspec.structs.replace(faults, number=self._troubles))
        return self._troubles

    def calm_clients(self, number: int) -> bool:
        """Unless they have other trouble by now."""
        return number == self._troubles and self._suffer(clients=ClientFaults())

    @property
    def has_taken_faults(self) -> bool:
        """Returns whether its process suffers the ordered faults."""
        return taken_from(self._faults_path) == read_faults(self._faults_path)

    def release(self, topic: str, partition: int) -> bool:
        return self._suffer(held=read_faults(self._faults_path).held - {(topic, partition)})

    def _checked(self, index: int) -> int:
        if index not in range(len(self._log_dirs)):
            raise LabError(f"broker {self.broker_id} has log directories 0 to {len(self._log_dirs) - 1}, not {index}")
        return index

    def _suffer(self, **changed: Any) -> bool:
        """It watches the file."""
        before = read_faults(self._faults_path)
        faults = msgspec.structs.replace(before, **changed)
        if faults == before:
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        write_faults(self._faults_path, faults)
        return True

    @property
    def _faults_path(self) -> Path:
        return self.folder / "faults.json"

    @property
    def _log_dirs(self) -> list[Path]:
        return [self.folder, self.folder / "disk-1"]

    @property
    def _is_running(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    @property
    def _log_path(self) -> Path:
        return self.folder / "broker.log"

    def _running_child(self) -> Child:
        if self._child is None or self.state not in ("running", "frozen"):
            raise LabError(f"broker {self.broker_id} does not run: it is {self.state}", "BROKER_NOT_AVAILABLE")
        return self._child

    async def _until_end(self, child: Child) -> None:
        await child.wait()
        await self._peers.refuse(self.broker_id)

    async def _ended(self) -> None:
        assert self._end is not None
        await asyncio.shield(self._end)

    def _forget_thawing(self) -> None:
        if self._thawing is not None:
            self._thawing.cancel()
            self._thawing = None

    def _write_properties(self) -> None:
        properties: dict[str, object] = {
            "broker.id": self.broker_id,
            "listeners": f"HTTP://{HOST}:{self.port}"
            + ("" if self.kafka_port is None else f",PLAINTEXT://{HOST}:{self.kafka_port}"),
            "log.dirs": ",".join(map(str, self._log_dirs)),
            "zookeeper.connect": ",".join(proxy.address for proxy in self._proxies) + self._chroot,
            "zookeeper.session.timeout.ms": self._settings.session_timeout_ms,
            "klamm.faults.file": self._faults_path,
            "klamm.lab.url": f"http://{HOST}:{self._settings.port_base}",
            "klamm.report.file": self.folder.parent / "report" / "report.html",
            "klamm.lab.routes": ",".join(
                f"{address}={way}" for address, way in self._peers.routes_of(self.broker_id).items()
            ),
            **({} if (kept := self._settings.aggregates_file) is None else {"klamm.aggregates.file": kept}),
            **IMPATIENT_PROPERTIES,
            **self._settings.properties,
        }
        lines = ["# Written by the lab at each start of this broker; `klamm up --set key=value` changes it."]
        lines += [f"{key}={value}" for key, value in properties.items()]
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / "server.properties", ("\n".join(lines) + "\n").encode())
