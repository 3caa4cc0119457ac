"""On a Spark standalone cluster, with processes of its own for master and workers, the answers are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data" / "kafka-3.9.1-info"

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_standalone_cluster_gives_the_bytes_of_the_local_engine(tmp_path: Path) -> None:
    for name, options in (("local", ["--engine", "local"]), ("cluster", ["--master", "local-cluster[2,1,1024]"])):
        command = [sys.executable, "-m", "sparkjobs", "logs", "analyze", str(DATA), "--out", str(tmp_path / name)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stderr
    tables = sorted((tmp_path / "local").iterdir())
    assert len(tables) > 10
    for path in tables:
        assert path.read_bytes() == (tmp_path / "cluster" / path.name).read_bytes(), path.name
