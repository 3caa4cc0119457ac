"""All brokers restarted in turn, as an upgrade does it, while topics are created all the time."""

from __future__ import annotations

import threading

import pytest

from tests.docker.cluster import Cluster, NoAnswerError, until
from tests.docker.invariants import watched

pytestmark = pytest.mark.docker


class Creator(threading.Thread):
    """Creates topic after topic, asking whichever broker answers."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.over = threading.Event()
        self.created: list[str] = []

    def run(self) -> None:
        while not self.over.wait(0.05):
            name = f"rolling-{len(self.created)}"
            if any(self._is_created_by(broker_id, name) for broker_id in self._cluster.broker_ids):
                self.created.append(name)

    def _is_created_by(self, broker_id: int, name: str) -> bool:
        try:
            status = self._cluster.try_to_create(name, by=broker_id, timeout_s=3, replication_factor=2)
            return status in (200, 201)
        except NoAnswerError:
            return False


def _is_whole(cluster: Cluster, broker_id: int) -> bool:
    """The condition before the next broker is restarted: `klamm wait --for healthy`."""
    try:
        return bool(cluster.ask(broker_id, "/healthz/cluster")[1]["status"] == "green")
    except NoAnswerError:
        return False


def test_a_rolling_restart_hands_all_over_and_topics_are_created_all_the_way(cluster: Cluster) -> None:
    """A controlled shutdown hands leaderships and the seat over: no session has to expire."""
    with watched(cluster):
        creator = Creator(cluster)
        creator.start()
        try:
            for broker_id in cluster.broker_ids:
                before, granted = len(creator.created), cluster.said(f"broker{broker_id}", "shutdown.granted")
                cluster.container(f"broker{broker_id}").stop(timeout=45)
                assert cluster.container(f"broker{broker_id}").attrs["State"]["ExitCode"] == 0, "no controlled shutdown"
                assert cluster.said(f"broker{broker_id}", "shutdown.granted") == granted + 1, "it did not hand over"
                cluster.start(f"broker{broker_id}")
                until(lambda asked=broker_id: _is_whole(cluster, asked), f"broker {broker_id} is back in every ISR")
                assert len(creator.created) > before, "nothing was created meanwhile"
        finally:
            creator.over.set()
            creator.join()
    told = cluster.told(1)
    assert all((name, 0) in told for name in creator.created)
