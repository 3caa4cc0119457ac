"""What a cluster of the integration tests did, held against the rules: no process met a bug, and no rule was broken.

It asks nobody and changes nothing: the cluster has ended, and its evidence lies on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.checker.evidence import history_of
from tests.faults.checker.verdict import judge, report

if TYPE_CHECKING:
    from tests.integration.cluster import Cluster


def assert_well_behaved(cluster: Cluster) -> None:
    """See `tests/faults/checker`; a cluster that is not to be judged says so by `is_judged`."""
    bugs = [bug for broker in cluster.brokers.values() for bug in broker.bugs()]
    assert not bugs, "\n".join(bugs)
    if cluster.is_judged:
        history = history_of(
            cluster.servers,
            cluster.chroot,
            [one.folder for one in cluster.brokers.values()],
            session_timeout_ms=cluster.settings.session_timeout_ms,
            unclean_default=cluster.settings.properties.get("unclean.leader.election.enable") == "true",
        )
        if history.commits:
            findings = judge(history)
            assert not findings, "\n".join(report(history, findings))
