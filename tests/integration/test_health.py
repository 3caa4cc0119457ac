"""Without a controller no broker reports green, on real processes and a real ZooKeeper."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.cluster import Cluster, until

pytestmark = [pytest.mark.java]


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_without_a_controller_no_process_says_green(cluster: Cluster, how: str) -> None:
    await cluster.start()
    assert await cluster.controller.create_topic("orders") == 201
    await cluster.whole()
    before = cluster.order.claims()[-1]
    killed = cluster.controller
    others = [broker for broker in cluster.running if broker is not killed]
    assert [(await broker.get("/v1/cluster"))["health"] for broker in others] == [
        {"status": "green", "reasons": []}
    ] * 2
    if how == "kill":
        await killed.kill()
    else:
        killed.freeze()
    said = Counter[str]()

    async def has_another() -> bool:
        for broker in others:
            body = await broker.get("/v1/cluster")
            if body is not None:
                said[body["health"]["status"]] += 1
                # a broker that reports green has asked another controller
                assert body["health"]["status"] != "green" or body["controller"]["broker_id"] != killed.broker_id
                if body["health"]["status"] == "unknown":
                    assert body["health"]["reasons"][0].startswith("no controller for ")
                assert (await broker.get("/livez"))["status"] == "live"
        return cluster.order.claims()[-1].controller_epoch > before.controller_epoch

    await until(has_another, "another controller is there")
    assert said["unknown"] > 0
    if how == "kill":
        await killed.start()
    else:
        killed.thaw()
    await cluster.whole()
