"""A compose cluster as a test sees it: containers to be killed and paused, and three windows into it that stay open
meanwhile (published ports of brokers and of ZooKeeper, and the state-change logs on the volume).

It starts and ends no cluster (`tests.docker.compose`); whether a test passes is for the test to say.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import docker
from docker.models.containers import Container
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tests.waiting import waited_for

SERVERS: Final = ("zookeeper1", "zookeeper2", "zookeeper3")
#: as deploy/server.properties has it
SESSION_TIMEOUT_S: Final = 6.0
#: `replica.lag.time.max.ms` in the tests: Kafka's 30 s say nothing more
LAG_S: Final = 10.0
DEADLINE_S: Final = 120.0
POLL_INTERVAL_S: Final = 0.1
#: of each container, shown when a test fails
LOG_LINES_SHOWN: Final = 60


class State(NamedTuple):
    """The content of a state znode, and a broker's copy of it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int
    controller_epoch: int


class NoAnswerError(Exception):
    """Nothing that could be understood came back from a broker."""


def until(is_so: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first true answer; fails when there is none in time."""
    return waited_for(is_so, what, within_s=deadline_s, poll_s=POLL_INTERVAL_S)


def stays(is_so: Callable[[], bool], what: str, for_s: float) -> None:
    """True all the time."""
    over = time.monotonic() + for_s
    while time.monotonic() < over:
        assert is_so(), f"no longer: {what}"
        time.sleep(POLL_INTERVAL_S)


def inside(container: Container, *words: str) -> subprocess.CompletedProcess[bytes]:
    """A command in a container, by Docker's own client. docker-py loses the output that arrives together with the head
    of the engine's answer, as it does on a busy machine."""
    return subprocess.run(["docker", "exec", container.id, *words], capture_output=True, check=False)


class Cluster:
    """ZooKeeper servers 1 to 3 and brokers 1 to n. `ports` and `zookeeper_ports` are the first digits of theirs."""

    def __init__(
        self, project: str, brokers: int, ports: int, zookeeper_ports: int, compose_command: Sequence[str] = ()
    ) -> None:
        self.compose_command = compose_command
        self.broker_ids: Sequence[int] = range(1, brokers + 1)
        self.project = project
        self._ports = ports
        self._zookeeper_ports = zookeeper_ports
        self._engine = docker.from_env()
        self._token: str | None = None

    # containers

    def containers(self) -> list[Container]:
        label = f"com.docker.compose.project={self.project}"
        found = self._engine.containers.list(all=True, filters={"label": label})
        return sorted(found, key=lambda one: str(one.name))

    def story(self) -> str:
        """How each container is, and its last output: the first thing to read when a test failed elsewhere."""
        told = []
        for one in self.containers():
            state = one.attrs["State"]
            health = state.get("Health", {}).get("Status", "not checked")
            restarts = one.attrs["RestartCount"]
            told.append(f"--- {one.name}: {one.status}, {health}, exit code {state['ExitCode']}, {restarts} restarts")
            told.append(one.logs(tail=LOG_LINES_SHOWN, timestamps=True).decode(errors="replace"))
        return "\n".join(told) or "there is no container"

    def container(self, service: str) -> Container:
        return self._engine.containers.get(f"{self.project}-{service}-1")

    def said(self, service: str, event: str) -> int:
        """How often its processes, all that it ever had, logged this."""
        return int(self.container(service).logs().count(event.encode()))

    def run_beside(self, service: str, image: str, command: str) -> str:
        """Returns the output of a shell that sees the network of that container, and may change it."""
        said = self._engine.containers.run(
            image,
            ["sh", "-ec", command],
            network_mode=f"container:{self.container(service).id}",
            cap_add=["NET_ADMIN"],
            labels=["klamm.tests"],
            remove=True,
        )
        return str(said, "utf-8")

    def kill(self, *services: str) -> None:
        for service in services:
            self.container(service).kill()

    def start(self, *services: str) -> None:
        for service in services:
            self.container(service).start()

    def mend(self) -> None:
        """After a test that failed half way: a paused container goes on, and a stopped one starts."""
        for container in self.containers():
            if container.status == "paused":
                container.unpause()
            elif container.status != "running":
                container.start()

    @contextmanager
    def paused(self, service: str) -> Iterator[None]:
        container = self.container(service)
        container.pause()
        try:
            yield
        finally:
            container.unpause()

    def address(self, service: str) -> str:
        """On the network between the nodes."""
        networks = self.container(service).attrs["NetworkSettings"]["Networks"]
        return str(networks[f"{self.project}_cluster"]["IPAddress"])

    def subnet(self) -> str:
        """Of the network between the nodes."""
        network = self._engine.networks.get(f"{self.project}_cluster")
        return str(network.attrs["IPAM"]["Config"][0]["Subnet"])

    def reaches(self, broker_id: int, other_id: int) -> bool:
        """Whether one broker's container gets a connection to another broker."""
        question = f"timeout 2 bash -c 'exec 3<>/dev/tcp/broker{other_id}.cluster/9090'"
        return bool(self.container(f"broker{broker_id}").exec_run(["bash", "-c", question]).exit_code == 0)

    # the command, inside

    def klamm(self, broker_id: int, *words: str) -> str:
        """Returns the output of `klamm` in a broker's container; it must end well."""
        said = inside(self.container(f"broker{broker_id}"), "klamm", *words)
        out, err = said.stdout.decode(), said.stderr.decode()
        assert said.returncode == 0, f"klamm {' '.join(words)} ended with {said.returncode}: {out}{err}"
        return out

    def log_lines(self) -> list[dict[str, Any]]:
        """The state-change logs of all brokers. A line torn by a kill is passed over: it is followed by others."""
        writer = next(c for n in self.broker_ids if (c := self.container(f"broker{n}")).status == "running")
        said = inside(writer, "sh", "-c", "cat /var/lib/klamm/broker-*/state-change.log")
        assert said.returncode == 0, said.stderr
        return [json.loads(line) for line in said.stdout.splitlines() if line.endswith(b"}")]

    # HTTP, as from the host's browser

    def url(self, broker_id: int) -> str:
        return f"http://127.0.0.1:{self._ports}{80 + broker_id}"

    def ask(
        self, broker_id: int, path: str, body: object = None, *, method: str | None = None, timeout_s: float = 5.0
    ) -> tuple[int, Any]:
        """Status and body. Raises NoAnswerError."""
        status, content = self._exchange(broker_id, path, body, method, timeout_s)
        try:
            return status, json.loads(content)
        except json.JSONDecodeError as error:
            raise NoAnswerError(f"{self.url(broker_id)}{path}: {error!r}") from error

    def _exchange(
        self, broker_id: int, path: str, body: object, method: str | None, timeout_s: float
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.url(broker_id).removeprefix("http://"), timeout=timeout_s)
        try:
            if body is None and method is None:
                connection.request("GET", path)
            else:
                headers = {"Content-Type": "application/json", "Klamm-Forward": "1", **self.authorization()}
                content = None if body is None else json.dumps(body)
                connection.request(method or "POST", path, content, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswerError(f"{self.url(broker_id)}{path}: {error!r}") from error
        finally:
            connection.close()

    def owed_to(self, broker_id: int, by: int) -> float:
        """How many states a controller has not been thanked for by a broker."""
        _, content = self._exchange(by, "/metrics", None, None, 5.0)
        name = "kafka_controller_controllerchannelmanager_queuesize"
        [value] = re.findall(rf'^{name}{{broker_id="{broker_id}"}} (\S+)$', content.decode(), re.MULTILINE)
        return float(value)

    def told(self, broker_id: int) -> dict[tuple[str, int], State]:
        """Every partition as this broker knows it."""
        found: dict[tuple[str, int], State] = {}
        cursor = ""
        while True:
            _, page = self.ask(broker_id, f"/v1/partitions?limit=1000{cursor}")
            for item in page["items"]:
                found[(item["topic"], item["partition"])] = State(
                    item["leader"], item["leader_epoch"], tuple(item["isr"]), item["version"], item["controller_epoch"]
                )
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"

    def authorization(self) -> dict[str, str]:
        """The header that a write needs: the token that the first broker made."""
        if self._token is None:
            self._token = self.key("api-token")
        return {"Authorization": f"Bearer {self._token}"}

    def key(self, name: str) -> str:
        """`api-token` or `rpc-secret`, which the first broker made."""
        said = self.container("broker1").exec_run(["cat", f"/etc/klamm/keys/{name}"])
        assert said.exit_code == 0, said.output
        return str(said.output, "utf-8")

    def try_to_create(self, name: str, *, by: int = 1, timeout_s: float = 20.0, **body: object) -> int:
        """The status of one attempt. Raises NoAnswerError."""
        replicas = {} if "assignment" in body else {"partitions": 1, "replication_factor": 3}
        return self.ask(by, "/v1/topics", {"name": name, **replicas, **body}, timeout_s=timeout_s)[0]

    def create_topic(self, name: str, *, by: int = 1, **body: object) -> None:
        """Asked again while there is no controller, as every client does; a creation is idempotent by its content."""

        def is_created() -> bool:
            try:
                status = self.try_to_create(name, by=by, **body)
            except NoAnswerError:
                return False
            assert status in (200, 201, 503, 504), f"{name} is refused with {status}"
            return status < 300

        until(is_created, f"{name} is created")

    # ZooKeeper

    @contextmanager
    def zookeeper(self) -> Iterator[KazooClient]:
        hosts = ",".join(f"127.0.0.1:{self._zookeeper_ports}8{number}" for number in (1, 2, 3))
        client = KazooClient(hosts, timeout=10.0)
        client.start(timeout=30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def seat(self) -> tuple[int, int] | None:
        """Returns the holder of `/controller` and its epoch; None while it has none, or cannot be read."""
        try:
            with self.zookeeper() as zk:
                holder = json.loads(zk.get("/controller")[0])["brokerid"]
                return holder, int(zk.get("/controller_epoch")[0])
        except (NoNodeError, KazooException, KazooTimeoutError):
            return None

    def registration(self, broker_id: int) -> tuple[int, int] | None:
        """When it was made, and by which session."""
        with self.zookeeper() as zk:
            found = zk.exists(f"/brokers/ids/{broker_id}")
        return None if found is None else (found.czxid, found.ephemeralOwner)

    def zookeeper_leader(self) -> str:
        """Returns the service whose server leads the ensemble."""
        return str(until(self._zookeeper_leader, "a ZooKeeper server leads"))

    def _zookeeper_leader(self) -> str | None:
        question = "exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && timeout 2 cat <&3"
        for service in SERVERS:
            container = self.container(service)
            if container.status == "running" and b"Mode: leader" in container.exec_run(["bash", "-c", question]).output:
                return service
        return None
