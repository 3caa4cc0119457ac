"""Starts a cluster from the compose files that people use, and takes it down again.

Only ports, labels and one time-out are the tests' own; the stream of the logs does not run beside them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from testcontainers.compose import DockerCompose

from tests.docker.cluster import LAG_S, Cluster
from tests.docker.history import assert_well_behaved

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
#: on everything that the tests make, so that nothing can be left unseen (`deploy/docker.sh test`)
LABEL: Final = {"labels": ["klamm.tests"]}


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
    files = ["compose.yaml", *(["compose.large.yaml"] if brokers > 3 else [])]
    (directory / "tests.json").write_text(json.dumps(_labelled(files)))
    files.append(str(directory / "tests.json"))
    env_file = str(directory / "env")
    compose = DockerCompose(str(DEPLOY), compose_file_name=files, env_file=env_file, build=False, wait=True)
    cluster = Cluster(project, brokers, ports, zookeeper_ports, compose.compose_command_property)
    try:
        _start(compose, cluster)
        yield cluster
        assert_well_behaved(cluster)
    finally:
        # of every profile: services started beside it have volumes as well
        ended = _run([*cluster.compose_command, "--profile", "*", "down", "--volumes"])
        assert ended.returncode == 0, ended.stderr


def _start(compose: DockerCompose, cluster: Cluster) -> None:
    try:
        compose.start()
    except subprocess.CalledProcessError as error:
        raise AssertionError(f"the cluster does not start: {error.stderr.decode()}\n{cluster.story()}") from None


def _labelled(files: Sequence[str]) -> dict[str, Any]:
    """All that the files name, labelled; brokers notice a slow follower sooner than after Kafka's 30 s."""
    parts = [yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8")) for name in files]
    services: dict[str, Any] = {}
    for name, service in (item for part in parts for item in part["services"].items()):
        services[name] = dict(LABEL)
        if name == "aggregates":  # it would take a core from clusters that are cut and killed; nothing rests on it
            services[name]["profiles"] = [name]
        if name.startswith("zookeeper"):
            services[name]["environment"] = {"ZOO_PURGE_HOURS": "0"}  # all of its log is evidence
        if name.startswith("broker"):
            own = service["environment"]["KLAMM_SET"]
            services[name]["environment"] = {"KLAMM_SET": f"{own} replica.lag.time.max.ms={LAG_S * 1_000:.0f}"}
    return {
        "services": services,
        "networks": dict.fromkeys(parts[0]["networks"], LABEL),
        "volumes": dict.fromkeys(parts[0]["volumes"], LABEL),
    }


@contextmanager
def beside(cluster: Cluster, profile: str, *services: str) -> Iterator[None]:
    """Services of a profile, healthy, in the same project; gone afterwards."""
    command = [*cluster.compose_command, "--profile", profile]
    try:
        started = _run([*command, "up", "--wait", "--no-build", "--no-deps", *services])
        assert started.returncode == 0, f"{profile} does not start: {started.stderr}\n{cluster.story()}"
        yield
    finally:
        removed = _run([*command, "rm", "--stop", "--force", *services])
        assert removed.returncode == 0, removed.stderr


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=DEPLOY, capture_output=True, text=True, check=False)


def free_port_prefixes(brokers: int) -> tuple[int, int]:
    """Returns first digits of free ports. Containers must keep theirs when they start again, so they are fixed; two
    runs that start together do not look at the same ones first."""
    from brokerstub.lab.ports import is_free

    wanted = [*(80 + number for number in range(1, brokers + 1)), 95]  # 95: Prometheus
    free = (
        prefix for prefix in range(180 + os.getpid() % 100, 320) if all(is_free(prefix * 100 + one) for one in wanted)
    )
    return next(free), next(free)
