"""The real ZooKeeper server, run from the jars in PySpark's package: one server, or an ensemble of them.

Owns a server's process and its whole data directory (`zoo.cfg`, `zookeeper.log`, ZooKeeper's own files). It must
never import pyspark, listen beyond loopback, signal a process it did not start, or leave one behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path

from brokerstub.lab.child_process import Child, launched
from brokerstub.lab.java import find_java
from brokerstub.lab.ports import HOST, free_port, is_free

POLL_INTERVAL_MS = 20
STOP_TIMEOUT_MS = 5_000
PROBE_TIMEOUT_MS = 1_000

_SERVER_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# The jars that the server and its log tools load, of some 250.
_JARS = ["zookeeper", "slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core", "metrics-core", "snappy-java"]
_JARS += ["commons-cli", "netty-buffer", "netty-codec-base", "netty-common", "netty-handler", "netty-resolver"]
_JARS += ["netty-transport"]
# Compiling little and collecting in one thread: up in 0.4 s, and it leaves the other core to the brokers.
_JVM_OPTIONS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError"]
_JVM_OPTIONS += ["-Djava.net.preferIPv4Stack=true", "-Dzookeeper.jmx.log4j.disable=true", "-Dlog4j2.disableJmx=true"]
_JVM_OPTIONS += ["-Dzookeeper.preAllocSize=4096"]  # KB; by default each log file takes 64 MB
_LOG4J2 = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p [%t] %c{1} - %m%n
rootLogger = info, console
"""


class ZooKeeperError(Exception):
    """No server can be had; the message gives the reason and a remedy."""


