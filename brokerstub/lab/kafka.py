"""Real Kafka brokers in ZooKeeper mode, run from Maven's jars: 3.9.1, the last line that has it, or older ones.

The module owns the jars, a broker's process and its directory, and Kafka's own tools. It must never listen beyond
loopback, or leave a process behind. `RealBroker` is such a broker for the lab's HTTP side: `klamm kill` and the
dashboard's buttons send it signals and start it. Cuts, broken disks and held replicas are faults of stub brokers only.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from signal import Signals
from typing import Final, NoReturn

from brokerstub.lab.bodies import ProcessRow, State
from brokerstub.lab.child_process import Child, launched
from brokerstub.lab.java import find_java
from brokerstub.lab.settings import LabError

HOST: Final = "127.0.0.1"
VERSION: Final = "3.9.1"
MAVEN_TIMEOUT_S: Final = 300
TOOL_TIMEOUT_S: Final = 90
STOP_TIMEOUT_S: Final = 30
POLL_S: Final = 0.05
#: the library that writes its log, in each version
_SLF4J: Final = ("org.slf4j", "slf4j-reload4j", "1.7.36")
_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true")
_LOG4J: Final = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.{stream}
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{{ISO8601}} %-5p %c{{1}} - %m%n
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.state.change.logger=INFO
"""


class KafkaError(Exception):
    """There is no Kafka to be had, or it failed; the message says why."""


async def jars(directory: Path, version: str = VERSION) -> Path:
    """Kafka's jars below `directory`. Its own tools come with the newest version."""
    if version != VERSION:
        return await fetched(directory, f"jars-{version}", [("org.apache.kafka", "kafka_2.13", version), _SLF4J])
    kafka = [("org.apache.kafka", name, version) for name in ("kafka_2.13", "kafka-tools")]
    return await fetched(directory, "jars", [*kafka, _SLF4J])


async def fetched(directory: Path, name: str, artifacts: Iterable[tuple[str, str, str]]) -> Path:
    """Returns a folder of these jars (group, name, version) and their dependencies; by Maven, once."""
    found = directory.resolve() / name  # absolute: Maven resolves a relative path against the pom
    done = found / ".done"
    if done.exists():
        return found
    if shutil.which("mvn") is None:
        raise KafkaError("Kafka's jars come by Maven, and there is no mvn: apt install maven, or brew install maven")
    directory.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    pom = directory / f"{found.name}.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>klamm</groupId>'
        f"<artifactId>kafka</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    code, output = await _run([*command, "-DincludeScope=runtime", f"-DoutputDirectory={found}"], MAVEN_TIMEOUT_S)
    if code != 0:
        raise KafkaError(f"Maven could not fetch {name}: {output[-2_000:]}")
    done.touch()
    return found


@dataclass(eq=False)
class KafkaBroker:
    """One broker; after it has ended, by any cause, it can be started again on the same data."""

    broker_id: int
    port: int
    zookeeper: str
    directory: Path
    jars: Path
    _: KW_ONLY
    protocol: str | None = None
    log_dirs: int = 1
    properties: dict[str, str] = field(default_factory=dict)
    session_timeout_ms: int = 4_000
    security: str = "PLAINTEXT"
    #: the log4j settings that replace ours
    log4j: str | None = None
    _child: Child | None = field(default=None, init=False, repr=False)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log_directories(self) -> Sequence[Path]:
        return [self.directory / f"data-{number}" for number in range(self.log_dirs)]

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._child.pid if self._child is not None and self._child.exit_code is None else None

    async def launch(self) -> None:
        """Start the process; `listening` waits for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "broker.id": str(self.broker_id),
            "listeners": f"{self.security}://{self.address}",
            "security.inter.broker.protocol": self.security,
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
            "log.dirs": ",".join(map(str, self.log_directories)),
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "log.index.size.max.bytes": "1048576",
            "controlled.shutdown.retry.backoff.ms": "500",
            "auto.leader.rebalance.enable": "false",
            "delete.topic.enable": "true",
            "log.segment.delete.delay.ms": "1000",
            **({} if self.protocol is None else {"inter.broker.protocol.version": self.protocol}),
            **self.properties,
        }
        configuration = self.directory / "server.properties"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.directory / "log4j.properties").write_text(self.log4j or _LOG4J.format(stream="out"))
        command = [*java_command(self.jars, self.directory / "log4j.properties", "320m"), "kafka.Kafka"]
        self._child = await launched([*command, str(configuration)], self.directory / "kafka.log")

    async def listening(self, timeout_s: float = 60) -> None:
        """Wait until its port answers."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, self.port)
                writer.close()
                return
            except OSError:
                if self.pid is None or loop.time() > give_up_at:
                    last = "" if self._child is None else "\n".join(self._child.last_lines())
                    raise KafkaError(f"broker {self.broker_id} does not listen:\n{last}") from None
            await asyncio.sleep(POLL_S)

    async def start(self) -> None:
        await self.launch()
        await self.listening()

    def send(self, number: Signals) -> None:
        if self._child is not None:
            self._child.signal(number)

    async def kill(self) -> None:
        """SIGKILL, and wait."""
        self.send(Signals.SIGKILL)
        await self.wait()

    async def stop(self) -> None:
        """Controlled shutdown; insists after a while."""
        self.send(Signals.SIGTERM)
        self.send(Signals.SIGCONT)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def wait(self) -> None:
        if self._child is not None:
            await self._child.wait()

    def log_text(self) -> str:
        path = self.directory / "kafka.log"
        return path.read_text(errors="replace") if path.exists() else ""


