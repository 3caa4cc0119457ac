"""`klamm up`, a kill, `klamm report`: a user's first commands, and then the page and the dashboard's link; and the
aggregates that a Spark job beside it kept of the same logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.ports import free_port
from tests.lab_support import free_port_base
from tests.waiting import DEADLINE_S, waited_for

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

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
    subprocess.run([KLAMM, "down"], env=environment, cwd=tmp_path, capture_output=True, check=True, timeout=180)


@pytest.mark.long
def test_a_kill_is_in_the_report_that_the_dashboard_links(surroundings: dict[str, str], tmp_path: Path) -> None:
    def run(*words: str) -> str:
        command = [KLAMM, *words]
        done = subprocess.run(
            command, env=surroundings, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    run("up", "--aggregate")
    run("topics", "create", "orders", "--partitions", "6", "--replication-factor", "3")
    run("wait", "--for", "healthy", "--timeout", "60s")
    killed = json.loads(run("history", "-o", "json"))[-1]["broker_id"]
    run("kill", str(killed))
    run("wait", "--for", "controller", "--timeout", "60s")
    run("start", str(killed))
    run("wait", "--for", "healthy", "--timeout", "60s")
    assert run("report").startswith("Known for certain: Over. 2 partitions without a leader at some time")
    report = tmp_path / "var" / "report"
    summary = json.loads((report / "report.json").read_text())["summary"]
    assert summary["Which broker first?"].startswith(f"Broker {killed}, the controller, was lost: last heard")
    assert summary["Is it over?"].startswith("Yes")
    base = f"http://127.0.0.1:{int(surroundings['KLAMM_UP_PORT_BASE']) + killed}"
    with urllib.request.urlopen(f"{base}/v1/reports/latest", timeout=DEADLINE_S) as page:
        assert page.read() == (report / "report.html").read_bytes()
    with urllib.request.urlopen(f"{base}/", timeout=DEADLINE_S) as dashboard:
        assert b'href="/v1/reports/latest"' in dashboard.read()
    tables = json.loads((report / "report.json").read_text())["tables"]
    outages = {(one["topic"], one["partition"], one["leader"]) for one in tables["partition_outages"]}
    moves = Counter[tuple[str, ...]]()
    for one in tables["state_transitions"]:
        moves[one["source"], one["target"], one["cause"]] += one["times"]

    def kept() -> dict[str, Any] | None:
        with urllib.request.urlopen(f"{base}/v1/aggregates", timeout=DEADLINE_S) as said:
            found: dict[str, Any] | None = json.load(said)["aggregates"]
        return found

    def is_all_kept() -> bool:
        found = kept()
        return found is not None and found["events"] > 0 and moves_in(found) >= moves

    waited_for(is_all_kept, f"the report's moves are kept: {moves}, and not only {kept()}", within_s=240)
    found = kept()
    assert found is not None
    assert found["kept_by"].startswith("Spark ")
    assert {(one["topic"], one["partition"], one["leader"]) for one in found["latest"]} >= outages
    # nothing rests on it
    [pid] = [one["pid"] for one in json.loads(run("ps", "-o", "json"))["processes"] if one["name"] == "aggregates"]
    os.kill(pid, signal.SIGKILL)
    waited_for(lambda: "exited" in run("ps"), "it is seen to have ended")
    run("wait", "--for", "healthy", "--timeout", "60s")
    assert moves_in(kept() or {}) >= moves_in(found)


def moves_in(found: dict[str, Any]) -> Counter[tuple[str, ...]]:
    return Counter({(one["source"], one["target"], one["cause"]): one["times"] for one in found["moves"]})
