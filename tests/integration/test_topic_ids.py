"""An old tool drops a topic's id just after the controller died: its successor asks the brokers."""

from __future__ import annotations

import json

import pytest

from tests.integration.cluster import Cluster, until

pytestmark = [pytest.mark.java, pytest.mark.slow]
PATH = "/brokers/topics/orders"


async def test_a_topic_keeps_its_id_over_a_failover_during_which_a_tool_dropped_it(cluster: Cluster) -> None:
    await cluster.start()
    assert await cluster.controller.create_topic("orders", partitions=3) == 201
    await cluster.whole()
    old, dead = cluster.order.claims()[-1], cluster.controller

    async def znode() -> dict[str, object]:
        return dict(json.loads((await cluster.zookeeper("get", PATH))[0]))

    before = await znode()
    await dead.kill()
    await cluster.zookeeper("set", PATH, json.dumps({"version": 1, "partitions": before["partitions"]}).encode())
    await cluster.claim_after(old)

    async def has_an_id() -> bool:
        return "topic_id" in await znode()

    await until(has_an_id, "it has an id again")
    assert (await znode())["topic_id"] == before["topic_id"]
    await cluster.start(dead.broker_id)
    assert dead.log("strays.set_aside") == []
    assert {tuple(sorted(state.isr)) for state in (await cluster.states()).values()} == {(1, 2, 3)}
