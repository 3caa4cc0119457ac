"""`make kafka-up`: real Kafka brokers, a ZooKeeper, our controller, a producer and a consumer, in one terminal.

It runs in the foreground and prints the rates of both each second, so that a broker's death shows as a dip. It is a lab
as any other: `klamm kill 2 --var var/kafka` and the dashboard's buttons reach its brokers; `make kafka-down` ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from signal import Signals
from typing import Final

import structlog

from brokerstub.lab.bodies import ProcessRow, State, Trouble, TroubleOrder
from brokerstub.lab.child_process import Child, launched
from brokerstub.lab.kafka import HOST, KafkaBroker, KafkaError, RealBroker, jars, java_command, tool
from brokerstub.lab.server import serve
from brokerstub.lab.settings import LabError, LabFile, lab_secrets, sole_owner, write_lab_file
from brokerstub.lab.zookeeper import ZooKeeperError, ZooKeeperServer
from controller.base import log as process_log
from controller.wire.client import ExchangeError, HttpClient

BROKER_IDS: Final = (1, 2, 3)
TOPIC: Final = "orders"
TOOLS: Final = "org.apache.kafka.tools"
UP_WITHIN_S: Final = 30
POLL_S: Final = 0.1

log = structlog.get_logger()


class Counter:
    """Counts the records of a client, by the lines that it prints."""

    def __init__(self, path: Path, word: bytes) -> None:
        self._path = path
        self._word = word
        self._at = 0

    def more(self) -> int:
        """Since it was asked last; a line being written is counted next time."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._at += end
        return sum(_count_in(line) for line in data[:end].splitlines() if self._word in line)


