"""Log directories fail and are mended on real processes, and the controller changes in between."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Broker, Cluster
from tests.integration.duties import a_duty_cluster, as_json, fail_over, klamm_with, read, with_topics
from tests.lab_support import LabProcess
from tests.waiting import until

PARTITIONS = 6
EVERYWHERE = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        yield cluster


async def failed(cluster: Cluster, broker: Broker) -> set[int]:
    """Returns the partitions whose ISR is without it."""
    states = await cluster.states()
    return {number for (_, number), state in states.items() if broker.broker_id not in state.isr}


async def is_half(cluster: Cluster, broker: Broker) -> bool:
    return len(await failed(cluster, broker)) == PARTITIONS // 2


@pytest.mark.slow
async def test_a_brokers_failed_directory_is_remembered_by_the_next_controller_until_it_is_mended(
    cluster: Cluster,
) -> None:
    await with_topics(cluster, orders=EVERYWHERE)
    broker = next(one for one in cluster.running if one is not cluster.controller)
    path = f"/klamm/failed_dirs/{broker.broker_id}"
    broker.break_disk(0)
    await until(lambda: is_half(cluster, broker), "its replicas there are offline")
    assert (await read(cluster, path))["broker_epoch"] == cluster.order.registrations(broker.broker_id)[-1].zxid
    lost = await failed(cluster, broker)
    dead = await fail_over(cluster)
    await dead.start()
    await until(lambda: is_whole_but(cluster, broker, dead), "the killed broker is back in sync")
    assert await failed(cluster, broker) == lost
    states = await cluster.states()
    assert not any(states["orders", number].leader == broker.broker_id for number in lost)
    written = [one for one in cluster.order.operations() if (one.path or "").endswith("/state")]
    assert not any(b'"leader":-1' in (one.data or b"") for one in written), "never offline"
    broker.mend_disk()
    await cluster.whole()
    assert await failed(cluster, broker) == set()

    async def is_forgotten() -> bool:
        return await read(cluster, path) is None

    await until(is_forgotten, "nothing is written down about it any more")


async def is_whole_but(cluster: Cluster, broker: Broker, back: Broker) -> bool:
    states = (await cluster.states()).values()
    return all(back.broker_id in state.isr for state in states) and await cluster.is_agreed()


async def test_an_announcement_without_a_failure_changes_nothing_and_is_removed(cluster: Cluster) -> None:
    await with_topics(cluster, orders=EVERYWHERE)
    before = await cluster.states()
    for value in ({"version": 1, "broker": 2, "event": 1}, {"version": 1, "broker": 9, "event": 1}, "nonsense"):
        path = "/log_dir_event_notification/log_dir_event_"
        await cluster.zookeeper("create", path, as_json(value), sequence=True)

    async def is_removed() -> bool:
        return not await cluster.zookeeper("get_children", "/log_dir_event_notification")

    await until(is_removed, "the announcements are removed")
    await cluster.whole()
    assert await cluster.states() == before


@pytest.mark.slow
async def test_by_the_command_a_disk_breaks_a_controller_dies_and_the_disk_is_mended(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    flags = ("--zookeeper", f"{zookeeper.address}/duties-lab", "--session-timeout-ms", "2000")
    with LabProcess(tmp_path, *flags, brokers=3, command=f"{sys.executable} -m brokerstub") as lab:
        lab.started()
        env = {"KLAMM_VAR": str(tmp_path)}

        async def said(*words: str, code: int = 0) -> Any:
            return await klamm_with(env, *words, code=code)

        await said("wait", "--for", "controller")

        async def are_live() -> bool:
            brokers = await said("brokers", "list")
            return [one["state"] for one in brokers] == ["live"] * 3

        await until(are_live, "three brokers")
        await said("topics", "create", "orders", "--assignment", "1:2:3,2:3:1,3:1:2,1:3:2")
        await said("wait", "--for", "healthy")
        controller = (await said("status"))["controller"]["broker_id"]
        victim = controller % 3 + 1
        await said("break-disk", str(victim))

        async def has_lost_half() -> bool:
            short = await said("partitions", "--under-replicated")
            return [victim in one["isr"] for one in short] == [False, False]

        await until(has_lost_half, "half of its replicas are offline")
        await said("kill", str(controller))
        await said("start", str(controller))
        await until(has_lost_half, "the successor knows")
        await said("mend-disk", str(victim))
        await said("wait", "--for", "healthy")
        assert lab.end() == 0
