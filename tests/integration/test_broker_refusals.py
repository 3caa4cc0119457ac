"""On real processes and a real ZooKeeper: brokers refuse requests, and all agree in the end."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster, until

pytestmark = pytest.mark.java
STATE = "/brokers/topics/orders/partitions/0/state"


async def test_a_state_that_vanishes_with_the_seat_gets_a_leader_epoch_that_brokers_take(cluster: Cluster) -> None:
    await cluster.start()
    assert await cluster.controller.create_topic("orders") == 201
    await cluster.whole()
    for _ in range(2):  # the leader is killed: the leader epoch rises
        [state] = (await cluster.states()).values()
        leader = cluster.brokers[state.leader]
        await leader.kill()
        await leader.start()
        await cluster.whole()
    [before] = (await cluster.states()).values()
    assert before.leader_epoch > 0
    claim = cluster.order.claims()[-1]
    await cluster.together(("delete", STATE), ("delete", "/controller"))
    await cluster.claim_after(claim)
    await until(cluster.is_agreed, "all agree")
    await cluster.whole()
    [after] = (await cluster.states()).values()
    assert after.leader_epoch > before.leader_epoch
    said = [line["target"] for line in cluster.controller.lines() if line["kind"] == "replica"]
    assert "refused" in said
    assert said.count("refused") == said.count("obeyed")
