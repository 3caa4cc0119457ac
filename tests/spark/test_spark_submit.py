"""A Spark cluster of a master and a worker, processes of their own, that has nothing of ours but the sent package: it
reports the same as the local engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkjobs.commands.inputs import LogInputs
from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.report.write import digest_of
from tests.spark.plain import answers_for
from tests.spark.reading import silver_of
from tests.waiting import waited_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests" / "data" / "kafka-3.9.1-info" / "broker5"
#: the package in this environment is not there: it can only come from the wheel
NOT_INSTALLED = "import sys\nsys.meta_path = [one for one in sys.meta_path if 'editable' not in repr(one)]\n"
DEADLINE_S = 120.0


@contextmanager
def running(log: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[None]:
    """One of Spark's own processes; it ends with the test."""
    with log.open("wb") as out:
        process = subprocess.Popen([script("spark-class"), *arguments], stdout=out, stderr=out, env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def script(name: str) -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / name)


def said(log: Path, pattern: str) -> re.Match[str]:
    """Returns the output of the process, once it has come."""
    found: re.Match[str] = waited_for(
        lambda: re.search(pattern, log.read_text()), f"{pattern} in {log}", within_s=DEADLINE_S
    )
    return found


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-q"]
    subprocess.run([*build, "-w", str(tmp_path), str(ROOT)], check=True, timeout=200, capture_output=True)
    [path] = tmp_path.glob("klamm-*.whl")
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """On loopback, in haste, and without this package."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NOT_INSTALLED)
    own = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "site"), "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **own, "SPARK_DAEMON_MEMORY": "256m", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}


def run(command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    # where in Spark's own code it happened is the most of it, and says the least
    complaint = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("\tat "))
    assert done.returncode == 0, complaint[-3_000:]


def submit(master: str, wheel: Path, environment: dict[str, str], out: Path) -> list[dict[str, str]]:
    """A report by that cluster. Returns the settings of the sessions that it made."""
    with zipfile.ZipFile(wheel) as packed:
        (out / "report.py").write_bytes(packed.read("sparkjobs/__main__.py"))
    (out / "history").mkdir()
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{out / 'history'}"}
    settings |= {"spark.eventLog.compress": "false", "spark.executor.memory": "512m"}
    settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= {"spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"]}
    command = [script("spark-submit"), "--master", master]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["--py-files", str(wheel), str(out / "report.py"), "report", str(LOGS), "--out", str(out)]
    run(command, out, environment)
    told = "".join(path.read_text() for path in (out / "history").rglob("events_*"))
    properties = (json.loads(line).get("Spark Properties") for line in told.splitlines())
    return [one for one in properties if one]


def test_a_master_and_a_worker_without_this_package_report_for_a_submitted_wheel_and_for_a_driver_that_names_them(
    tmp_path: Path, wheel: Path, environment: dict[str, str]
) -> None:
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    (tmp_path / "out").mkdir()
    with running(tmp_path / "master.log", environment, "org.apache.spark.deploy.master.Master", *ports):
        master = said(tmp_path / "master.log", r"Starting Spark master at (spark://[\d.]+:\d+)")[1]
        worker = ("org.apache.spark.deploy.worker.Worker", *ports, "--cores", "2", "--memory", "1g")
        with running(tmp_path / "worker.log", environment, *worker, "--work-dir", str(tmp_path / "work"), master):
            said(tmp_path / "worker.log", "Successfully registered with master")
            sessions = submit(master, wheel, environment, tmp_path / "out")
            ours = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
            report = [sys.executable, "-m", "sparkjobs", "report", str(LOGS), "--master", master]
            run([*report, "--out", str(tmp_path / "named")], ROOT, ours)
    assert {one["spark.master"] for one in sessions} == {master}, "the one it was given"
    bundle = LogInputs(survey(find_logs([str(LOGS)]), "kafka", Zones()))
    expected = digest_of(answers_for(silver_of(bundle).ingested.events))
    for out in ("out", "named"):
        assert (tmp_path / out / "digest.txt").read_text().strip() == expected, out