class KafkaDemo:
    """The processes. Ports: ZooKeeper at the base, brokers after it, then the controller's two and the lab's own.
    Keeps the interface `brokerstub.lab.server.Supervising`."""

    def __init__(self, directory: Path, port_base: int, end: Callable[[], None]) -> None:
        self.secrets = lab_secrets()
        self.end = end
        self.port = port_base + 10
        self._directory = directory
        self._http_port = port_base + 9
        self._zookeeper = ZooKeeperServer(directory / "zookeeper", port_base)
        self._connect = f"{self._zookeeper.address}/kafka"
        self._kafka = f"kafka://{HOST}:{port_base + 8},http://{HOST}:{self._http_port}"
        self._port_base = port_base
        self._clients: list[Child] = []
        self.brokers: dict[int, RealBroker] = {}

    @property
    def url(self) -> str:
        """Of the controller: dashboard and API."""
        return f"http://{HOST}:{self._http_port}"

    @property
    def lab_file(self) -> LabFile:
        return LabFile(os.getpid(), self.port, {"controller": self.url}, self._connect, self._zookeeper.pid)

    async def trouble(self, order: TroubleOrder) -> Trouble:
        """Real brokers suffer the effects of the lab's verbs, and nothing finer."""
        raise LabError("real Kafka brokers have no trouble of this kind: kill, freeze and stop them")

    def rows(self) -> list[ProcessRow]:
        here = ProcessRow("supervisor", os.getpid(), "running", f"http://{HOST}:{self.port}")
        pid = self._zookeeper.pid
        state: State = "stopped" if pid is None else "running"
        zookeeper = ProcessRow("zookeeper", pid, state, self._zookeeper.address)
        return [here, zookeeper, *(broker.row for broker in self.brokers.values())]

    async def start(self, found: Path) -> None:
        """Brokers first, as in a cluster that has been there before; then ours takes over."""
        await self._zookeeper.start()
        for broker_id in BROKER_IDS:
            path = self._directory / f"broker-{broker_id}"
            kafka = KafkaBroker(broker_id, self._port_base + broker_id, self._connect, path, found)
            self.brokers[broker_id] = RealBroker(kafka)
            await self.brokers[broker_id].start()
        for broker in self.brokers.values():
            await broker.kafka.listening()
        await self._launch_controller()
        await self._take_over()
        servers = ",".join(broker.kafka.address for broker in self.brokers.values())
        to = ("--bootstrap-server", servers)
        wanted = ("--create", "--if-not-exists", "--topic", TOPIC, "--partitions", "6", "--replication-factor", "3")
        code, output = await tool(found, self._directory, f"{TOOLS}.TopicCommand", *to, *wanted)
        if code != 0:
            raise KafkaError(output)
        for name, more in (
            ("VerifiableProducer", ("--throughput", "500")),
            ("VerifiableConsumer", ("--group-id", "klamm", "--reset-policy", "latest")),
        ):
            command = java_command(found, self._directory / "tools-log4j.properties", "128m")
            path = self._directory / f"{name}.log"
            path.unlink(missing_ok=True)
            command = [*command, f"{TOOLS}.{name}", *to, "--topic", TOPIC, *more]
            self._clients.append(await launched(command, path))

    async def stop(self) -> None:
        for client in reversed(self._clients):  # the controller was the first: it stops when no client needs it
            client.signal(Signals.SIGTERM)
            await client.wait()
        async with asyncio.TaskGroup() as group:
            for broker in self.brokers.values():
                group.create_task(broker.kill())
        await self._zookeeper.stop()

    async def rates(self) -> None:
        """A line each second, for ever."""
        produced = Counter(self._directory / "VerifiableProducer.log", b'"producer_send_success"')
        consumed = Counter(self._directory / "VerifiableConsumer.log", b'"records_consumed"')
        while True:
            await asyncio.sleep(1)
            away = [str(one) for one, broker in self.brokers.items() if not broker.is_running]
            note = f"   broker {', '.join(away)} does not run" if away else ""
            say(f"acknowledged {produced.more():5d}/s   consumed {consumed.more():5d}/s{note}")

    async def _launch_controller(self) -> None:
        command = [sys.executable, "-c", "from controller.cli import main; main()", "controller"]
        command += ["--zookeeper", self._connect, "--listen", self._kafka, "--prefer"]
        command += ["--data-dir", str(self._directory / "controller")]
        command += ["--set", "zookeeper.session.timeout.ms=4000"]
        command += ["--set", f"klamm.lab.url=http://{HOST}:{self.port}"]
        self._clients.append(await launched(command, self._directory / "controller.log"))

    async def _take_over(self) -> None:
        headers = {"Content-Type": "application/json", **self.secrets.authorization(is_write=True)}
        client, url = HttpClient(), f"{self.url}/v1/takeover"
        try:
            async with asyncio.timeout(UP_WITHIN_S):
                while True:
                    with contextlib.suppress(ExchangeError):
                        status, body = await client.post(url, b"{}", headers, 10_000)
                        if status == 200:
                            return
                        if status != 503:
                            raise KafkaError(f"the controller refuses: {body.decode()}")
                    await asyncio.sleep(POLL_S)
        finally:
            await client.close()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _count_in(line: bytes) -> int:
    _, found, rest = line.partition(b'"count":')
    return int(rest.partition(b",")[0]) if found else 1


async def _up(var: Path, port_base: int) -> None:
    os.umask(0o077)  # as a lab
    directory = var / "lab"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    for number in (Signals.SIGTERM, Signals.SIGINT):
        loop.add_signal_handler(number, ending.set)
    say("Kafka's jars, a ZooKeeper and three brokers: this takes half a minute ...")
    demo = KafkaDemo(directory, port_base, ending.set)
    async with AsyncExitStack() as started:
        process_log.configure(directory / "lab.log")  # the terminal is for rates
        await serve(demo, demo.port, started)
        started.callback((var / "lab.json").unlink, missing_ok=True)
        started.push_async_callback(demo.stop)
        await demo.start(await jars(var))
        write_lab_file(var, demo.lab_file)
        say(f"dashboard {demo.url}/   klamm status --url {demo.url}")
        say(f"klamm kill 2 --var {var}, then start 2; also freeze, thaw, stop; Ctrl-C or make kafka-down ends it")
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(demo.rates())
            await ending.wait()
            telling.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make kafka-up", description="KafkaDemo Kafka brokers under our controller.")
    parser.add_argument("--var", type=Path, default=Path("var/kafka"))
    parser.add_argument("--port-base", type=int, default=18_880)
    arguments = parser.parse_args()
    try:
        with sole_owner(arguments.var):
            asyncio.run(_up(arguments.var, arguments.port_base))
    except (KafkaError, LabError, ZooKeeperError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
