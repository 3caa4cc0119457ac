"""Images, built once, the clusters that the tests of a module share, and the output when one of them fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.docker import network
from tests.docker.cluster import Cluster
from tests.docker.compose import DEPLOY, running
from tests.docker.invariants import settle

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # it is one more image, and compose takes down its own

#: for a test with its fixtures, images to be built among them: ample on two slow cores
TIMEOUT_S: Final = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A failure in CI must be understood from its output: the containers are gone afterwards."""
    report = yield
    clusters = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Cluster)]
    if report.failed and clusters:
        report.sections.append((f"the containers after {report.when}", clusters[0].story()))
    return report


@pytest.fixture(scope="session")
def images() -> None:
    """Everything that a cluster and its tests are made of."""
    everything = {**os.environ, "COMPOSE_PROFILES": "*"}
    for command in (
        [str(DEPLOY / "docker.sh"), "build"],
        ["docker", "build", "-q", "-t", network.IMAGE, str(Path(__file__).parent / "netns")],
    ):
        built = subprocess.run(command, capture_output=True, text=True, check=False, env=everything)
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
