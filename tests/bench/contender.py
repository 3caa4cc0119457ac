"""A controller to be measured: a process of its own that obeys lines, `start` to race for the seat, `stop` to go.

`settle` is answered when it has nothing left to do. The process ends with its input, so none is left behind. It stays
between two rounds, with its code warmed up.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from brokerstub.lab.java import find_java
from tests.bench.acks import within

HERE = Path(__file__).parent
ORDER_TIMEOUT_S = 300
#: of a process's clocks the one that runs while it is run; `clock_getcpuclockid`(3) makes the same of a pid
CPU_CLOCK_OF_PROCESS = 2
OURS = "klamm"
#: Klamm again, telling the endpoints in Kafka's own protocol, as Kafka's controller does
OURS_AS_KAFKA = "klamm, kafka's protocol"
#: ours of another commit
EARLIER = "earlier"
KAFKA = "kafka"
#: the heap that kafka-run-class.sh gives a broker, twice
KAFKA_OPTIONS = ["-server", "-Xmx2G", "-Xms2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
KAFKA_OPTIONS += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]


class Made(NamedTuple):
    """How a contender is started; `root` has the code that it runs."""

    name: str
    command: list[str]
    log: Path
    root: Path | None = None


#: of ZooKeeper's port and the folder for logs
Maker = Callable[[int, Path], Made]


class ContenderEndedError(Exception):
    """A controller process ended while it was measured; the message says where its log is."""


class Contender:
    """One controller process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        #: before it was first controller: the next term takes up the leftovers of this one
        self.fresh_bytes = 0
        self.log = log

    @property
    def is_ours(self) -> bool:
        return self.name != KAFKA

    async def order(self, line: str) -> str:
        """Say a line, and return the line that it is answered with."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        async with within(ORDER_TIMEOUT_S, lambda: f"{self.name} to obey {line!r}"):
            return await self.answer()

    async def answer(self) -> str:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise ContenderEndedError(f"{self.name} has ended; {self.log} says why")
        return line.decode().rstrip("\n")

    def cpu_s(self) -> float:
        """User and system time of the process so far, of all its threads (Linux)."""
        if self.process.returncode is not None:
            raise ContenderEndedError(f"{self.name} has ended; {self.log} says why")
        return time.clock_gettime(~self.process.pid << 3 | CPU_CLOCK_OF_PROCESS)

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def report(self) -> dict[str, Any]:
        """Klamm only: its own figures."""
        told: dict[str, Any] = json.loads(await self.order("report"))
        return told

    async def load_s(self) -> float:
        """Ours only: from the claim to a cluster in memory with its watches armed, in the present term."""
        phases = (await self.report())["phases_ms"]
        return float(phases["loaded"] - phases["claimed"]) / 1_000

    def decided_s(self, kind: str) -> float:
        """Ours only: how long the longest of the last decisions about such an event took; its log says."""
        settled = [line for line in self.log.read_text().splitlines() if f"kind={kind}" in line][-1]
        return float(settled.partition("decided_ms=")[2].split()[0]) / 1_000


@asynccontextmanager
async def launched(made: Made) -> AsyncIterator[Contender]:
    name, pipe = made.name, asyncio.subprocess.PIPE
    with made.log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *made.command, stdin=pipe, stdout=pipe, stderr=errors, limit=1 << 20, cwd=made.root
        )
    contender = Contender(name, process, made.log)
    try:
        async with within(ORDER_TIMEOUT_S, lambda: f"{name} to be ready"):
            while await contender.answer() != "ready":
                pass
        contender.fresh_bytes = contender.resident_bytes()
        yield contender
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(ORDER_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def ours(zookeeper_port: int, folder: Path) -> Made:
    return Made(OURS, _command_of_ours(zookeeper_port, folder, "http"), folder / "ours.log")


def ours_as_kafka(zookeeper_port: int, folder: Path) -> Made:
    return Made(OURS_AS_KAFKA, _command_of_ours(zookeeper_port, folder, "kafka"), folder / "ours-as-kafka.log")


def earlier(zookeeper_port: int, folder: Path, *, root: Path) -> Made:
    """Of a commit that is checked out at `root`."""
    (folder / EARLIER).mkdir()
    command = _command_of_ours(zookeeper_port, folder / EARLIER, "http")
    return Made(EARLIER, command, folder / EARLIER / "ours.log", root)


def _command_of_ours(zookeeper_port: int, folder: Path, dialect: str) -> list[str]:
    journal = folder / f"state-change-{dialect}.log"
    return [sys.executable, "-m", "tests.bench.ours", str(zookeeper_port), str(journal), dialect]


def kafka(zookeeper_port: int, folder: Path, *, jars: Path) -> Made:
    log = folder / "kafka.log"
    command = [find_java(), *KAFKA_OPTIONS, f"-Dlog4j.configuration=file:{HERE / 'kafka' / 'log4j.properties'}"]
    command += [f"-Dpeer.log={log}", "-cp", f"{jars}/*", str(HERE / "kafka" / "KafkaPeer.java")]
    return Made(KAFKA, [*command, f"127.0.0.1:{zookeeper_port}", str(folder)], log)
