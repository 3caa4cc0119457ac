"""The images: their content, and the rights and secrets of their containers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import docker
import pytest

from tests.docker.cluster import Cluster

pytestmark = pytest.mark.docker

ROOT: Final = Path(__file__).parents[2]
FAILING: Final = """\
import pytest
from tests.docker.cluster import Cluster

@pytest.fixture
def cluster():
    return Cluster("{project}", 3, 0, 0)

def test_that_fails(cluster):
    assert False
"""


def test_the_brokers_image_is_small_and_has_only_a_brokers_files(images: None) -> None:
    image = docker.from_env().images.get("klamm")
    assert image.attrs["Size"] < 300e6
    assert (image.attrs["Config"]["User"], image.attrs["Config"]["Healthcheck"]["Test"][0]) == ("klamm", "CMD")
    found = docker.from_env().containers.run(
        "klamm",
        ["-c", "command -v java curl wget gcc; find / -xdev -type d -iname 'pyspark*'"],
        entrypoint="bash",
        user="root",
        labels=["klamm.tests"],
        remove=True,
    )
    assert found == b""
    packages = docker.from_env().containers.run(
        "klamm",
        ["-c", "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"],
        entrypoint="/opt/klamm/bin/python3",
        labels=["klamm.tests"],
        remove=True,
    )
    assert b"aiohttp" in packages
    assert not {b"pyspark", b"pandas", b"pyarrow", b"pytest", b"pip"} & set(packages.split())


def test_a_process_in_a_container_is_a_user_without_privileges(cluster: Cluster) -> None:
    for container in cluster.containers():
        status = str(container.exec_run(["sh", "-c", "cat /proc/[0-9]*/status"]).output, "utf-8")
        uids = set(re.findall(r"^Uid:\s+(\d+)", status, re.MULTILINE))
        assert uids in ({"1000"}, {"1001"}), f"{container.name}: {uids}"
        assert set(re.findall(r"^CapEff:\s+(\w+)", status, re.MULTILINE)) == {"0" * 16}
        assert set(re.findall(r"^CapBnd:\s+(\w+)", status, re.MULTILINE)) == {"0" * 16}
        assert set(re.findall(r"^NoNewPrivs:\s+(\d)", status, re.MULTILINE)) == {"1"}


def test_everything_is_published_on_loopback_only_and_the_network_between_the_nodes_leads_nowhere(
    cluster: Cluster,
) -> None:
    for container in cluster.containers():
        published = [one for ports in container.attrs["NetworkSettings"]["Ports"].values() for one in ports or []]
        assert {one["HostIp"] for one in published} == {"127.0.0.1"}, container.name
    assert docker.from_env().networks.get(f"{cluster.project}_cluster").attrs["Internal"] is True


def test_no_key_is_in_the_engines_description_of_a_container_nor_in_a_log(cluster: Cluster) -> None:
    keys = [cluster.key("api-token"), cluster.key("rpc-secret")]
    assert [len(key) for key in keys] == [64, 64]
    for container in cluster.containers():
        shown = json.dumps(container.attrs) + str(container.top()) + container.logs().decode()
        assert not [key for key in keys if key in shown], container.name
    listed = cluster.container("broker1").exec_run(["stat", "--format=%a %U", "/etc/klamm/keys/api-token"]).output
    assert listed == b"600 klamm\n"


def test_a_failed_test_shows_the_log_of_every_container(cluster: Cluster, tmp_path: Path) -> None:
    """CI has nothing else to go by: the containers are gone by then."""
    (tmp_path / "test_failing.py").write_text(FAILING.format(project=cluster.project))
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.docker.conftest", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    for container in cluster.containers():
        assert f"--- {container.name}: running, healthy, exit code 0, 0 restarts" in done.stdout
    assert re.search(r'"event": "[a-z]+\.[a-z]+"', done.stdout), "the brokers' own words"
