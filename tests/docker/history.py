"""The history of a compose cluster from its first moment on, held against the rules of `tests/faults/checker`.

ZooKeeper's transaction logs and the brokers' state-change logs are copied out of the containers, which may be running
or killed. It changes nothing. `invariants.py` holds the checks that need a running cluster.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

from sparkjobs.records.zookeeper_files import TransactionLogError
from sparkjobs.records.zookeeper_files import history as operations_of
from tests.docker.cluster import SERVERS, SESSION_TIMEOUT_S, Cluster
from tests.faults.checker.commits import from_operations
from tests.faults.checker.evidence import BROKERS_KINDS, lines_of, rpc_of
from tests.faults.checker.history import Commit, History, HistoryError
from tests.faults.checker.verdict import judge, report
from tests.integration.judging import bugs_among

VOLUME = "/var/lib/klamm"


def assert_well_behaved(cluster: Cluster) -> None:
    """No rule was broken. A server that was away for long got a snapshot instead of the missed transactions: then
    another server's log is read, and if none is complete, no verdict is possible, and that fails."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _copy(cluster, "broker1", VOLUME, here)
        _assert_no_bugs(cluster)
        lines = [line for broker in sorted(here.glob("*/broker-*")) for line in lines_of(broker)]
        assert lines, "no state-change log was found"
        gaps = []
        for service in SERVERS:
            _copy(cluster, service, "/data/version-2", here / service)
            try:
                history = History(
                    commits=_commits(here / service),
                    rpcs=[rpc_of(line) for line in lines if line["kind"] == "rpc"],
                    lines=[line for line in lines if line["kind"] not in BROKERS_KINDS],
                    session_timeout_ms=round(SESSION_TIMEOUT_S * 1_000),
                )
                findings = judge(history)
            except (TransactionLogError, HistoryError) as error:
                gaps.append(f"{service}: {error}")
                continue
            assert not findings, "\n".join(report(history, findings))
            return
    raise AssertionError(f"no server's log is whole: {gaps}")


def _assert_no_bugs(cluster: Cluster) -> None:
    said = [one.logs().decode(errors="replace").splitlines() for one in cluster.containers()]
    bugs = [bug for lines in said for bug in bugs_among(lines)]
    assert not bugs, "\n".join(bugs)


def _commits(folder: Path) -> list[Commit]:
    commits = from_operations(operations_of(folder))
    if not commits:
        raise HistoryError("nothing was written")
    return commits


def _copy(cluster: Cluster, service: str, path: str, to: Path) -> None:
    """A folder of a container, which need not run."""
    pieces, _ = cluster.container(service).get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        archive.extractall(to, filter="data")
