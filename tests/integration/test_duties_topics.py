"""Topics are created and grown, brokers bounce and change, on real processes and from three sides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster
from tests.integration.duties import a_duty_cluster, as_json, ask, journal, klamm, read, topic_id_of, with_topics, write
from tests.waiting import until

TOPICS_AT_ONCE = 20
REFUSED: dict[str, dict[str, Any]] = {
    "INVALID_TOPIC_EXCEPTION": {"name": "not/legal", "partitions": 1, "replication_factor": 1},
    "TOPIC_ALREADY_EXISTS": {"name": "by.api", "partitions": 1, "replication_factor": 1},
    "INVALID_PARTITIONS": {"name": "new", "partitions": 0, "replication_factor": 1},
    "INVALID_REPLICATION_FACTOR": {"name": "new", "partitions": 1, "replication_factor": 4},
    "INVALID_REPLICA_ASSIGNMENT": {"name": "new", "assignment": {"0": [1, 9]}},
    "INVALID_REQUEST": {"name": "new", "partitions": 1, "assignment": {"0": [1]}},
}

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        yield cluster


async def topics_in(cluster: Cluster) -> set[str]:
    return set(await cluster.zookeeper("get_children", "/brokers/topics"))


async def is_led(cluster: Cluster, topic: str, partitions: int) -> bool:
    return len(await cluster.state_znodes(topic, range(partitions))) == partitions and await cluster.is_agreed()


async def test_topics_are_created_by_a_znode_by_the_api_and_by_the_command(cluster: Cluster) -> None:
    await cluster.start()
    await write(cluster, "/config/topics/by-znode", {"version": 1, "config": {}})
    await write(cluster, "/brokers/topics/by-znode", {"version": 1, "partitions": {"0": [2, 3], "1": [3, 1]}})
    by_api = {"name": "by.api", "partitions": 4, "replication_factor": 3}
    for status in (201, 200):
        assert (await ask(cluster, "POST", "/v1/topics", by_api))[0] == status
    words = ("topics", "create", "by-command", "--assignment", "1:2,2:3,3:1", "--config", "retention.ms=1000")
    ids = {(await klamm(cluster, *words))["topic"]["topic_id"] for _ in range(2)}
    assert len(ids) == 1, "again is no mistake"
    await until(lambda: is_led(cluster, "by-znode", 2), "it is led")
    await cluster.whole()
    states = await cluster.states()
    assert {key: state.leader for key, state in states.items() if key[0] != "by.api"} == {
        ("by-znode", 0): 2,
        ("by-znode", 1): 3,
        ("by-command", 0): 1,
        ("by-command", 1): 2,
        ("by-command", 2): 3,
    }
    leaders = [state.leader for (topic, _), state in states.items() if topic == "by.api"]
    assert (len(leaders), set(leaders)) == (4, {1, 2, 3}), "spread evenly"
    assert (await read(cluster, "/config/topics/by-command"))["config"] == {"retention.ms": "1000"}
    assert {one.leader_epoch for one in states.values()} == {0}


async def test_an_invalid_topic_is_refused_with_kafkas_code_and_changes_nothing(cluster: Cluster) -> None:
    await with_topics(cluster, **{"by.api": [[1, 2, 3]] * 2})
    for code, body in REFUSED.items():
        status, problem = await ask(cluster, "POST", "/v1/topics", body)
        assert (status in (400, 409), problem["code"]) == (True, code), body
    said = await klamm(cluster, "topics", "create", "by_api", "--partitions", "1", "--replication-factor", "1", code=1)
    assert "INVALID_TOPIC_EXCEPTION" in said
    assert "by.api" in said, "the topic that it collides with"
    assert await topics_in(cluster) == {"by.api"}


async def test_many_topics_seen_at_once_are_one_decision(cluster: Cluster) -> None:
    await cluster.start()
    controller = cluster.controller
    names = [f"t{number}" for number in range(TOPICS_AT_ONCE)]
    controller.freeze()
    for name in names:
        await write(cluster, f"/brokers/topics/{name}", {"version": 1, "partitions": {"0": [1, 2, 3]}})
    await write(cluster, "/brokers/topics/nonsense", "nonsense")
    controller.thaw()
    await until(lambda: is_led_all(cluster, names), "all are led")
    lines = [line for line in journal(controller) if line["kind"] == "partition" and line.get("topic") in names]
    assert len({line["event_id"] for line in lines}) == 1
    assert {line["topic"] for line in lines} == set(names)
    assert len({line["zxid"] for line in lines}) == 1, "and one transaction"


async def is_led_all(cluster: Cluster, names: list[str]) -> bool:
    told = await cluster.controller.told()
    return {topic for topic, _ in told} == set(names)


async def test_topics_grow_by_the_znode_by_the_api_and_by_the_command(cluster: Cluster) -> None:
    await with_topics(cluster, orders=[[1, 2]])
    topic_id = await topic_id_of(cluster, "orders")
    znode = await read(cluster, "/brokers/topics/orders")
    znode["partitions"]["1"] = [3, 1]
    await cluster.zookeeper("set", "/brokers/topics/orders", as_json(znode))
    await until(lambda: is_led(cluster, "orders", 2), "it has two")
    for status in (201, 200):
        assert (await ask(cluster, "POST", "/v1/topics/orders/partitions", {"count": 3}))[0] == status
    said = await klamm(cluster, "topics", "grow", "orders", "--partitions", "4", "--assignment", "2:3")
    assert said["topic"]["partitions"] == 4
    await cluster.whole()
    # number 2 goes where Kafka's arithmetic puts it: on from the broker that number 0 prefers
    assert (await read(cluster, "/brokers/topics/orders"))["partitions"] == {
        "0": [1, 2],
        "1": [3, 1],
        "2": [3, 1],
        "3": [2, 3],
    }
    assert await topic_id_of(cluster, "orders") == topic_id
    status, problem = await ask(cluster, "POST", "/v1/topics/orders/partitions", {"count": 3})
    assert (status, problem["code"]) == (400, "INVALID_PARTITIONS")


async def test_a_topic_does_not_grow_while_it_is_reassigned(cluster: Cluster) -> None:
    cluster.brokers[3].hold("orders", 0)
    await with_topics(cluster, orders=[[1, 2]])
    target = {"topic": "orders", "partition": 0, "replicas": [1, 3]}
    await ask(cluster, "POST", "/v1/reassignments", {"partitions": [target]})
    status, problem = await ask(cluster, "POST", "/v1/topics/orders/partitions", {"count": 2})
    assert (status, problem["code"]) == (409, "REASSIGNMENT_IN_PROGRESS")
    words = ("topics", "grow", "orders", "--partitions", "2")
    assert "REASSIGNMENT_IN_PROGRESS" in await klamm(cluster, *words, code=1)
    cluster.brokers[3].release("orders", 0)
    await klamm(cluster, "wait", "--for", "no-reassignments")
    await klamm(cluster, *words)
    await cluster.whole()


async def test_a_registration_changed_while_its_broker_lives_is_spread(cluster: Cluster) -> None:
    await with_topics(cluster, orders=[[1, 2, 3]])
    znode = await read(cluster, "/brokers/ids/2")
    await cluster.zookeeper("set", "/brokers/ids/2", as_json(znode | {"rack": "r2"}))

    async def is_spread() -> bool:
        said = [await broker.get("/v1/brokers/2") for broker in cluster.running]
        return [one["rack"] for one in said] == ["r2"] * 3

    await until(is_spread, "everybody knows the rack")
    assert [one["rack"] for one in await klamm(cluster, "brokers", "list")] == [None, "r2", None]
    assert (await cluster.states())["orders", 0].leader_epoch == 0


async def test_a_restart_is_found_by_the_broker_epoch_and_everything_is_told_anew(cluster: Cluster) -> None:
    await with_topics(cluster, orders=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    broker = next(one for one in cluster.running if one is not cluster.controller)
    before = await cluster.states()
    await broker.kill()
    await cluster.start(broker.broker_id)
    _, registered = cluster.order.registrations(broker.broker_id)
    for one in cluster.running:
        assert (await one.get(f"/v1/brokers/{broker.broker_id}"))["broker_epoch"] == registered.zxid
    told = [line["reason"] for line in broker.rpcs() if line["broker_epoch"] == registered.zxid]
    assert told[0].startswith("update-metadata: 1 topic, 3 brokers, part 1 of 1 of a full list")
    assert told[1].startswith("leader-and-isr: 3 partitions, part 1 of 1 of a full list")
    for key, state in (await cluster.states()).items():
        if before[key].leader == broker.broker_id:
            assert state.leader_epoch > before[key].leader_epoch
