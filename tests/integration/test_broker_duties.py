"""A broker process's duties to its cluster besides leading: it goes in an orderly way, and reports a lost disk."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Broker, Cluster, States, a_cluster
from tests.waiting import until

PARTITIONS = 6

pytestmark = pytest.mark.java

ClusterOf = Callable[..., AbstractAsyncContextManager[Cluster]]


@pytest.fixture
def cluster_of(zookeeper: ZooKeeperServer, tmp_path: Path) -> ClusterOf:
    """A cluster whose brokers have some properties of their own."""

    def make(
        brokers: int = 3, session_timeout_ms: int = 4_000, **properties: str
    ) -> AbstractAsyncContextManager[Cluster]:
        named = {key.replace("_", "."): value for key, value in properties.items()}
        return a_cluster(
            [zookeeper], tmp_path, brokers=brokers, session_timeout_ms=session_timeout_ms, properties=named
        )

    return make


async def with_topic(cluster: Cluster) -> None:
    await cluster.start()
    assert await cluster.controller.create_topic("orders", partitions=PARTITIONS) == 201
    await cluster.whole()


def led_by(states: States, broker: Broker) -> list[tuple[str, int]]:
    return [key for key, state in states.items() if state.leader == broker.broker_id]


async def until_settled(cluster: Cluster) -> States:
    await until(cluster.is_agreed, "all agree")
    return await cluster.states()


# how it goes


@pytest.mark.parametrize("is_controller", [False, True])
async def test_a_broker_that_is_stopped_hands_its_leaderships_over_before_it_goes(
    cluster: Cluster, is_controller: bool
) -> None:
    await with_topic(cluster)
    claim = cluster.order.claims()[-1]
    broker = next(one for one in cluster.running if (one is cluster.controller) == is_controller)
    led = led_by(await cluster.states(), broker)
    (registration,) = cluster.order.registrations(broker.broker_id)
    assert await broker.stop()
    assert broker.row.exit_code == 0
    assert [line["attempts"] for line in broker.log("shutdown.granted")] == [1]
    gone = cluster.order.end_of(registration.session)
    assert gone is not None
    states = await until_settled(cluster)
    assert led
    assert led_by(states, broker) == []
    for topic, number in led:
        _, stat = await cluster.zookeeper("get", f"/brokers/topics/{topic}/partitions/{number}/state")
        assert stat.mzxid < gone.zxid, "moved while it was still there"
        assert states[topic, number].leader_epoch == 1
    if is_controller:
        assert len(broker.log("seat.released")) == 1
        await cluster.claim_after(claim)
    await cluster.start(broker.broker_id)


async def test_the_last_broker_stops_though_no_other_can_take_over(cluster: Cluster) -> None:
    await with_topic(cluster)
    *others, last = cluster.running
    for broker in others:
        assert await broker.stop()
        assert broker.row.exit_code == 0
        assert [line["attempts"] for line in broker.log("shutdown.granted")] == [1]
        await until(cluster.is_agreed, "the others know the controller and the live brokers")
    assert await last.stop()
    assert last.row.exit_code == 0
    counts = [len(last.log(f"shutdown.{name}")) for name in ("granted", "delayed", "uncontrolled")]
    assert counts == [0, 2, 1], "it asks three times, as Kafka's brokers do, and then it goes"


async def test_a_second_signal_ends_the_waiting(cluster_of: ClusterOf) -> None:
    async with cluster_of(
        1, controlled_shutdown_retry_backoff_ms="600000", controlled_shutdown_max_retries="99"
    ) as one:
        await one.start()
        broker = one.brokers[1]
        assert await broker.create_topic("orders") != 201  # three replicas are not to be had: it leads nothing
        await one.zookeeper("create", "/config/topics/t", b'{"version":1,"config":{}}')
        await one.zookeeper("create", "/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,9]}}')
        await until(lambda: led_once(one), "it leads the partitions that no other can lead")
        child = broker._child
        assert child is not None
        child.signal(signal.SIGTERM)
        await until(lambda: broker.log("shutdown.delayed"), "it waits")
        child.signal(signal.SIGTERM)
        await child.wait()
        assert (child.exit_code, await one.zookeeper("exists", "/brokers/ids/1")) == (0, None)


async def led_once(cluster: Cluster) -> bool:
    return bool(await cluster.state_znodes("t", [0]))


# its disks


async def test_a_lost_log_directory_costs_its_replicas_and_gives_them_back_when_it_is_mended(cluster: Cluster) -> None:
    await with_topic(cluster)
    broker = next(one for one in cluster.running if one is not cluster.controller)
    before = await cluster.states()
    assert broker.break_disk(1)

    async def without() -> list[tuple[str, int]]:
        return [key for key, state in (await cluster.states()).items() if broker.broker_id not in state.isr]

    lost = await until(without, "it leaves ISRs")
    await until(lambda: is_half(cluster, broker), "it serves the replicas of its other directory, and no more")
    lost = await without()
    states = await until_settled(cluster)
    assert [key for key in lost if states[key].leader == broker.broker_id] == []
    assert {key for key in led_by(before, broker) if key not in lost} == set(led_by(states, broker))
    assert await cluster.zookeeper("get_children", "/log_dir_event_notification") == []
    assert broker.mend_disk()
    await cluster.whole()
    assert broker.row.state == "running"


async def is_half(cluster: Cluster, broker: Broker) -> bool:
    isrs = [state.isr for state in (await cluster.states()).values()]
    return sum(broker.broker_id not in isr for isr in isrs) == PARTITIONS // 2


async def test_a_broker_without_a_log_directory_ends_and_does_not_start(cluster: Cluster) -> None:
    await with_topic(cluster)
    broker = next(one for one in cluster.running if one is not cluster.controller)
    broker.break_disk()
    broker.break_disk()
    await until(lambda: broker.state == "exited", "it ends")
    assert broker.row.exit_code == 1
    await broker.start()
    await until(lambda: broker.state == "exited", "it ends again")
    assert [line["reason"].startswith("no log directory is left of ") for line in broker.log("broker.failed")] == [
        True
    ] * 2
    broker.mend_disk()
    await cluster.start(broker.broker_id)


# its identity


async def test_a_broker_without_an_id_is_given_one_and_keeps_it(cluster_of: ClusterOf) -> None:
    async with cluster_of(1, broker_id="-1") as one:
        broker = one.brokers[1]
        for _ in range(2):
            await broker.start()
            await until(partial(one.zookeeper, "exists", "/brokers/ids/1001"), "it registers under its id")
            await broker.stop()
        assert await one.zookeeper("get_children", "/brokers/ids") == []
        for folder in (broker.folder, broker.folder / "disk-1"):
            assert "broker.id=1001\n" in (folder / "meta.properties").read_text()
        data, _ = await one.zookeeper("get", "/feature")
        assert json.loads(data) == {"version": 2, "status": 1, "features": {}}


async def test_a_broker_with_another_s_directory_does_not_start(cluster: Cluster) -> None:
    broker = cluster.brokers[1]
    broker.folder.mkdir(parents=True)
    (broker.folder / "meta.properties").write_text("version=0\nbroker.id=7\n")
    await broker.start()
    await until(lambda: broker.state == "exited", "it ends")
    (failed,) = broker.log("broker.failed")
    assert failed["reason"].endswith("meta.properties belongs to broker 7, and property broker.id says 1")


# how it asked before AlterPartition


async def test_a_leader_of_an_older_protocol_level_writes_the_isr_itself_and_announces_it(
    cluster_of: ClusterOf,
) -> None:
    flags = {"inter_broker_protocol_version": "2.6", "replica_lag_time_max_ms": "1500"}
    async with cluster_of(3, 15_000, **flags) as old:
        await with_topic(old)
        follower = next(one for one in old.running if one is not old.controller)
        follower.freeze()
        others = [one for one in old.running if one is not follower]
        led_ids = {one.broker_id for one in others}

        async def has_shrunk() -> bool:
            states = (await old.states()).values()
            return all(follower.broker_id not in state.isr for state in states if state.leader in led_ids)

        await until(has_shrunk, "their leaders write it out of the ISRs")

        async def is_told() -> bool:
            states = {key: state for key, state in (await old.states()).items() if state.leader in led_ids}
            told = await asyncio.gather(*(one.told() for one in others))
            return all({key: one[key] for key in states if key in one} == states for one in told)

        await until(is_told, "every live broker hears of it")
        assert not any("alter" in line["reason"] for one in others for line in one.rpcs())
        follower.thaw()
        await old.whole()
        assert all(len(state.isr) == 3 for state in (await old.states()).values())
        assert await old.zookeeper("get_children", "/isr_change_notification") == []
        assert all(state.leader_epoch == 0 for state in (await old.states()).values())
