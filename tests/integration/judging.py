"""The history of a cluster of the integration tests, held against the rules: no process met a bug, no rule was broken.

It asks no broker and changes nothing: the cluster has ended, and its evidence lies on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from brokerstub.notifications import writes_directly
from tests.faults.checker.evidence import history_of
from tests.faults.checker.verdict import judge, report

if TYPE_CHECKING:
    from tests.integration.cluster import Cluster


#: no files are left; and the error of Python's asyncio then, a hundred times, with a listener closed meanwhile
NO_BUGS = ("[Errno 24]", "BaseSelectorEventLoop._start_serving(")


def bugs_in(folder: Path) -> list[str]:
    """Returns the lines that the processes of a broker printed with a traceback."""
    path = folder / "broker.log"
    return bugs_among(path.read_text().splitlines() if path.exists() else [])


def bugs_among(lines: Iterable[str]) -> list[str]:
    return [line[-4_000:] for line in lines if "Traceback" in line and not any(one in line for one in NO_BUGS)]


def assert_well_behaved(cluster: Cluster) -> None:
    """See `tests/faults/checker`."""
    bugs = [bug for broker in cluster.brokers.values() for bug in bugs_in(broker.folder)]
    assert not bugs, "\n".join(bugs)
    properties = cluster.settings.properties
    history = history_of(
        cluster.servers,
        cluster.chroot,
        [one.folder for one in cluster.brokers.values()],
        calls=cluster.calls,
        has_direct_leaders=writes_directly(properties.get("inter.broker.protocol.version", "3.9")),
        session_timeout_ms=cluster.settings.session_timeout_ms,
        unclean_default=properties.get("unclean.leader.election.enable") == "true",
        **cluster.known,
    )
    history.rpcs = list(cluster.witness.completed(history.rpcs))
    history.heard, history.broker_requests = cluster.witness.told, cluster.witness.broker_requests
    history.sees, history.unfollowed = "ways", cluster.witness.unfollowed
    if history.commits:
        findings = judge(history)
        assert not findings, "\n".join(report(history, findings))
