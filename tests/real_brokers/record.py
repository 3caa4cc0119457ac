"""Real clusters of older Kafka, recorded under faults: `.venv/bin/python -m tests.real_brokers.record 2.1.1 FOLDER`.

Three brokers on one ZooKeeper, two minutes: a broker and then the controller killed, frozen for longer than their
sessions, and stopped; a topic deleted. With `--play deletions` a minute: a topic deleted while a broker with replicas
is dead, and another while one stands still. It leaves in FOLDER the logs of each broker, every write of ZooKeeper, and
the times of the faults. `tests/data/kafka-older` and `kafka-3.9.1-deletions` were made by it; it judges nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from signal import Signals
from typing import Any, Final

from aiozk import ZKClient
from aiozk.exc import NoNode

from brokerstub.lab.kafka import HOST, KafkaBroker, fetched
from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from sparkjobs.records.zookeeper_files import Operation, history
from tests.faults.chaos.target_cluster import elapse

#: as Kafka's own, except its fetchers' complaints of an absent leader, thousands of times a second before 0.9
_LOG4J: Final = """\
log4j.rootLogger=INFO, server
log4j.logger.kafka.controller={level}, controller
log4j.additivity.kafka.controller=false
log4j.logger.state.change.logger={level}, state-change
log4j.additivity.state.change.logger=false
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.kafka.consumer.SimpleConsumer=ERROR
log4j.logger.kafka.server.ReplicaFetcherThread=FATAL
"""
_APPENDER: Final = """\
log4j.appender.{name}=org.apache.log4j.FileAppender
log4j.appender.{name}.File={folder}/{name}.log
log4j.appender.{name}.layout=org.apache.log4j.PatternLayout
log4j.appender.{name}.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
ROOT: Final = Path(__file__).parents[2]
LOGS: Final = ("server", "controller", "state-change")
#: libraries that old Kafka lacks on a Java of today, and a client of ZooKeeper that can look up a numeric address there
_BESIDES: Final = (
    ("org.slf4j", "slf4j-log4j12", "1.7.21"),
    ("log4j", "log4j", "1.2.17"),
    ("javax.xml.bind", "jaxb-api", "2.3.1"),
)
_ZOOKEEPER: Final = ("org.apache.zookeeper", "zookeeper", "3.4.10")
_BROKERS: Final = (1, 2, 3)
AWAY_S: Final = 8.0
#: where a broker must not lose its session for want of a processor, the longest that ZooKeeper allows
PATIENT_MS: Final = 10_000
CALM_S: Final = 2.0
POLL_S: Final = 0.2
TIMEOUT_S: Final = 90.0


def topics() -> dict[str, dict[str, list[int]]]:
    """Partitions and replicas: of three, of two, and of one."""
    sizes = {"orders": (6, 3), "pay_0.x": (6, 2), "single": (3, 1)}
    return {
        name: {str(number): [1 + (number + place) % 3 for place in range(replicas)] for number in range(partitions)}
        for name, (partitions, replicas) in sizes.items()
    }