def java_command(main_class: str, *arguments: str, options: Iterable[str] = _JVM_OPTIONS) -> list[str]:
    """Returns the command line that runs a class out of ZooKeeper's jars."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperError("ZooKeeper's jars come with PySpark, which is not installed: pip install 'klamm[lab]'")
    folder = Path(spec.origin).parent / "jars"
    jars = [str(jar) for name in _JARS for jar in sorted(folder.glob(f"{name}*.jar"))]
    return [find_java(), *options, "-cp", os.pathsep.join(jars), main_class, *arguments]


@dataclass(eq=False)
class ZooKeeperServer:
    """One server; after it has stopped, by any cause, it can be started again on the same data."""

    data_dir: Path
    client_port: int
    _: KW_ONLY
    tick_time_ms: int = 500
    server_id: int | None = None
    peers: Mapping[int, tuple[int, int]] | None = None  # all, this one included: server id -> quorum, election port
    heap_mb: int = 512
    fsync: bool = True
    #: a write beyond a quota is refused, and not only logged
    enforces_quotas: bool = False
    #: further lines of its configuration
    settings: Mapping[str, str] = field(default_factory=dict)
    _child: Child | None = field(default=None, init=False, repr=False)
    _launching: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.client_port}"

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._child.pid if self._child is not None and self._child.exit_code is None else None

    async def start(self, timeout_ms: int = 20_000) -> None:
        """Start it and wait until it answers; in an ensemble that takes a majority."""
        if self.pid is not None:
            raise ZooKeeperError(f"ZooKeeper on port {self.client_port} runs already, as process {self.pid}")
        try:
            await self.launch()
            await self.serving(timeout_ms)
        except BaseException:
            self.kill()
            await self.wait()
            raise

    async def launch(self) -> None:
        """See that its process runs, without waiting until it serves: the servers of an ensemble need each other."""
        command = java_command(_SERVER_CLASS, str(self.data_dir / "zoo.cfg"), options=self._options())
        # of two callers that start it, the second would find its port taken and lose the first's
        async with self._launching:
            if self.pid is not None:
                return
            for port in (self.client_port, *(self.peers or {}).get(self.server_id or 0, ())):
                if not is_free(port):
                    raise ZooKeeperError(
                        f"ZooKeeper's port {port} is in use: stop what listens there, or choose another"
                        " (--zookeeper-port)"
                    )
            self._write_configuration()
            self._child = await launched(command, self.data_dir / "zookeeper.log")

    async def serving(self, timeout_ms: int = 20_000) -> None:
        """Wait until it answers clients."""
        deadline = time.monotonic() + timeout_ms / 1000
        while await self.mode() is None:
            if self.pid is None or time.monotonic() > deadline:
                what = "ended at start" if self.pid is None else f"does not serve after {timeout_ms} ms"
                raise ZooKeeperError(f"ZooKeeper on port {self.client_port} {what}{self._last_words()}")
            await asyncio.sleep(POLL_INTERVAL_MS / 1000)

    async def mode(self) -> str | None:
        """`standalone`, `leader` or `follower`; None when it does not serve."""
        answer = await self.ask("srvr")
        return next((line[6:] for line in answer.splitlines() if line.startswith("Mode: ")), None)

    async def ask(self, four_letter_word: str) -> str:
        """Returns the answer to `srvr`, `ruok`, `stat` or `mntr`; empty when there is none."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
                reader, writer = await asyncio.open_connection(HOST, self.client_port)
                with contextlib.closing(writer):
                    writer.write(four_letter_word.encode())
                    return (await reader.read()).decode()
        except (OSError, TimeoutError):
            return ""

    async def stop(self) -> None:
        """Ask it to end, insist after a while, and wait; nothing to do when it does not run."""
        self.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
                await self.wait()
        except TimeoutError:
            self.kill()
            await self.wait()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a frozen process would not notice

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def wait(self) -> int | None:
        """Wait until the process has ended; its exit code, None if it was never started."""
        if self._child is None:
            return None
        await self._child.wait()
        return self._child.exit_code

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.signal(number)

    def _options(self) -> list[str]:
        return [
            *_JVM_OPTIONS,
            f"-Xmx{self.heap_mb}m",
            f"-Dzookeeper.forceSync={'yes' if self.fsync else 'no'}",
            f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}",
        ]

    def _write_configuration(self) -> None:
        """`zoo.cfg` and its neighbours. Nothing is purged: the transaction logs are the history that tests judge."""
        settings = {
            "dataDir": self.data_dir,
            "tickTime": self.tick_time_ms,
            "minSessionTimeout": min(1_000, 2 * self.tick_time_ms),
            "maxSessionTimeout": 60_000,
            "clientPort": self.client_port,
            "clientPortAddress": HOST,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,stat,mntr",
            "enforceQuota": str(self.enforces_quotas).lower(),
        }
        if self.peers:
            settings |= {"initLimit": 20, "syncLimit": 6, "quorumListenOnAllIPs": "false"}
            settings |= {f"server.{id_}": f"{HOST}:{quorum}:{vote}" for id_, (quorum, vote) in self.peers.items()}
        settings |= self.settings
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.data_dir / "log4j2.properties").write_text(_LOG4J2)
        if self.server_id is not None:
            (self.data_dir / "myid").write_text(f"{self.server_id}\n")

    def _last_words(self) -> str:
        if self._child is None:
            return ""
        return "\n".join([f"; the last lines of {self._child.log_path}:", *self._child.last_lines()])


class Ensemble:
    """Servers that vote; server ids count from 1."""

    def __init__(
        self,
        data_dir: Path,
        size: int = 3,
        *,
        tick_time_ms: int = 500,
        fsync: bool = True,
        enforces_quotas: bool = False,
    ) -> None:
        ports = [free_port() for _ in range(3 * size)]
        peers = {server_id: (ports.pop(), ports.pop()) for server_id in range(1, size + 1)}
        member = partial(
            ZooKeeperServer,
            tick_time_ms=tick_time_ms,
            peers=peers,
            heap_mb=256,
            fsync=fsync,
            enforces_quotas=enforces_quotas,
        )
        self.servers = [member(data_dir / str(id_), ports.pop(), server_id=id_) for id_ in peers]

    @property
    def connect_string(self) -> str:
        return ",".join(server.address for server in self.servers)

    async def start(self, timeout_ms: int = 30_000) -> None:
        """Start the servers that do not run and wait until all serve; when that fails, none is left running."""
        try:
            for server in self.servers:
                if server.pid is None:
                    await server.launch()
            for server in self.servers:
                await server.serving(timeout_ms)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            await server.stop()

    async def leader(self, timeout_ms: int = 20_000) -> ZooKeeperServer:
        """Returns the server that leads now; waits for an election that is under way."""
        deadline = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < deadline:
            for server in self.servers:
                if await server.mode() == "leader":
                    return server
            await asyncio.sleep(POLL_INTERVAL_MS / 1000)
        raise ZooKeeperError(f"no server of the ensemble leads after {timeout_ms} ms")