def java_command(found: Path, log4j: Path, heap: str) -> list[str]:
    return [find_java(), f"-Xmx{heap}", *_JVM, f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{found}/*"]


async def tool(
    found: Path, directory: Path, main_class: str, *arguments: str, within_s: float = TOOL_TIMEOUT_S
) -> tuple[int, str]:
    """Run one of Kafka's own tools, unchanged. Returns its exit code and its output."""
    log4j = directory / "tools-log4j.properties"
    log4j.write_text(_LOG4J.format(stream="err").replace("=INFO,", "=WARN,"))
    return await _run([*java_command(found, log4j, "128m"), main_class, *arguments], within_s)


async def _run(command: Iterable[str], timeout_s: float) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        output, _ = await process.communicate()
        raise KafkaError(f"no end after {timeout_s} s: {output.decode(errors='replace')[-2_000:]}") from None
    return process.returncode or 0, output.decode(errors="replace")


class RealBroker:
    """Keeps the interface `brokerstub.lab.server.Suffering`."""

    def __init__(self, kafka: KafkaBroker) -> None:
        self.kafka = kafka
        self._after: State = "stopped"
        self._is_frozen = False
        self._thawing: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self.kafka.pid is not None

    @property
    def row(self) -> ProcessRow:
        state: State = ("frozen" if self._is_frozen else "running") if self.is_running else self._after
        log = str(self.kafka.directory / "kafka.log")
        return ProcessRow(f"broker-{self.kafka.broker_id}", self.kafka.pid, state, self.kafka.address, log=log)

    async def start(self) -> bool:
        if self.is_running:
            return False
        await self.kafka.launch()
        self._after = "exited"  # unless it is said to be otherwise
        return True

    async def stop(self) -> bool:
        if not self.is_running:
            return False
        self._thawed()
        await self.kafka.stop()
        self._after = "stopped"
        return True

    async def kill(self) -> bool:
        if not self.is_running:
            return False
        self._thawed()
        await self.kafka.kill()
        self._after = "killed"
        return True

    def freeze(self, for_ms: int | None = None) -> bool:
        if not self.is_running:
            raise LabError(f"broker {self.kafka.broker_id} does not run: start it first", "NOT_RUNNING")
        was_frozen = self._is_frozen
        self._thawed()
        self.kafka.send(Signals.SIGSTOP)
        self._is_frozen = True
        if for_ms is not None:
            self._thawing = asyncio.get_running_loop().call_later(for_ms / 1000, self.thaw)
        return not was_frozen

    def thaw(self) -> bool:
        was_frozen = self._is_frozen
        self._thawed()
        if was_frozen:
            self.kafka.send(Signals.SIGCONT)
        return was_frozen

    def cut(self, peer: int | None = None, *, one_way: bool = False) -> bool:
        self._cannot()

    def heal(self, peer: int | None = None) -> bool:
        self._cannot()

    def break_disk(self, index: int | None = None) -> bool:
        self._cannot()

    def mend_disk(self, index: int | None = None) -> bool:
        self._cannot()

    def hold(self, topic: str, partition: int) -> bool:
        self._cannot()

    def release(self, topic: str, partition: int) -> bool:
        self._cannot()

    def _cannot(self) -> NoReturn:
        raise LabError("a real broker can be killed, stopped, started, frozen and thawed here, no more", "NOT_POSSIBLE")

    def _thawed(self) -> None:
        self._is_frozen = False
        if self._thawing is not None:
            self._thawing.cancel()
            self._thawing = None