class Recorder:
    """One recording."""

    def __init__(self, version: str, level: str, play: str, folder: Path, work: Path) -> None:
        self.version, self.level, self.folder, self.work = version, level, folder, work
        self.play, self.session_ms = {
            "faults": (self._faults, 4_000),
            "deletions": (self._deletions, PATIENT_MS),
        }[play]
        self.timeline: list[dict[str, Any]] = []
        self.topics = topics()
        self.zookeeper = ZooKeeperServer(work / "zookeeper", free_port())
        self.client = ZKClient(self.zookeeper.address)
        self.brokers: dict[int, KafkaBroker] = {}

    async def record(self, jars_folder: Path) -> None:
        await self.zookeeper.start()
        await self.client.start()
        found = await fetched(jars_folder, f"recorded-{self.version}", self._artifacts())
        self.brokers = {broker_id: self._broker(broker_id, found) for broker_id in _BROKERS}
        try:
            for broker in self.brokers.values():
                await broker.start()
            await self._until(self._all_there, "all are registered")
            await self._create_topics()
            await self._until(self._all_led, "everything is led")
            await self.play()
            self._note("end")
            for broker in self.brokers.values():
                await broker.stop()
        finally:
            for broker in self.brokers.values():
                if broker.pid is not None:
                    await broker.kill()
            await self.client.close()
            await self.zookeeper.stop()
        self._write()

    def _artifacts(self) -> list[tuple[str, str, str]]:
        numbers = tuple(map(int, self.version.split(".")))
        scala = "2.10" if numbers < (0, 8, 2) else "2.11" if numbers < (2, 4) else "2.13"
        client = [_ZOOKEEPER] if numbers < (2, 4) else []
        return [("org.apache.kafka", f"kafka_{scala}", self.version), *client, *_BESIDES]

    def _broker(self, broker_id: int, jars: Path) -> KafkaBroker:
        folder, port = self.folder / f"broker{broker_id}", free_port()
        folder.mkdir(parents=True, exist_ok=True)
        appenders = [_APPENDER.format(name=name, folder=folder) for name in LOGS]
        old = {"port": str(port), "host.name": HOST, "advertised.host.name": HOST}  # before there were listeners
        return KafkaBroker(
            broker_id,
            port,
            self.zookeeper.address,
            self.work / f"broker{broker_id}",
            jars,
            session_timeout_ms=self.session_ms,
            properties={
                **(old if self.version.startswith("0.8.") else {}),
                **{"controlled.shutdown.enable": "true", "log.cleaner.enable": "false"},
                **{"replica.lag.time.max.ms": "3000", "unclean.leader.election.enable": "false"},
            },
            log4j=_LOG4J.format(level=self.level) + "".join(appenders),
        )

    # ------------------------------------------------------------------ faults

    async def _faults(self) -> None:
        for how in (self._kill, self._freeze, self._stop):
            for is_controller in (False, True):
                await elapse(CALM_S)
                seat = await self._seat()
                await how(self.brokers[seat if is_controller else min({*_BROKERS} - {seat})])
                await self._until(self._all_there, "all are back")
                await self._until(self._all_led, "everything is led again")
        await elapse(CALM_S)
        if not self.version.startswith("0.8.0"):  # which could not delete
            await self._mark("pay_0.x")
            await self._is_deleted("pay_0.x")
            await elapse(CALM_S)

    async def _deletions(self) -> None:
        seat = await self._seat()
        away = self.brokers[min({*_BROKERS} - {seat})]
        await elapse(CALM_S)
        self._note("kill", broker=away.broker_id, controller=seat)
        await away.kill()
        await self._until(self._one_is_gone, "its session is over")
        await elapse(CALM_S)
        await self._mark("orders")
        await elapse(CALM_S)
        await self._start(away)
        await self._is_deleted("orders")
        await self._until(self._all_led, "everything is led again")
        await elapse(CALM_S)
        self._note("freeze", broker=away.broker_id, controller=seat)
        away.send(Signals.SIGSTOP)
        await self._mark("pay_0.x")  # it is told to, and its session ends before it can answer
        await self._until(self._one_is_gone, "its session is over")
        await elapse(CALM_S)
        self._note("thaw", broker=away.broker_id)
        away.send(Signals.SIGCONT)
        await self._is_deleted("pay_0.x")
        await elapse(CALM_S)

    async def _seat(self) -> int:
        """The broker that is the controller."""
        return int(json.loads(await self.client.get_data("/controller"))["brokerid"])

    async def _create_topics(self) -> None:
        """As Kafka's own tool of each time."""
        for parent in ("/brokers/topics", "/admin", "/admin/delete_topics"):
            if not await self.client.exists(parent):  # 0.8.0 makes them when it needs them
                await self.client.create(parent, b"")
        for name, partitions in self.topics.items():
            if await self.client.exists("/config/topics"):
                await self.client.create(f"/config/topics/{name}", b'{"version":1,"config":{}}')
            self._note("create", topic=name)
            value = {"version": 1, "partitions": partitions}
            await self.client.create(f"/brokers/topics/{name}", json.dumps(value).encode())

    async def _kill(self, broker: KafkaBroker) -> None:
        self._note("kill", broker=broker.broker_id)
        await broker.kill()
        await elapse(AWAY_S)
        await self._start(broker)

    async def _freeze(self, broker: KafkaBroker) -> None:
        self._note("freeze", broker=broker.broker_id)
        broker.send(Signals.SIGSTOP)
        await elapse(AWAY_S)
        self._note("thaw", broker=broker.broker_id)
        broker.send(Signals.SIGCONT)
        await elapse(CALM_S)  # it may still be registered as before

    async def _stop(self, broker: KafkaBroker) -> None:
        self._note("stop", broker=broker.broker_id)
        await broker.stop()
        self._note("stopped", broker=broker.broker_id)
        await elapse(AWAY_S / 2)
        await self._start(broker)

    async def _start(self, broker: KafkaBroker) -> None:
        self._note("start", broker=broker.broker_id)
        await broker.start()

    async def _mark(self, name: str) -> None:
        """Ask that it be deleted, as Kafka's own tool of each time."""
        self._note("delete", topic=name)
        del self.topics[name]
        await self.client.create(f"/admin/delete_topics/{name}", b"")

    async def _is_deleted(self, name: str) -> None:
        async def is_gone() -> bool:
            return not await self.client.exists(f"/brokers/topics/{name}")

        await self._until(is_gone, "it is deleted")

    def _note(self, what: str, **more: Any) -> None:
        self.timeline.append({"at_ms": time.time_ns() // 1_000_000, "what": what, **more})

    # ------------------------------------------------------------------ waits

    async def _all_there(self) -> bool:
        return sorted(map(int, await self.client.get_children("/brokers/ids"))) == [*_BROKERS]

    async def _one_is_gone(self) -> bool:
        return len(await self.client.get_children("/brokers/ids")) < len(_BROKERS)

    async def _all_led(self) -> bool:
        """And all replicas in sync."""
        for name, partitions in self.topics.items():
            for number, replicas in partitions.items():
                state = json.loads(await self.client.get_data(f"/brokers/topics/{name}/partitions/{number}/state"))
                if state["leader"] < 0 or len(state["isr"]) != len(replicas):
                    return False
        return True

    async def _until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        give_up_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                if await is_so():
                    return
            except NoNode:
                pass  # not yet
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"Kafka {self.version}: never seen that {what}")
            await asyncio.sleep(POLL_S)

    # ------------------------------------------------------------------ the recording

    def _write(self) -> None:
        """Without the paths of this machine."""
        for log in self.folder.glob("broker*/*.log"):
            content = log.read_bytes().replace(bytes(self.work), b"/var/lib/kafka").replace(bytes(ROOT), b"/opt")
            compress(log.with_name(f"{log.name}.gz"), content)
            log.unlink()
        lines = map(line_of, history(self.zookeeper.data_dir))
        compress(self.folder / "zookeeper.jsonl.gz", "".join(f"{json.dumps(line)}\n" for line in lines).encode())
        timeline = "".join(f"{json.dumps(one)}\n" for one in self.timeline)
        (self.folder / "timeline.jsonl").write_text(timeline, encoding="utf-8")


def compress(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def line_of(one: Operation) -> dict[str, Any]:
    """As `tests.recordings.Write` reads it."""
    line: dict[str, Any] = {"zxid": one.zxid, "at_ms": one.at_ms, "session": hex(one.session), "op": one.kind}
    if one.path is not None:
        line["path"] = one.path
    if one.kind in ("create", "set"):
        line["data"] = None if one.data is None else one.data.decode()
    if one.kind == "create":
        line["ephemeral"] = bool(one.ephemeral_owner)
    if one.version is not None:
        line["version"] = one.version
    return line


async def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.real_brokers.record", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--play", default="faults", choices=["faults", "deletions"])
    parser.add_argument("--level", default="TRACE", choices=["TRACE", "DEBUG", "INFO"])
    parser.add_argument("--jars", type=Path, default=Path("var/kafka"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klamm-record-") as work:
        recorder = Recorder(given.version, given.level, given.play, given.folder.resolve(), Path(work))
        await recorder.record(given.jars)


if __name__ == "__main__":
    asyncio.run(_main())
