"""Real Kafka brokers on a real ZooKeeper, and our controller beside them, as the tests see them.

Owns the processes and an independent ZooKeeper client (kazoo). It waits for conditions, with a deadline; whether a test
passes is for the test to say. It must leave no process behind.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from signal import Signals
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from brokerstub.lab.child_process import Child, launched
from brokerstub.lab.kafka import HOST, TOOL_TIMEOUT_S, VERSION, KafkaBroker, jars, tool
from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.kafka.protocol.access import PROTOCOLS
from controller.wire.client import ExchangeError, HttpClient
from tests.real_brokers.secured import Secured
from tests.waiting import DEADLINE_S, until

#: the schemes of `--listen` and their protocols
SCHEMES = {"kafka": "PLAINTEXT", **{name.lower(): name for name in PROTOCOLS}}
ROOT = Path(__file__).parents[2]
JARS = ROOT / "var" / "kafka"
HTTP_TIMEOUT_MS = 10_000
TOOLS = "org.apache.kafka.tools"
#: by controllers of either kind
WRITTEN = ("/brokers/topics", "/config", "/admin", "/feature", "/latest_producer_id_block", "/isr_change_notification")
#: how each of Kafka's tools is told the properties of its client
CONFIG_OPTION = {
    "VerifiableProducer": "--producer.config",
    "VerifiableConsumer": "--consumer.config",
    "LeaderElectionCommand": "--admin.config",
    "consumer.ConsoleConsumer": "--consumer.config",
}


class Controller:
    """One process of ours."""

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        controller_id: int,
        more: Sequence[str],
        scheme: str = "kafka",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.controller_id = controller_id
        self.tls = tls
        self.url = f"{'http' if tls is None else 'https'}://{HOST}:{free_port()}"
        kafka = f"{scheme}://{HOST}:{free_port()}"
        #: of its listeners, by security protocol
        self.ports = {SCHEMES[one.partition("://")[0]]: int(one.rpartition(":")[2]) for one in kafka.split(",")}
        self.directory = directory / f"controller-{controller_id}"
        self._command = [
            *(sys.executable, "-c", "from controller.cli import main; main()", "controller"),
            *("--zookeeper", zookeeper, "--id", str(controller_id), "--listen", f"{kafka},{self.url}"),
            *("--data-dir", str(self.directory), "--set", "zookeeper.session.timeout.ms=6000"),
            *("--set", "auto.leader.rebalance.enable=false", *more),
        ]
        self._child: Child | None = None

    async def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._child = await launched(self._command, self.directory / "controller.log")
        await until(self.is_up, f"controller {self.controller_id} answers")

    def send(self, number: Signals) -> None:
        assert self._child is not None
        self._child.signal(number)

    async def end(self, number: Signals = Signals.SIGTERM) -> None:
        if self._child is not None:
            self._child.signal(number)
            self._child.signal(Signals.SIGCONT)
            await self._child.wait()

    async def ended(self) -> int:
        """Its exit code, when it ends by itself."""
        assert self._child is not None
        async with asyncio.timeout(DEADLINE_S):
            await self._child.wait()
        assert self._child.exit_code is not None
        return self._child.exit_code

    def log_text(self) -> str:
        return (self.directory / "controller.log").read_text()

    async def is_up(self) -> bool:
        return (await self.ask("GET", "/livez"))[0] == 200

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Returns status and body; status 0 without an answer."""
        client = HttpClient(tls=self.tls)
        try:
            raw = b"" if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"}
            answer = await client.send(method, self.url + path, raw, headers, HTTP_TIMEOUT_MS)
        except (ExchangeError, TimeoutError):
            return 0, None
        finally:
            await client.close()
        return answer.status, json.loads(answer.body)

    async def take_over(self) -> dict[str, Any]:
        status, body = 503, None

        async def is_answered() -> bool:  # by 503 nothing was changed: it has no session yet, if it has just started
            nonlocal status, body
            status, body = await self.ask("POST", "/v1/takeover", {})
            return status != 503

        await until(is_answered, "it takes over")
        assert status == 200, body
        await until(self.is_active, "the term has begun")
        return dict(body)

    async def is_active(self) -> bool:
        _, body = await self.ask("GET", "/v1/controller")
        return (body["broker_id"], body["phase"]) == (self.controller_id, "active")


