"""A znode that may not be written, on a real ZooKeeper: it alone is left out, and it comes along when it is mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Permissions, make_acl, make_digest_acl

from tests.integration.cluster import Cluster, until

pytestmark = pytest.mark.java


@pytest.fixture
async def owner(cluster: Cluster) -> AsyncIterator[KazooClient]:
    """A client that may set any ACL."""
    hosts = ",".join(server.address for server in cluster.servers)
    client = KazooClient(hosts=hosts, auth_data=[("digest", "owner:of the test")])
    await asyncio.to_thread(client.start)
    yield client
    await asyncio.to_thread(client.stop)
    client.close()


def only(*, may: int) -> list[ACL]:
    """The owner may do all, everybody else this."""
    everybody = make_acl("world", "anyone", read=bool(may & Permissions.READ), write=bool(may & Permissions.WRITE))
    return [make_digest_acl("owner", "of the test", all=True), everybody]


async def reasons(cluster: Cluster) -> list[str]:
    verdict: Any = await cluster.controller.get("/healthz/cluster")
    return [] if verdict is None else verdict["reasons"]


async def test_one_state_that_may_not_be_written_is_led_by_the_dead_alone(cluster: Cluster, owner: KazooClient) -> None:
    await cluster.start()
    for topic in ("orders", "users"):
        assert await cluster.brokers[1].create_topic(topic, partitions=6) in (200, 201)
    await cluster.whole()
    victim = next(broker for broker in cluster.running if broker is not cluster.controller)
    led = sorted(key for key, state in (await cluster.states()).items() if state.leader == victim.broker_id)
    assert len(led) > 1
    topic, number = refused = led[0]
    path = f"/brokers/topics/{topic}/partitions/{number}/state"
    (claim,) = cluster.order.claims()
    await asyncio.to_thread(owner.set_acls, cluster.chroot + path, only(may=Permissions.READ))
    await victim.kill()

    async def left() -> list[tuple[str, int]]:
        return sorted(key for key, state in (await cluster.states()).items() if state.leader == victim.broker_id)

    async def is_refused_alone() -> bool:
        return await left() == [refused] and any(path in reason for reason in await reasons(cluster))

    await until(is_refused_alone, "all others are led anew, and the one is named")
    [reason] = [reason for reason in await reasons(cluster) if path in reason]
    assert f"ZooKeeper refuses to write {path}: NoAuth. Give the controller's user permission to write it" in reason
    await asyncio.to_thread(owner.set_acls, cluster.chroot + path, OPEN_ACL_UNSAFE)

    async def is_mended() -> bool:
        return not await left() and not any(path in reason for reason in await reasons(cluster))

    await until(is_mended, "the one is led anew, and no sign is left")
    assert cluster.order.claims() == [claim]
    await cluster.start(victim.broker_id)


async def test_a_foreign_child_below_one_topic_holds_up_no_other_deletion(cluster: Cluster, owner: KazooClient) -> None:
    await cluster.start()
    topics = ["orders", "payments", "users"]
    for topic in topics:
        assert await cluster.brokers[1].create_topic(topic) in (200, 201)
    await cluster.whole()
    await asyncio.to_thread(owner.create, f"{cluster.chroot}/brokers/topics/payments/notes", b"by hand")
    for topic in topics:
        await asyncio.to_thread(owner.create, f"{cluster.chroot}/admin/delete_topics/{topic}", b"")

    async def is_left_alone() -> bool:
        there = await cluster.zookeeper("get_children", "/brokers/topics")
        named = any("/brokers/topics/payments/notes" in reason for reason in await reasons(cluster))
        return there == ["payments"] and named

    await until(is_left_alone, "the others are deleted, and the foreign znode is named")
    await asyncio.to_thread(owner.delete, f"{cluster.chroot}/brokers/topics/payments/notes")
    await cluster.whole()
    assert await cluster.zookeeper("get_children", "/brokers/topics") == []
