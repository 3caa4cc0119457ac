"""Leaderships leave a broker before it goes, on real processes: by drain and by shutdown, under every controller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Broker, Cluster
from tests.integration.duties import (
    TRANSACTION,
    a_duty_cluster,
    ask,
    controlled_by,
    fail_over,
    is_told,
    kill_when,
    klamm,
    read,
    with_topics,
)
from tests.waiting import until

LED_BY_EACH = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3], [3, 2, 1]]

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A broker that shuts down asks long enough to live through a failover."""
    async with a_duty_cluster(zookeeper, tmp_path, {"controlled.shutdown.max.retries": "30"}) as cluster:
        yield cluster


async def led_by(cluster: Cluster, broker: Broker) -> list[tuple[str, int]]:
    return [key for key, state in (await cluster.states()).items() if state.leader == broker.broker_id]


async def state_of(cluster: Cluster, broker: Broker) -> set[str]:
    """Returns the broker's state as every other broker shows it."""
    said = [await one.get(f"/v1/brokers/{broker.broker_id}") for one in cluster.running if one is not broker]
    return {one["state"] for one in said}


async def until_state(cluster: Cluster, broker: Broker, state: str) -> None:
    async def is_so() -> bool:
        return await state_of(cluster, broker) == {state}

    await until(is_so, f"broker {broker.broker_id} is {state}")


def a_follower(cluster: Cluster) -> Broker:
    return next(one for one in cluster.running if one is not cluster.controller)


@pytest.mark.slow
async def test_a_broker_is_drained_by_the_api_or_the_command_until_it_is_undrained(cluster: Cluster) -> None:
    await with_topics(cluster, orders=LED_BY_EACH)
    broker = cluster.brokers[2]
    for side in ("api", "command"):
        before = await cluster.states()
        led = await led_by(cluster, broker)
        if side == "api":
            status, drain = await ask(cluster, "POST", "/v1/brokers/2/drain", {})
            assert status == 200
        else:
            drain = await klamm(cluster, "drain", "2")
        assert (drain["draining"], drain["leaders"], drain["remaining"]) == (True, 0, [])
        await until_state(cluster, broker, "draining")
        after = await cluster.states()
        assert led
        assert await led_by(cluster, broker) == []
        for key, state in after.items():
            assert state.isr == before[key].isr, "it still follows"
            assert state.leader_epoch == before[key].leader_epoch + (key in led)
        outcomes = (await ask(cluster, "POST", "/v1/elections", {"type": "preferred", "partitions": None}))[1]
        assert {one["code"] for one in outcomes["partitions"]} <= {"PREFERRED_LEADER_NOT_AVAILABLE"}
        if side == "api":
            status, drain = await ask(cluster, "DELETE", "/v1/brokers/2/drain")
        else:
            drain = await klamm(cluster, "undrain", "2")
        assert drain["draining"] is False
        await until_state(cluster, broker, "live")
        await klamm(cluster, "elect", "--type", "preferred", "--all")
        assert await led_by(cluster, broker) == led
    assert await read(cluster, "/klamm/draining/2") is None


@pytest.mark.slow
async def test_a_drain_outlives_the_controller_that_granted_it_and_ends_by_undrain(cluster: Cluster) -> None:
    await with_topics(cluster, orders=LED_BY_EACH)
    broker = a_follower(cluster)
    await klamm(cluster, "drain", str(broker.broker_id))
    dead = await fail_over(cluster)
    await until_state(cluster, broker, "draining")
    survivor = next(one for one in cluster.running if one is not broker)

    async def is_taken_over() -> bool:
        return len(await led_by(cluster, survivor)) == len(LED_BY_EACH) and await is_told(cluster)

    await until(is_taken_over, "a draining broker leads no partition that another can lead")
    await dead.start()
    await until(lambda: has_caught_up(cluster), "all are in sync again")
    assert await led_by(cluster, broker) == []
    await klamm(cluster, "undrain", str(broker.broker_id))
    await until_state(cluster, broker, "live")
    await klamm(cluster, "elect", "--type", "preferred", "--all")
    assert len(await led_by(cluster, broker)) == 2


async def test_a_drain_ends_with_the_registration_it_was_granted_to(cluster: Cluster) -> None:
    await with_topics(cluster, orders=LED_BY_EACH)
    broker = a_follower(cluster)
    path = f"/klamm/draining/{broker.broker_id}"
    await klamm(cluster, "drain", str(broker.broker_id))
    assert (await read(cluster, path))["broker_epoch"] == cluster.order.registrations(broker.broker_id)[-1].zxid
    await broker.kill()
    await cluster.start(broker.broker_id)
    await until_state(cluster, broker, "live")

    async def is_removed() -> bool:
        return await read(cluster, path) is None

    await until(is_removed, "its drain is removed, too")


async def test_a_broker_that_is_not_there_cannot_be_drained(cluster: Cluster) -> None:
    await cluster.start()
    status, problem = await ask(cluster, "POST", "/v1/brokers/9/drain", {})
    assert (status, problem["code"]) == (404, "BROKER_ID_NOT_REGISTERED")
    assert "BROKER_ID_NOT_REGISTERED" in await klamm(cluster, "drain", "9", code=1)


async def has_caught_up(cluster: Cluster) -> bool:
    return all(len(state.isr) == 3 for state in (await cluster.states()).values()) and await is_told(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["asked", "granted", "moved"])
async def test_a_shutdown_comes_to_its_end_though_the_controller_is_killed_in_the_middle(
    cluster: Cluster, moment: str
) -> None:
    """Before the first write, with only the drain granted, and with all moved and no broker told."""
    await controlled_by(cluster, 1)
    await with_topics(cluster, orders=LED_BY_EACH)
    claim, dead, leaving = cluster.order.claims()[-1], cluster.controller, cluster.brokers[3]

    async def is_granted() -> bool:
        return await read(cluster, "/klamm/draining/3") is not None

    async def is_moved() -> bool:
        return await led_by(cluster, leaving) == []

    # the proxy is in this process: a task that waits for a message's fate runs before the next message passes
    proxy = dead.proxies[0]
    happened = {
        "asked": lambda: proxy.drop_request(TRANSACTION, about="/klamm/draining/3"),
        "granted": lambda: proxy.drop_request(TRANSACTION, about="/brokers/topics/orders/partitions"),
        "moved": lambda: proxy.lose_answer(TRANSACTION, about="/brokers/topics/orders/partitions"),
    }[moment]()
    killing = kill_when(happened, dead)
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(leaving.stop())
        await killing
        assert (await is_granted(), await is_moved()) == (moment != "asked", moment == "moved")
        await dead.start()
        assert (await cluster.claim_after(claim)).controller_epoch == claim.controller_epoch + 1
        await stopping
    assert leaving.row.exit_code == 0
    assert len(leaving.log("shutdown.granted")) == 1
    await until(cluster.is_agreed, "all were told")
    assert await is_moved()
    written = [one for one in cluster.order.operations() if one.path is not None and one.path.endswith("/state")]
    assert -1 not in {json.loads(one.data or b"{}").get("leader") for one in written}, "never offline"
    await cluster.start(3)
    assert await state_of(cluster, leaving) == {"live"}
