"""A Spark cluster of a master and a worker, processes of their own: its answers are the local engine's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkjobs.answers import local
from sparkjobs.files import Zones, find_logs, survey
from sparkjobs.local.ingest import ingest
from sparkjobs.report.write import digest_of

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests" / "data" / "kafka-3.9.1-info" / "broker5"
DEADLINE_S = 120.0
POLL_S = 0.2


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[None]:
    """One of Spark's own processes, on loopback; it ends with the test."""
    import pyspark

    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    settings = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [script, *arguments], stdout=out, stderr=out, env={**os.environ, **settings}, cwd=log.parent
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def said(log: Path, pattern: str) -> re.Match[str]:
    """What the process wrote, once it has."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {pattern} in {log.read_text()[-2_000:]}"
        time.sleep(POLL_S)
    return found


def test_a_master_and_a_worker_answer_as_one_process_does(tmp_path: Path) -> None:
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with running(tmp_path / "master.log", "org.apache.spark.deploy.master.Master", *ports):
        master = said(tmp_path / "master.log", r"Starting Spark master at (spark://[\d.]+:\d+)")[1]
        worker = ("org.apache.spark.deploy.worker.Worker", *ports, "--cores", "2", "--memory", "1g")
        with running(tmp_path / "worker.log", *worker, "--work-dir", str(tmp_path / "work"), master):
            said(tmp_path / "worker.log", "Successfully registered with master")
            done = subprocess.run(
                [sys.executable, "-m", "tests.spark.on_a_cluster", master, str(LOGS)],
                capture_output=True,
                text=True,
                timeout=300,
                cwd=ROOT,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3_000:]
    events = ingest(survey(find_logs([str(LOGS)]), "c", Zones())).events
    assert done.stdout.strip() == digest_of(local.answers_for(events))
