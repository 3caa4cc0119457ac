"""Real brokers refuse a leader epoch lower than their own: our controller asks, raises it, and all agree."""

from __future__ import annotations

from pathlib import Path
from signal import Signals

import pytest

from tests.real_brokers.cluster import a_cluster, until

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.slow]
STATE = "/kafka/brokers/topics/lost/partitions/0/state"


async def test_a_state_begun_anew_by_kafkas_controller_is_raised_above_the_brokers_leader_epochs(
    tmp_path: Path,
) -> None:
    """The state is deleted together with the seat: one of Kafka's brokers controls, begins at leader epoch 0, and does
    not notice that all refuse it. We take over."""
    async with a_cluster(tmp_path) as cluster:
        await cluster.controller.take_over()
        await cluster.create("lost", "--partitions", "1", "--replication-factor", "3")
        for _ in range(2):
            await until(lambda: cluster.is_in_sync("lost", 1, 2, 3), "all are in sync")
            leader = cluster.brokers[cluster.states("lost")[0]["leader"]]
            await leader.kill()
            await until(lambda gone=leader: cluster.states("lost")[0]["leader"] != gone.broker_id, "another leads")
            await leader.start()
        await until(lambda: cluster.is_in_sync("lost", 1, 2, 3), "all are in sync")
        before = cluster.states("lost")[0]
        assert before["leader_epoch"] >= 2
        await cluster.controller.end(Signals.SIGKILL)  # it would be faster than Kafka's brokers
        transaction = cluster.kazoo.transaction()
        transaction.delete(STATE)
        transaction.delete("/kafka/controller")
        assert not any(isinstance(one, Exception) for one in transaction.commit())
        await until(lambda: (cluster.read("/controller") or {}).get("brokerid") in (1, 2, 3), "one of Kafka's controls")
        await until(lambda: cluster.kazoo.exists(STATE), "it is led anew")
        assert cluster.states("lost")[0]["leader_epoch"] < before["leader_epoch"]
        await cluster.controller.start()
        await cluster.controller.take_over()
        await until(lambda: cluster.states("lost")[0]["leader_epoch"] > before["leader_epoch"], "it is raised")
        assert len(await cluster.produce("lost", 100)) == 100

        async def is_well() -> bool:
            return bool((await cluster.controller.ask("GET", "/healthz/cluster"))[1]["status"] == "green")

        await until(is_well, "no broker refuses anything")
