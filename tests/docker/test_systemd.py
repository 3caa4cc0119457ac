"""deploy/klamm.service under a real systemd, as broker 4 of the cluster in containers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import docker
import pytest
from docker.models.containers import Container

from tests.docker.cluster import Cluster, until
from tests.docker.compose import DEPLOY
from tests.docker.files import put
from tests.docker.invariants import Partition, states_of, watched

pytestmark = pytest.mark.docker

IMAGE: Final = "klamm-tests-systemd"
UNIT: Final = "/etc/systemd/system/klamm.service"
BROKER_ID: Final = 4
NAME: Final = f"broker{BROKER_ID}.cluster"
PROPERTIES: Final = f"""\
broker.id={BROKER_ID}
listeners=HTTP://127.0.0.1:8080,BROKERS://0.0.0.0:9090
advertised.listeners=HTTP://127.0.0.1:8080,BROKERS://{NAME}:9090
inter.broker.listener.name=BROKERS
log.dirs=/var/lib/klamm
zookeeper.connect=zookeeper1.cluster:2181,zookeeper2.cluster:2181,zookeeper3.cluster:2181
zookeeper.session.timeout.ms=6000
"""


class Machine:
    """One with systemd, on the network between the nodes."""

    def __init__(self, container: Container) -> None:
        self.container = container

    def run(self, *words: str) -> str:
        said = self.container.exec_run(list(words))
        assert said.exit_code == 0, f"{' '.join(words)}: {said.output.decode()}\n{self.journal()}"
        return str(said.output, "utf-8")

    def journal(self) -> str:
        return str(self.container.exec_run(["journalctl", "--no-pager", "--lines=60"]).output, "utf-8")

    def unit(self) -> dict[str, str]:
        wanted = "ActiveState,Result,ExecMainStatus,MainPID,NRestarts,TimeoutStopUSec"
        shown = self.run("systemctl", "show", "klamm", f"--property={wanted}")
        return dict(line.split("=", 1) for line in shown.splitlines())


@pytest.fixture
def machine(cluster: Cluster) -> Iterator[Machine]:
    words = ["docker", "build", "-q", "-t", IMAGE, "-f", str(Path(__file__).parent / "systemd" / "Dockerfile")]
    built = subprocess.run([*words, str(DEPLOY)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    engine = docker.from_env()
    network = f"{cluster.project}_cluster"
    container = engine.containers.run(
        IMAGE,
        detach=True,
        labels=["klamm.tests"],
        environment={"container": "docker"},
        # systemd makes control groups below its container's, and mounts the files that a unit may see
        cap_add=["SYS_ADMIN"],
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        cgroupns="host",
        volumes=["/sys/fs/cgroup:/sys/fs/cgroup:rw"],
        tmpfs={"/run": "", "/run/lock": "", "/tmp": ""},
        network=network,
        networking_config={network: engine.api.create_endpoint_config(aliases=[NAME])},
    )
    try:
        yield Machine(container)
    finally:
        container.remove(force=True)
        # or the next test's topics would be placed on it
        until(lambda: cluster.registration(BROKER_ID) is None, "its registration is gone")


def test_the_unit_runs_a_broker_confined_restarts_it_and_stops_it_by_a_controlled_shutdown(
    cluster: Cluster, machine: Machine
) -> None:
    assert "klamm" not in machine.run("systemd-analyze", "verify", UNIT), "systemd has something to say about the unit"
    token, secret = (cluster.key(name) for name in ("api-token", "rpc-secret"))
    put(machine.container, "/etc/klamm/server.properties", PROPERTIES, 0o644)
    put(machine.container, "/etc/klamm/klamm.env", f"KLAMM_API_TOKEN={token}\nKLAMM_RPC_SECRET={secret}\n", 0o600)
    machine.run("systemctl", "reset-failed", "klamm")
    machine.run("systemctl", "restart", "klamm")
    with watched(cluster):
        until(lambda: cluster.registration(BROKER_ID) is not None, "it is registered")
        _is_confined(machine)

        before = cluster.registration(BROKER_ID)
        machine.run("systemctl", "kill", "--signal=KILL", "klamm")
        until(lambda: cluster.registration(BROKER_ID) not in (None, before), "systemd has started it again")
        assert machine.unit()["NRestarts"] == "1"

        cluster.create_topic("led-by-a-unit", by=1, assignment={"0": [BROKER_ID, 1, 2]})
        partition = ("led-by-a-unit", 0)
        until(lambda: set(states_of(cluster)[partition].isr) == {1, 2, BROKER_ID}, "it is in sync")
        assert states_of(cluster)[partition].leader == BROKER_ID
        machine.run("systemctl", "stop", "klamm")
        unit, state = machine.unit(), states_of(cluster)[partition]
        assert (unit["ActiveState"], unit["Result"], unit["ExecMainStatus"]) == ("inactive", "success", "0")
        assert (state.leader, BROKER_ID in state.isr) == (1, False), "it handed over before it went"
        assert cluster.registration(BROKER_ID) is None
        _forget(cluster, machine, partition)


def _forget(cluster: Cluster, machine: Machine, partition: Partition) -> None:
    """Leave the cluster as it was: brokers that are gone stay listed, and a deletion waits for its replicas."""
    machine.run("systemctl", "start", "klamm")
    until(lambda: cluster.registration(BROKER_ID) is not None, "it is registered again")
    assert cluster.ask(1, f"/v1/topics/{partition[0]}", method="DELETE")[0] in (200, 202, 204)
    until(lambda: partition not in states_of(cluster), "the topic is deleted")
    machine.run("systemctl", "stop", "klamm")
    until(lambda: cluster.ask(1, f"/v1/brokers/{BROKER_ID}", method="DELETE")[0] in (200, 204), "it is forgotten")


def _is_confined(machine: Machine) -> None:
    """A user of its own, no capability, its state in its own folder, nothing else to write to."""
    status = machine.run("cat", f"/proc/{machine.unit()['MainPID']}/status")
    uid = int(re.findall(r"^Uid:\s+(\d+)", status, re.MULTILINE)[0])
    assert 61184 <= uid <= 65519, "no dynamic user"
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    owners = machine.run("stat", "--format=%u %a", "/var/lib/private/klamm", "/var/lib/private/klamm/state-change.log")
    assert owners.splitlines() == [f"{uid} 750", f"{uid} 600"]