class Cluster:
    """Brokers 1 to 3, and controllers of ours."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer, kazoo: KazooClient, found: Path) -> None:
        self.directory = directory
        self.server = zookeeper
        self.zookeeper = f"{zookeeper.address}/kafka"
        self.kazoo = kazoo
        self.jars = found
        self.brokers: dict[int, KafkaBroker] = {}
        self.controllers: list[Controller] = []
        self.client_config: Path | None = None

    @property
    def controller(self) -> Controller:
        return self.controllers[0]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values() if broker.pid is not None)

    async def tool(self, name: str, *arguments: str, within_s: float = TOOL_TIMEOUT_S) -> str:
        """Returns the output of one of Kafka's own tools; it has to succeed."""
        to = ["--bootstrap-server", self.bootstrap]
        if self.client_config is not None:
            to += [CONFIG_OPTION.get(name, "--command-config"), str(self.client_config)]
        code, output = await tool(self.jars, self.directory, f"{TOOLS}.{name}", *to, *arguments, within_s=within_s)
        assert code == 0, output
        return output

    async def configure(self, *arguments: str) -> str:
        """By Kafka's kafka-configs, through any of its brokers; for users of SCRAM it asks the controller."""
        to = ("--bootstrap-server", self.bootstrap, "--command-config", str(self.client_config))
        code, output = await tool(self.jars, self.directory, "kafka.admin.ConfigCommand", *to, *arguments)
        assert code == 0, output
        return output

    async def create(self, topic: str, *arguments: str) -> None:
        """By Kafka's own command, with further arguments."""
        assert f"Created topic {topic}." in await self.tool("TopicCommand", "--create", "--topic", topic, *arguments)

    async def produce(self, topic: str, count: int) -> list[dict[str, Any]]:
        """By Kafka's VerifiableProducer with acks=all; one entry for each record acknowledged."""
        output = await self.tool(
            "VerifiableProducer", "--topic", topic, "--max-messages", str(count), "--throughput", "500"
        )
        return [one for one in events_in(output) if one["name"] == "producer_send_success"]

    async def consume(self, topic: str, count: int) -> int:
        """How many records Kafka's VerifiableConsumer found from the beginning on."""
        output = await self.tool(
            *("VerifiableConsumer", "--topic", topic, "--group-id", f"group-{topic}", "--max-messages", str(count)),
            *("--reset-policy", "earliest"),
        )
        return sum(one["count"] for one in events_in(output) if one["name"] == "records_consumed")

    def read(self, path: str) -> Any:
        """JSON at a path below the chroot; None if it is not there."""
        try:
            data = self.kazoo.get(f"/kafka{path}")[0]
        except NoNodeError:
            return None
        return json.loads(data) if data else {}

    def states(self, topic: str) -> Mapping[int, dict[str, Any]]:
        """The state znodes of a topic, by partition."""
        numbers = (self.read(f"/brokers/topics/{topic}") or {}).get("partitions", {})
        found = {int(n): self.read(f"/brokers/topics/{topic}/partitions/{n}/state") for n in numbers}
        return {number: state for number, state in found.items() if state is not None}

    def leaders(self, topic: str) -> set[int]:
        return {state["leader"] for state in self.states(topic).values()}

    def is_in_sync(self, topic: str, *broker_ids: int) -> bool:
        return all(set(broker_ids) <= set(state["isr"]) for state in self.states(topic).values())

    def zxids(self) -> dict[str, int]:
        """The transaction that last wrote each node that either controller writes, but for the seat and its epoch."""
        found = {}
        pending = [f"/kafka{path}" for path in WRITTEN if self.kazoo.exists(f"/kafka{path}")]
        while pending:
            path = pending.pop()
            try:
                _, stat = self.kazoo.get(path)
                children = self.kazoo.get_children(path)
            except NoNodeError:
                continue  # a request that was carried out just now
            found[path] = stat.mzxid
            pending += [f"{path}/{child}" for child in children]
        return found

    def is_registered(self, broker_id: int) -> bool:
        return self.kazoo.exists(f"/kafka/brokers/ids/{broker_id}") is not None


def events_in(output: str) -> list[dict[str, Any]]:
    """Returns the output of the verifiable clients: a JSON object a line."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]


def written(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    path.chmod(0o600)
    return path


@asynccontextmanager
async def a_cluster(
    directory: Path,
    *,
    protocol: str | None = None,
    log_dirs: int = 1,
    secured: Secured | None = None,
    version: str = VERSION,
) -> AsyncIterator[Cluster]:
    """Three brokers of a version of Kafka's, one of them the controller, and a process of ours on standby."""
    zookeeper = ZooKeeperServer(directory / "zookeeper", free_port(), fsync=False)
    await zookeeper.start()
    kazoo = KazooClient(hosts=zookeeper.address)
    await asyncio.to_thread(kazoo.start)
    cluster = Cluster(directory, zookeeper, kazoo, await jars(JARS))
    installed = await jars(JARS, version)
    try:
        more = [] if protocol is None else ["--protocol", protocol]
        if secured is not None:
            cluster.client_config = written(directory / "client.properties", secured.client)
            more += ["--config", str(written(directory / "controller.properties", secured.ours))]
            kazoo.ensure_path("/kafka")  # the tool wants the chroot to be there
            for words in secured.users:
                to = ("--zookeeper", cluster.zookeeper)
                code, said = await tool(cluster.jars, directory, "kafka.admin.ConfigCommand", *to, *words)
                assert code == 0, said
        for broker_id in (1, 2, 3):
            cluster.brokers[broker_id] = KafkaBroker(
                *(broker_id, free_port(), cluster.zookeeper, directory / f"broker-{broker_id}", installed),
                protocol=protocol,
                log_dirs=log_dirs,
                security="PLAINTEXT" if secured is None else secured.protocol,
                # without this setting the default would apply: a leader gives a slow follower up after this
                properties={"replica.lag.time.max.ms": "10000", **({} if secured is None else secured.broker)},
            )
            await cluster.brokers[broker_id].launch()
        for broker in cluster.brokers.values():
            await broker.listening()
        await until(lambda: cluster.read("/controller"), "Kafka's own controller")
        scheme = "kafka" if secured is None else secured.protocol.lower()
        cluster.controllers = [Controller(directory, cluster.zookeeper, 100, more, scheme)]
        await cluster.controller.start()
        yield cluster
    finally:
        for controller in cluster.controllers:
            await controller.end(Signals.SIGKILL)
        for broker in cluster.brokers.values():
            await broker.kill()
        await asyncio.to_thread(kazoo.stop)
        kazoo.close()
        await zookeeper.stop()
