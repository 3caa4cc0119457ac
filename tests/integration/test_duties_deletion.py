"""Topics are deleted on real processes: by every way to ask, with brokers down, and when the controller dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Broker, Cluster
from tests.integration.duties import (
    TRANSACTION,
    a_duty_cluster,
    ask,
    items,
    jump_clock,
    kill_when,
    klamm,
    on_disk,
    read,
    topic_id_of,
    with_topics,
    write,
)
from tests.waiting import until

EVERYWHERE = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        yield cluster


async def is_gone(cluster: Cluster, topic: str) -> bool:
    """Nothing of it is left in ZooKeeper."""
    paths = (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}")
    return [await cluster.zookeeper("exists", path) for path in paths] == [None, None, None]


async def deletion_of(cluster: Cluster, topic: str) -> dict[str, Any]:
    return next((one for one in await items(cluster, "/v1/deletions") or [] if one["topic"] == topic), {})


async def until_waiting(cluster: Cluster, topic: str, reason: str) -> None:
    async def is_waiting() -> bool:
        return (await deletion_of(cluster, topic)).get("waits_for") == reason

    await until(is_waiting, f"the deletion of {topic} waits: {reason}")


async def is_in_no_list(cluster: Cluster, topic: str) -> bool:
    """Clients learn that a topic being deleted is gone, and it appears among deletions alone."""
    for broker in cluster.running:
        partitions = (await broker.get(f"/v1/partitions?topic={topic}") or {"items": [""]})["items"]
        topics = {one["topic"] for one in (await broker.get("/v1/topics") or {"items": [{"topic": topic}]})["items"]}
        if partitions or topic in topics:
            return False
    return True


def a_follower(cluster: Cluster) -> Broker:
    return next(one for one in cluster.running if one is not cluster.controller)


async def test_topics_are_deleted_by_a_marker_by_the_api_and_by_the_command(cluster: Cluster) -> None:
    await with_topics(cluster, a=EVERYWHERE, b=EVERYWHERE, c=EVERYWHERE, kept=EVERYWHERE)
    kept = await topic_id_of(cluster, "kept")
    await cluster.zookeeper("create", "/admin/delete_topics/a", b"")
    status, body = await ask(cluster, "DELETE", "/v1/topics/b")
    assert (status, body["topic"]) == (202, "b")
    assert (await klamm(cluster, "topics", "delete", "c", "--wait"))["status"] == "deleted"
    for topic in "abc":
        await until(partial(is_gone, cluster, topic), "it is gone")
    await cluster.whole()
    for broker in cluster.running:
        assert {topic for topic, _ in await broker.told()} == {"kept"}
        assert on_disk(broker) == dict.fromkeys([(kept, 0), (kept, 1), (kept, 2)], False)
    status, body = await ask(cluster, "DELETE", "/v1/topics/b")
    assert (status, body["status"]) == (200, "deleted"), "again is no mistake"


async def test_a_marker_for_nothing_is_removed(cluster: Cluster) -> None:
    await with_topics(cluster, kept=EVERYWHERE)
    await cluster.zookeeper("create", "/admin/delete_topics/unheard-of", b"")
    await until(lambda: is_gone(cluster, "unheard-of"), "the marker is gone")
    await cluster.whole()


@pytest.mark.slow
async def test_a_deletion_waits_visibly_for_a_broker_that_is_down_and_ends_by_itself(cluster: Cluster) -> None:
    await with_topics(cluster, orders=EVERYWHERE)
    down = a_follower(cluster)
    await down.kill()
    status, body = await ask(cluster, "DELETE", "/v1/topics/orders")
    assert (status, body["status"]) == (202, "deleting")
    await until_waiting(cluster, "orders", f"broker {down.broker_id} is gone")
    (shown,) = await klamm(cluster, "topics", "deletions")
    assert (shown["replicas"], shown["replicas_deleted"]) == (9, 6)
    await until(partial(is_in_no_list, cluster, "orders"), "no broker lists it")
    claim = cluster.order.claims()[-1]
    await cluster.zookeeper("delete", "/controller")
    await cluster.claim_after(claim)
    await until_waiting(cluster, "orders", f"broker {down.broker_id} is gone")
    await until(partial(is_in_no_list, cluster, "orders"), "nor does one after a failover")
    explained = await klamm(cluster, "explain", "orders-0")
    assert explained["state"] == "OfflinePartition"
    status, refused = await ask(cluster, "POST", "/v1/topics", {"name": "orders", "assignment": {"0": [1]}})
    assert (status, refused["code"]) == (409, "TOPIC_ALREADY_EXISTS")
    assert "is being deleted" in await klamm(cluster, "topics", "grow", "orders", "--partitions", "4", code=1)
    await down.start()
    await until(lambda: is_gone(cluster, "orders"), "it is gone")
    await cluster.whole()
    assert [on_disk(broker) for broker in cluster.running] == [{}, {}, {}]


@pytest.mark.slow
async def test_the_dead_can_be_abandoned_and_set_their_replicas_aside_when_they_return(cluster: Cluster) -> None:
    await with_topics(cluster, orders=EVERYWHERE, other=EVERYWHERE)
    down = a_follower(cluster)
    ids = {name: await topic_id_of(cluster, name) for name in ("orders", "other")}
    await down.stop()
    await ask(cluster, "DELETE", "/v1/topics/other")
    await until_waiting(cluster, "other", f"broker {down.broker_id} is gone")
    said = await klamm(cluster, "topics", "delete", "orders", "--abandon-offline", "--wait")
    assert said["status"] == "deleted"
    await ask(cluster, "DELETE", "/v1/topics/other?abandon_offline=true")
    await until(lambda: is_gone(cluster, "other"), "a caller that waited may stop waiting")
    live = ",".join(":".join(map(str, [one.broker_id for one in cluster.running])) for _ in range(3))
    await klamm(cluster, "topics", "create", "orders", "--assignment", live)
    again = await topic_id_of(cluster, "orders")
    assert again != ids["orders"]
    await cluster.start(down.broker_id)
    assert on_disk(down) == {(topic_id, number): True for topic_id in ids.values() for number in range(3)}
    assert all(key[0] == again for one in cluster.running if one is not down for key in on_disk(one))


async def test_a_topic_made_anew_under_its_name_has_nothing_of_the_old_one(cluster: Cluster) -> None:
    await with_topics(cluster, orders=EVERYWHERE)
    down, old = a_follower(cluster), await topic_id_of(cluster, "orders")
    await down.stop()
    await ask(cluster, "DELETE", "/v1/topics/orders?abandon_offline=true")
    await until(lambda: is_gone(cluster, "orders"), "it is gone")
    assignment = {"0": [down.broker_id], "1": [1, 2, 3]}
    await write(cluster, "/config/topics/orders", {"version": 1, "config": {}})
    await write(cluster, "/brokers/topics/orders", {"version": 1, "partitions": assignment})
    await cluster.start(down.broker_id)
    await until(lambda: len_told(down, 2), "it has both")
    new = await topic_id_of(cluster, "orders")
    assert on_disk(down) == {(old, number): True for number in range(3)} | {(new, 0): False, (new, 1): False}
    assert (await cluster.states())["orders", 0].leader == down.broker_id


async def len_told(broker: Broker, count: int) -> bool:
    return len(await broker.told()) == count


async def test_a_deletion_that_a_broker_refuses_is_tried_again_until_it_can(cluster: Cluster) -> None:
    await with_topics(cluster, orders=[[1, 2, 3]])
    broker = a_follower(cluster)
    broker.break_disk(0)

    async def is_out() -> bool:
        return broker.broker_id not in (await cluster.states())["orders", 0].isr

    await until(is_out, "its replica is offline")
    await ask(cluster, "DELETE", "/v1/topics/orders")
    reason = f"broker {broker.broker_id} refused to delete orders-0"

    async def is_put_off() -> bool:
        said = await deletion_of(cluster, "orders")
        return said.get("waits_for") == reason and said["retry_at_ms"] is not None

    await until(is_put_off, f"it is tried again later: {reason}")
    broker.mend_disk()
    await until(lambda: is_gone(cluster, "orders"), "it is gone")
    await cluster.whole()
    assert on_disk(broker) == {}


async def test_a_refused_deletion_does_not_wait_for_the_hour_that_a_clock_was_ahead(cluster: Cluster) -> None:
    await with_topics(cluster, orders=[[1, 2, 3]])
    broker = a_follower(cluster)
    broker.break_disk(0)
    await broker.until_faulty()
    await jump_clock(cluster, 3_600_000)
    await ask(cluster, "DELETE", "/v1/topics/orders")
    await until_waiting(cluster, "orders", f"broker {broker.broker_id} refused to delete orders-0")
    cluster.controller.jump(0)
    broker.mend_disk()
    await until(lambda: is_gone(cluster, "orders"), "it is gone")
    await cluster.whole()


async def test_a_reassignment_that_runs_holds_the_deletion(cluster: Cluster) -> None:
    await with_topics(cluster, orders=[[1, 2]])
    cluster.brokers[3].hold("orders", 0)
    await cluster.brokers[3].until_faulty()
    target = {"topic": "orders", "partition": 0, "replicas": [3, 2]}
    await ask(cluster, "POST", "/v1/reassignments", {"version": 1, "partitions": [target]})
    await cluster.zookeeper("create", "/admin/delete_topics/orders", b"")
    await until_waiting(cluster, "orders", "reassignment in progress")
    cluster.brokers[3].release("orders", 0)
    await until(lambda: is_gone(cluster, "orders"), "it is gone")
    await cluster.whole()
    assert [on_disk(broker) for broker in cluster.running] == [{}, {}, {}]


async def test_where_topics_are_not_to_be_deleted_they_stay(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    async with a_duty_cluster(zookeeper, tmp_path, {"delete.topic.enable": "false"}) as cluster:
        await with_topics(cluster, orders=EVERYWHERE)
        before = await cluster.states()
        await cluster.zookeeper("create", "/admin/delete_topics/orders", b"")

        async def is_dropped() -> bool:
            return await cluster.zookeeper("exists", "/admin/delete_topics/orders") is None

        await until(is_dropped, "the marker is dropped")
        status, problem = await ask(cluster, "DELETE", "/v1/topics/orders")
        assert (status, problem["code"]) == (403, "TOPIC_DELETION_DISABLED")
        assert "TOPIC_DELETION_DISABLED" in await klamm(cluster, "topics", "delete", "orders", code=1)
        await cluster.whole()
        assert await cluster.states() == before


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["marked", "told", "erased"])
async def test_a_deletion_goes_on_after_the_controller_was_killed_in_the_middle(cluster: Cluster, moment: str) -> None:
    await with_topics(cluster, orders=EVERYWHERE)
    claim, dead = cluster.order.claims()[-1], cluster.controller
    slow = a_follower(cluster)
    others = [one for one in cluster.running if one is not slow]
    if moment == "marked":
        marked = dead.proxies[0].lose_answer(TRANSACTION, about="/admin/delete_topics/orders")
        asked = asyncio.create_task(ask(cluster, "DELETE", "/v1/topics/orders"))
        await kill_when(marked, dead)
        status, problem = await asked
        assert (status, problem["code"]) == (504, "OUTCOME_UNKNOWN")
    else:
        slow.freeze()
        await cluster.zookeeper("create", "/admin/delete_topics/orders", b"")
        await until(lambda: all(on_disk(one) == {} for one in others), "the others have deleted it")
        if moment == "erased":
            erased = dead.proxies[0].lose_answer(TRANSACTION, about="/brokers/topics/orders")
            slow.thaw()
            await kill_when(erased, dead)
        else:
            await dead.kill()
            slow.thaw()
    is_erased = await read(cluster, "/brokers/topics/orders/partitions/0/state") is None
    assert (is_erased, await is_gone(cluster, "orders")) == (moment == "erased", False)
    await cluster.claim_after(claim)
    await until_waiting(cluster, "orders", f"broker {dead.broker_id} is gone")
    await dead.start()
    await until(lambda: is_gone(cluster, "orders"), "it is gone")
    await cluster.whole()
    assert [on_disk(broker) for broker in cluster.running] == [{}, {}, {}]
