"""Znodes that the brokers' own user may not read, and names that are malformed, on a real ZooKeeper: left out by name,
by a controller that stays, and taken up without a restart when they are put right."""

from __future__ import annotations

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.integration.cluster import Cluster, until

pytestmark = pytest.mark.java

ALL_BUT_READ = [make_acl("world", "anyone", write=True, create=True, delete=True, admin=True)]


async def test_a_topic_that_may_not_be_read_is_left_out_by_name_and_the_controller_stays(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.serve("hidden")
    await cluster.serve("beside")
    await cluster.whole()
    await cluster.zookeeper("set_acls", "/brokers/topics/hidden", ALL_BUT_READ)
    await cluster.zookeeper("create", f"/brokers/ids/{'9' * 5_000}", b"{}")
    await cluster.zookeeper("create", "/brokers/ids/4294967297", b"{}")
    cluster.known["hidden_topics"] = frozenset({"hidden"})
    before = cluster.order.claims()[-1]

    await cluster.zookeeper("delete", "/controller")
    await cluster.claim_after(before)

    async def reasons() -> list[str]:
        verdict = await cluster.controller.get("/healthz/cluster") or {"reasons": []}
        return [str(one) for one in verdict["reasons"]]

    async def is_said() -> bool:
        said = await reasons()
        return any("hidden" in one and "READ" in one for one in said) and any("4294967297" in one for one in said)

    await until(is_said, "the topic and the broker are named in health")
    await cluster.serve("new")

    async def is_served() -> bool:
        told = [await broker.told() for broker in cluster.running]
        return all({("beside", 0), ("new", 0)} <= one.keys() for one in told)

    await until(is_served, "other topics are told")
    assert [claim.controller_epoch for claim in cluster.order.claims()] == [
        *range(1, before.controller_epoch + 1),
        before.controller_epoch + 1,
    ]

    await cluster.zookeeper("set_acls", "/brokers/topics/hidden", OPEN_ACL_UNSAFE)
    await cluster.zookeeper("delete", f"/brokers/ids/{'9' * 5_000}")
    await cluster.zookeeper("delete", "/brokers/ids/4294967297")
    await cluster.whole()
    assert cluster.order.claims()[-1].controller_epoch == before.controller_epoch + 1
