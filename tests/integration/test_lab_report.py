"""`klamm up`, a kill, `klamm report`: what people do first, and what the page and the dashboard's link then show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerstub.lab.ports import free_port
from tests.lab_support import free_port_base
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

KLAMM = str(Path(sys.executable).with_name("klamm"))


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[dict[str, str]]:
    base = free_port_base(3)
    environment = {
        **os.environ,
        "KLAMM_VAR": str(tmp_path / "var"),
        "KLAMM_UP_PORT_BASE": str(base),
        "KLAMM_UP_KAFKA_PORT_BASE": str(free_port_base(3)),
        "KLAMM_UP_ZOOKEEPER_PORT": str(free_port()),
        "KLAMM_UP_TIMEOUT": "120s",
    }
    yield environment
    subprocess.run([KLAMM, "down"], env=environment, cwd=tmp_path, capture_output=True, check=True, timeout=60)


@pytest.mark.long
def test_a_kill_is_in_the_report_that_the_dashboard_links(surroundings: dict[str, str], tmp_path: Path) -> None:
    def run(*words: str) -> str:
        command = [KLAMM, *words]
        done = subprocess.run(
            command, env=surroundings, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    run("up")
    run("topics", "create", "orders", "--partitions", "6", "--replication-factor", "3")
    run("wait", "--for", "healthy", "--timeout", "60s")
    killed = json.loads(run("history", "-o", "json"))[-1]["broker_id"]
    run("kill", str(killed))
    run("wait", "--for", "controller", "--timeout", "60s")
    run("start", str(killed))
    run("wait", "--for", "healthy", "--timeout", "60s")
    assert run("report").startswith("Over. 2 partitions without a leader at some time")
    report = tmp_path / "var" / "report"
    summary = json.loads((report / "report.json").read_text())["summary"]
    assert summary["Which broker first?"].startswith(f"Broker {killed}, the controller, was lost: last heard")
    assert summary["Is it over?"].startswith("Yes")
    base = f"http://127.0.0.1:{int(surroundings['KLAMM_UP_PORT_BASE']) + killed}"
    with urllib.request.urlopen(f"{base}/v1/reports/latest", timeout=DEADLINE_S) as page:
        assert page.read() == (report / "report.html").read_bytes()
    with urllib.request.urlopen(f"{base}/", timeout=DEADLINE_S) as dashboard:
        assert b'href="/v1/reports/latest"' in dashboard.read()
