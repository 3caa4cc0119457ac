"""Logs in a store that is no folder of anybody's: HDFS, with two data nodes, read by a Spark cluster of a master and
two workers, each a process of its own. The report is the one that is made here of the same files.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from brokerstub.lab.kafka import fetched
from tests.spark.test_spark_submit import DEADLINE_S, ROOT, run, running, said
from tests.waiting import waited_for

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long, pytest.mark.timeout(1_800)]

LOGS = ROOT / "tests" / "data" / "kafka-older" / "2.8.2"
#: smaller than HDFS has them by default: a log lies in several
BLOCK = 1 << 16


@pytest.fixture(scope="module")
def classpath() -> str:
    """PySpark brings Hadoop's client, and Maven the servers of the same release."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    [client] = jars.glob("hadoop-client-api-*.jar")
    release = client.stem.removeprefix("hadoop-client-api-")
    artifact = ("org.apache.hadoop", "hadoop-client-minicluster", release)
    servers = asyncio.run(fetched(ROOT / "var" / "kafka", f"hdfs-{release}", [artifact]))
    return f"{servers}/hadoop-client-minicluster-{release}.jar:{jars}/*"


@pytest.fixture
def hdfs(classpath: str, tmp_path: Path) -> Iterator[str]:
    """A name node and two data nodes on loopback; its address."""
    details = tmp_path / "details.json"
    words = ["-format", "-datanodes", "2", "-writeDetails", str(details)]
    for setting in (
        f"hdfs.minidfs.basedir={tmp_path}/hdfs",
        "dfs.replication=2",
        "dfs.namenode.fs-limits.min-block-size=4096",
    ):
        words += ["-D", setting]
    with (tmp_path / "hdfs.log").open("wb") as out:
        manager = [*java(classpath), "org.apache.hadoop.test.MiniDFSClusterManager", *words]
        process = subprocess.Popen(manager, stdout=out, stderr=out, cwd=tmp_path)
    try:
        waited_for(lambda: details.exists() and details.read_text(), "HDFS is there", within_s=DEADLINE_S)
        yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def java(classpath: str) -> list[str]:
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", classpath]


def test_two_workers_report_of_logs_in_hdfs_what_this_machine_reports_of_the_files(
    tmp_path: Path, classpath: str, hdfs: str
) -> None:
    for broker in ("broker1", "broker2", "broker3"):
        (tmp_path / "logs" / broker).mkdir(parents=True)
        for log in (LOGS / broker).glob("*.gz"):
            content = log.read_bytes()
            target = tmp_path / "logs" / broker / (log.name if broker == "broker2" else log.stem)
            target.write_bytes(content if broker == "broker2" else gzip.decompress(content))
    (tmp_path / "core-site.xml").write_text("<configuration/>")  # the shell asks for one
    classpath = f"{tmp_path}:{classpath}"
    put = ["org.apache.hadoop.fs.FsShell", "-D", f"dfs.blocksize={BLOCK}", "-put", str(tmp_path / "logs"), f"{hdfs}/"]
    run([*java(classpath), *put], tmp_path, os.environ)
    assert max(path.stat().st_size for path in (tmp_path / "logs").rglob("*.log")) > BLOCK
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"SPARK_DAEMON_MEMORY": "256m", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    report = [sys.executable, "-m", "sparkjobs", "report"]
    with ExitStack() as cluster:
        master = ("org.apache.spark.deploy.master.Master", *ports)
        cluster.enter_context(running(tmp_path / "master.log", environment, *master))
        address = said(tmp_path / "master.log", r"Starting Spark master at (spark://[\d.]+:\d+)")[1]
        for number in (1, 2):
            worker = ("org.apache.spark.deploy.worker.Worker", *ports, "--cores", "1", "--memory", "1g")
            log = tmp_path / f"worker{number}.log"
            work = ("--work-dir", str(tmp_path / f"work{number}"), address)
            cluster.enter_context(running(log, environment, *worker, *work))
            said(log, "Successfully registered with master")
        run([*report, f"{hdfs}/logs", "--master", address, "--out", str(tmp_path / "cluster")], ROOT, environment)
        for number in (1, 2):
            assert "Asked to launch executor" in (tmp_path / f"worker{number}.log").read_text()
    run([*report, str(tmp_path / "logs"), "--engine", "local", "--out", str(tmp_path / "here")], ROOT, os.environ)
    by_cluster, here = ((tmp_path / name / "digest.txt").read_text() for name in ("cluster", "here"))
    assert by_cluster == here
