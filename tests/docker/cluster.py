"""A compose cluster as a test sees it: containers to be killed, paused and cut, and three windows into it that stay
open meanwhile (published ports of brokers and of ZooKeeper, and the state-change logs on the volume).

It owns what it started and takes it down; whether a test passes is for the test to say.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import docker
from docker.models.containers import Container
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from testcontainers.compose import DockerCompose

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
NETNS_IMAGE: Final = "klamm-tests-netns"
SERVERS: Final = ("zookeeper1", "zookeeper2", "zookeeper3")
#: on everything that the tests make, so that nothing can be left unseen (`deploy/docker.sh test`)
LABEL: Final = {"labels": ["klamm.tests"]}
#: as deploy/server.properties has it
SESSION_TIMEOUT_S: Final = 6.0
DEADLINE_S: Final = 60.0
POLL_INTERVAL_S: Final = 0.1


class State(NamedTuple):
    """What a state znode says, and what a broker was told of it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int
    controller_epoch: int


class NoAnswerError(Exception):
    """Nothing that could be understood came back from a broker."""


def until(is_so: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first true answer; fails when there is none in time."""
    deadline = time.monotonic() + deadline_s
    while not (answer := is_so()):
        assert time.monotonic() < deadline, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(POLL_INTERVAL_S)
    return answer


class Cluster:
    """ZooKeeper servers 1 to 3 and brokers 1 to n. `ports` and `zookeeper_ports` are the first digits of theirs."""

    def __init__(self, project: str, brokers: int, ports: int, zookeeper_ports: int) -> None:
        self.broker_ids: Sequence[int] = range(1, brokers + 1)
        self._project = project
        self._ports = ports
        self._zookeeper_ports = zookeeper_ports
        self._engine = docker.from_env()
        self._token: str | None = None

    # containers

    def container(self, service: str) -> Container:
        return self._engine.containers.get(f"{self._project}-{service}-1")

    def kill(self, *services: str) -> None:
        for service in services:
            self.container(service).kill()

    def start(self, *services: str) -> None:
        for service in services:
            self.container(service).start()

    def mend(self) -> None:
        """After a test that failed half way: whatever is paused goes on, and whatever is down starts."""
        for container in self._engine.containers.list(
            all=True, filters={"label": f"com.docker.compose.project={self._project}"}
        ):
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
        return str(networks[f"{self._project}_cluster"]["IPAddress"])

    @contextmanager
    def filtered(self, service: str, *rules: str) -> Iterator[None]:
        """Rules for iptables in the network of one node, while this lasts: `-A INPUT -s ADDRESS -j DROP`."""
        self._in_network_of(service, " && ".join(f"iptables {rule}" for rule in rules))
        try:
            yield
        finally:
            self._in_network_of(service, "iptables -F")

    def _in_network_of(self, service: str, command: str) -> None:
        self._engine.containers.run(
            NETNS_IMAGE,
            ["sh", "-ec", command],
            network_mode=f"container:{self.container(service).id}",
            cap_add=["NET_ADMIN"],
            labels=["klamm.tests"],
            remove=True,
        )

    # the command, inside

    def klamm(self, broker_id: int, *words: str) -> str:
        """What `klamm` prints in a broker's container; it must end well."""
        said = self.container(f"broker{broker_id}").exec_run(["klamm", *words], demux=True)
        out, err = ((part or b"").decode() for part in said.output)
        assert said.exit_code == 0, f"klamm {' '.join(words)} ended with {said.exit_code}: {out}{err}"
        return out

    def log_lines(self) -> list[dict[str, Any]]:
        """The state-change logs of all brokers. A line torn by a kill is passed over: it is followed by others."""
        writer = next(c for n in self.broker_ids if (c := self.container(f"broker{n}")).status == "running")
        said = writer.exec_run(["sh", "-c", "cat /var/lib/klamm/broker-*/state-change.log"])
        assert said.exit_code == 0, said.output
        return [json.loads(line) for line in said.output.splitlines() if line.endswith(b"}")]

    # HTTP, as from the host's browser

    def url(self, broker_id: int) -> str:
        return f"http://127.0.0.1:{self._ports}{80 + broker_id}"

    def ask(
        self, broker_id: int, path: str, body: object = None, *, method: str | None = None, timeout_s: float = 5.0
    ) -> tuple[int, Any]:
        """Status and body. Raises NoAnswerError."""
        connection = http.client.HTTPConnection(self.url(broker_id).removeprefix("http://"), timeout=timeout_s)
        try:
            if body is None:
                connection.request(method or "GET", path)
            else:
                headers = {"Content-Type": "application/json", "Klamm-Forward": "1", **self.authorization()}
                connection.request(method or "POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            raise NoAnswerError(f"{self.url(broker_id)}{path}: {error!r}") from error
        finally:
            connection.close()

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
            said = self.container("broker1").exec_run(["cat", "/etc/klamm/keys/api-token"])
            assert said.exit_code == 0, said.output
            self._token = said.output.decode()
        return {"Authorization": f"Bearer {self._token}"}

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
        """Who holds `/controller`, and its epoch; None while nobody does, or nobody can say."""
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
        """The service whose server leads the ensemble."""
        return str(until(self._zookeeper_leader, "a ZooKeeper server leads"))

    def _zookeeper_leader(self) -> str | None:
        question = "exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && timeout 2 cat <&3"
        for service in SERVERS:
            container = self.container(service)
            if container.status == "running" and b"Mode: leader" in container.exec_run(["bash", "-c", question]).output:
                return service
        return None


@contextmanager
def running(project: str, brokers: int, directory: Path) -> Iterator[Cluster]:
    """The cluster, healthy; nothing of it is left afterwards."""
    ports, zookeeper_ports = free_port_prefixes(brokers)
    environment = {
        "COMPOSE_PROJECT_NAME": project,
        "KLAMM_PORTS": ports,
        "KLAMM_ZOOKEEPER_PORTS": zookeeper_ports,
        "KLAMM_HEALTH_INTERVAL": "2s" if brokers <= 3 else "5s",  # each check is a process of its own
    }
    (directory / "env").write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
    services = [*SERVERS, *(f"broker{number}" for number in range(1, brokers + 1))]
    labelled = {
        "services": dict.fromkeys(services, LABEL),
        "networks": {"access": LABEL, "cluster": LABEL},
        "volumes": dict.fromkeys((*SERVERS, "brokers", "keys"), LABEL),
    }
    labels = directory / "labels.json"
    labels.write_text(json.dumps(labelled))
    files = ["compose.yaml", *(["compose.large.yaml"] if brokers > 3 else []), str(labels)]
    env_file = str(directory / "env")
    compose = DockerCompose(str(DEPLOY), compose_file_name=files, env_file=env_file, build=False, wait=True)
    with compose:
        yield Cluster(project, brokers, ports, zookeeper_ports)


def free_port_prefixes(brokers: int) -> tuple[int, int]:
    """First digits of ports that nobody has. Containers must keep theirs when they start again, so they are fixed."""
    from brokerstub.lab.zookeeper import is_free

    wanted = [80 + number for number in range(1, brokers + 1)]
    free = (n for n in range(180, 320) if all(is_free(n * 100 + one) for one in wanted))
    brokers_prefix = next(free)
    return brokers_prefix, next(free)
