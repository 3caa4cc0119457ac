"""The examples for authors of clients in `docs/examples` hold: librdkafka and Kafka's Java client in trouble."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerstub.lab import remote
from brokerstub.lab.java import find_java
from brokerstub.lab.kafka import fetched
from brokerstub.lab.pytest_plugin import KlammCluster
from tests.real_brokers.cluster import JARS

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CLIENT = "4.3.0"

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KlammCluster]:
    cluster = KlammCluster(tmp_path / "var", brokers=3)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.end()


def test_the_example_for_confluent_kafka_passes_with_the_plugin(tmp_path: Path) -> None:
    """In a project of its own, which knows nothing of ours."""
    example = tmp_path / "test_confluent_kafka.py"
    example.write_text((EXAMPLES / example.name).read_text())
    base = tmp_path / "base"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "brokerstub.lab.pytest_plugin", f"--basetemp={base}"]
    try:
        done = subprocess.run(
            [*words, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
        )
    finally:
        for lock in base.glob("*/lab.lock"):
            remote.end(lock.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.maven
def test_the_example_for_the_java_client_passes(cluster: KlammCluster, tmp_path: Path) -> None:
    installed = asyncio.run(fetched(JARS, f"tools-{CLIENT}", [("org.apache.kafka", "kafka-tools", CLIENT)]))
    words = [find_java(), "-Xmx256m", "-cp", f"{installed}/*", str(EXAMPLES / "Trouble.java")]
    words += [cluster.bootstrap_servers, cluster.supervisor]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all of it held" in done.stdout
