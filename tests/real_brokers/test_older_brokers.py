"""Brokers of older versions of Kafka, each told in the versions of the requests that it knows, and led through a death.

One of each set of versions that 3.9.1 is not told in: 2.4 (the oldest), 2.8 (topic ids), 3.3 (recovery states).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_brokers.cluster import a_cluster
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("version", "level"), [("2.4.1", "2.4"), ("2.8.2", "2.8"), ("3.3.2", "3.3")])
async def test_an_older_broker_is_led_and_its_controller_relieved_and_called_back(
    version: str, level: str, tmp_path: Path
) -> None:
    async with a_cluster(tmp_path, protocol=level, version=version) as cluster:
        await cluster.create("before", "--partitions", "2", "--replication-factor", "3")
        taken = await cluster.controller.take_over()
        # brokers below 2.8 give topics no ids, and pass over those that we give
        given = ["/brokers/topics/before"] if level == "2.4" else []
        assert (taken["check"]["reasons"], taken["check"]["writes"]) == ([], given)
        await cluster.create("orders", "--partitions", "3", "--replication-factor", "3")
        await until(lambda: cluster.is_in_sync("orders", 1, 2, 3), "all replicas of orders are in sync")
        await cluster.brokers[2].kill()
        await until(lambda: 2 not in cluster.leaders("orders"), "others lead")
        assert len(await cluster.produce("orders", 100)) == 100
        await cluster.brokers[2].start()
        await until(lambda: cluster.is_in_sync("orders", 1, 2, 3), "it is back in each ISR")
        assert await cluster.consume("orders", 100) == 100
        await cluster.tool("TopicCommand", "--delete", "--topic", "before")
        await until(lambda: cluster.read("/brokers/topics/before") is None, "the topic is gone")
        assert (await cluster.controller.ask("POST", "/v1/handback", {}))[0] == 200
        await until(lambda: (cluster.read("/controller") or {}).get("brokerid") in (1, 2, 3), "one of Kafka's is back")
        await cluster.create("theirs", "--partitions", "3", "--replication-factor", "3")
        await until(lambda: cluster.is_in_sync("theirs", 1, 2, 3), "it leads the partitions that ours led")
