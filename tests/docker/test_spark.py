"""`klamm report` on the Spark cluster of the compose file, master and two workers in containers of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from sparkjobs.tables.gold import GOLD
from tests.docker.cluster import Cluster, until
from tests.docker.compose import beside
from tests.docker.files import take
from tests.docker.invariants import settle

pytestmark = [pytest.mark.docker, pytest.mark.long]

ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = ("spark-worker1", "spark-worker2")
MASTER: Final = "spark://spark-master.cluster:7077"


def test_a_report_by_the_spark_cluster_is_the_one_made_locally(cluster: Cluster, tmp_path: Path) -> None:
    """Of the logs of these brokers, with a failover in them."""
    holder, epoch = until(cluster.seat, "a broker holds the seat")
    cluster.kill(f"broker{holder}")  # so that there is something to report
    until(lambda: (seat := cluster.seat()) and seat[1] > epoch, "another one takes over")
    cluster.start(f"broker{holder}")
    settle(cluster)
    with beside(cluster, "spark", "spark-master", *WORKERS):
        # the brokers go on writing theirs
        in_spark(cluster, "sh", "-c", "mkdir /reports/logs && cp -r /var/lib/klamm/broker-* /reports/logs")
        in_spark(cluster, "klamm", "report", "/reports/logs", "--master", MASTER, "--out", "/reports/out")
        for worker in WORKERS:
            assert b"Asked to launch executor" in cluster.container(worker).logs(), f"{worker} did nothing"
        take(cluster.container("spark-master"), "/reports", tmp_path)
    local = tmp_path / "local"
    words = [sys.executable, "-m", "sparkjobs", "report", str(tmp_path / "reports" / "logs"), "--engine", "local"]
    subprocess.run([*words, "--out", str(local)], check=True, capture_output=True, timeout=300, cwd=ROOT)
    are_equal(tmp_path / "reports" / "out", local, tmp_path)


def are_equal(by_cluster: Path, local: Path, here: Path) -> None:
    """Page, JSON, digest and each table of gold; only the folder of the logs and the engine may differ."""
    concluded = re.compile(r"Concluded by [^<]*\.")
    for file in ("report.html", "report.json", "digest.txt"):
        ours = (by_cluster / file).read_text().replace("/reports/", f"{here}/reports/")
        assert concluded.sub("", ours) == concluded.sub("", (local / file).read_text()), file
    said = [concluded.findall((folder / "report.html").read_text()) for folder in (by_cluster, local)]
    assert [len(one) for one in said] == [1, 1]
    assert said[0][0].endswith("on a cluster.")
    assert said[1][0].endswith("without Spark.")
    report = json.loads((local / "report.json").read_text())
    assert report["tables"]["partition_outages"] or report["tables"]["leader_changes"], "nothing happened in those logs"
    tables = sorted(path.stem for path in (local / "gold").iterdir())
    assert tables == sorted(GOLD)
    for name in tables:
        assert pq.read_table(by_cluster / "gold" / f"{name}.parquet") == pq.read_table(
            local / "gold" / f"{name}.parquet"
        )
    assert sorted(one.name for one in by_cluster.iterdir()) == sorted(one.name for one in local.iterdir())


def in_spark(cluster: Cluster, *words: str) -> str:
    said = cluster.container("spark-master").exec_run(["spark", *words])
    assert said.exit_code == 0, f"{' '.join(words)}: {said.output.decode()[-4_000:]}"
    return str(said.output, "utf-8")
