"""Real brokers at protocol level 2.6: they are told in the older versions, and write their ISRs themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.real_brokers.cluster import Cluster, Controller, a_cluster
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with a_cluster(tmp_path_factory.mktemp("kafka-2-6"), protocol="2.6") as cluster:
        yield cluster


async def test_a_controller_of_another_level_refuses_to_take_over_with_a_remedy(cluster: Cluster) -> None:
    other = Controller(cluster.directory, cluster.zookeeper, 101, ["--protocol", "3.9"])
    cluster.controllers.append(other)
    await other.start()
    status, body = await other.ask("POST", "/v1/takeover", {})
    assert status == 409
    assert "inter.broker.protocol.version 2.7" in body["detail"]
    assert "--protocol" in body["detail"]
    await other.end()
    assert cluster.read("/controller")["brokerid"] in (1, 2, 3)


async def test_an_isr_shrinks_and_grows_by_znode_and_all_brokers_hear_of_it(cluster: Cluster) -> None:
    await cluster.controller.take_over()
    await cluster.create("old", "--replica-assignment", "1:2:3,2:3:1,3:1:2")
    await until(lambda: cluster.is_in_sync("old", 1, 2, 3), "all are in sync")
    await cluster.brokers[2].kill()
    await until(lambda: 2 not in cluster.leaders("old"), "others lead")
    assert len(await cluster.produce("old", 100)) == 100
    await cluster.brokers[2].start()
    await until(lambda: cluster.is_in_sync("old", 1, 2, 3), "its leaders wrote it back into their ISRs")
    own = (await cluster.controller.ask("GET", "/v1/partitions?topic=old"))[1]["items"]
    versions = {(one["partition"], tuple(sorted(one["isr"]))) for one in own}

    async def is_believed() -> bool:
        items = (await cluster.controller.ask("GET", "/v1/partitions?topic=old"))[1]["items"]
        return all(sorted(one["isr"]) == [1, 2, 3] for one in items)

    await until(is_believed, f"the brokers' announcements are believed, after {versions}")
    assert await cluster.consume("old", 100) == 100
