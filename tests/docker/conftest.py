"""Images, built once, and the clusters that the tests of a module share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.cluster import DEPLOY, NETNS_IMAGE, Cluster, running
from tests.docker.invariants import settle

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # it is one more image, and compose takes down its own


@pytest.fixture(scope="session")
def images() -> None:
    """Everything that a cluster and its tests are made of."""
    for command in (
        [str(DEPLOY / "docker.sh"), "build"],
        ["docker", "build", "-q", "-t", NETNS_IMAGE, str(Path(__file__).parent / "netns")],
    ):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, f"{' '.join(command)}: {built.stdout}{built.stderr}"


@pytest.fixture(scope="session")
def three(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three ZooKeeper servers and three brokers, for all tests."""
    with running(f"klammtest{os.getpid()}", 3, tmp_path_factory.mktemp("compose")) as it:
        it.create_topic("payments", partitions=12)
        yield it


@pytest.fixture
def cluster(three: Cluster) -> Cluster:
    """The same, whole again: a test leaves it so (`invariants.watched`), unless it failed."""
    three.mend()
    settle(three)
    return three
