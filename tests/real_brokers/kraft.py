"""A real Kafka 4.3 cluster in KRaft mode: a controller of its own and brokers, run from Maven's jars.

The module owns the processes and their folders. It must never listen beyond loopback, or leave a process behind.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from signal import Signals
from typing import Final

from brokerstub.lab.child_process import Child, launched
from brokerstub.lab.kafka import HOST, STOP_TIMEOUT_S, KafkaError, fetched, java_command, tool
from brokerstub.lab.ports import free_port

VERSION: Final = "4.3.0"
CONTROLLER: Final = 100
METADATA: Final = "__cluster_metadata-0"
LISTENING_S: Final = 120
#: the settings of log4j 1, by the library that Kafka's own tools of 3.9 log with, too
_LOG4J: Final = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


async def jars(directory: Path) -> Path:
    """The jars of Kafka 4.3 below `directory`: brokers, controllers and tools."""
    kafka = [("org.apache.kafka", name, VERSION) for name in ("kafka_2.13", "kafka-tools")]
    return await fetched(directory, f"jars-{VERSION}", [*kafka, ("org.slf4j", "slf4j-reload4j", "1.7.36")])


def new_id() -> str:
    """As Kafka writes the ids of clusters and folders."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class Node:
    """A broker or the controller; after it has ended, by any cause, it can be started again on the same data."""

    def __init__(self, node_id: int, directory: Path, jars: Path, properties: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.port = free_port()
        self.directory = directory
        self.jars = jars
        self._properties = dict(properties)
        self._child: Child | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._child.pid if self._child is not None and self._child.exit_code is None else None

    def write(self, more: Mapping[str, str]) -> Path:
        """Writes the configuration."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j.properties").write_text(_LOG4J)
        said = {"node.id": str(self.node_id), "log.dirs": str(self.data), **self._properties, **more}
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in said.items()))
        return path

    async def launch(self) -> None:
        command = java_command(self.jars, self.directory / "log4j.properties", "320m")
        configuration = str(self.directory / "server.properties")
        self._child = await launched([*command, "kafka.Kafka", configuration], self.directory / "kafka.log")

    async def listening(self) -> None:
        """Waits until its port answers."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + LISTENING_S
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, self.port)
                writer.close()
                return
            except OSError:
                if self.pid is None or loop.time() > give_up_at:
                    last = "" if self._child is None else "\n".join(self._child.last_lines())
                    raise KafkaError(f"node {self.node_id} does not listen:\n{last}") from None
            await asyncio.sleep(0.05)

    async def start(self) -> None:
        await self.launch()
        await self.listening()

    async def kill(self) -> None:
        """SIGKILL, and waits."""
        if self._child is not None:
            self._child.signal(Signals.SIGKILL)
            await self._child.wait()

    async def stop(self) -> None:
        """Controlled shutdown."""
        if self._child is None:
            return
        self._child.signal(Signals.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._child.wait()
        except TimeoutError:
            await self.kill()


class KraftCluster:
    """The controller, and brokers by their ids."""

    def __init__(self, jars: Path, controller: Node, brokers: dict[int, Node]) -> None:
        self.jars = jars
        self.controller = controller
        self.brokers = brokers

    @property
    def record(self) -> Path:
        """The controller's metadata log."""
        return self.controller.data / METADATA


@asynccontextmanager
async def a_kraft_cluster(
    directory: Path, found: Path, broker_ids: Sequence[int], *, features: Mapping[str, int] = {}
) -> AsyncIterator[KraftCluster]:
    """Features as `kafka-storage format` takes them."""
    cluster_id = new_id()
    controller = Node(CONTROLLER, directory / "controller", found, {"process.roles": "controller"})
    shared = {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{CONTROLLER}@{controller.address}",
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        "auto.leader.rebalance.enable": "false",
        "replica.lag.time.max.ms": "30000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "2097152",
        "log.index.size.max.bytes": "1048576",
    }
    configuration = controller.write({"listeners": f"CONTROLLER://{controller.address}", **shared})
    asked = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
    to_format = ("format", "--cluster-id", cluster_id, "--config", str(configuration), *asked)
    code, said = await tool(found, directory, "kafka.tools.StorageTool", *to_format)
    if code != 0:
        raise KafkaError(f"the storage tool failed: {said[-2_000:]}")
    brokers = {one: Node(one, directory / f"broker-{one}", found, {"process.roles": "broker"}) for one in broker_ids}
    for broker in brokers.values():
        broker.write({"listeners": f"PLAINTEXT://{broker.address}", **shared})
        broker.data.mkdir()
        (broker.data / "meta.properties").write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={broker.node_id}\ndirectory.id={new_id()}\n"
        )
    try:
        for node in (controller, *brokers.values()):
            await node.launch()
        for node in (controller, *brokers.values()):
            await node.listening()
        yield KraftCluster(found, controller, brokers)
    finally:
        for node in (*brokers.values(), controller):
            await node.kill()
