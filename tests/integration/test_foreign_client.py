"""A client that knows only Kafka's ZooKeeper layout (kazoo): its writes are taken in as by Kafka."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.waiting import until

pytestmark = pytest.mark.java

ASSIGNMENT = {"0": [2, 3, 1], "1": [9, 3], "2": [1], "3": [9]}  # there is no broker 9
TOPIC_ID = "Vd2YYxTDRqK4O4w7fS7lcg"
TOPICS: dict[str, dict[str, Any]] = {
    "kafka-2.3": {"version": 1, "partitions": ASSIGNMENT},
    "kafka-2.4": {"version": 2, "partitions": ASSIGNMENT, "adding_replicas": {}, "removing_replicas": {}},
    "kafka-2.8": {
        "version": 3,
        "topic_id": TOPIC_ID,
        "partitions": ASSIGNMENT,
        "adding_replicas": {},
        "removing_replicas": {},
    },
}


def as_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


async def create_as_kafka_does(cluster: Cluster, topic: str, znode: dict[str, Any]) -> None:
    """First its configuration, then the topic; the rest is the controller's business."""
    await cluster.zookeeper("create", f"/config/topics/{topic}", as_json({"version": 1, "config": {}}))
    await cluster.zookeeper("create", f"/brokers/topics/{topic}", as_json(znode))


async def test_topics_written_in_every_version_of_the_format_come_online(cluster: Cluster) -> None:
    await cluster.start()
    (claim,) = cluster.order.claims()
    for topic, znode in TOPICS.items():
        await create_as_kafka_does(cluster, topic, znode)
    await until(lambda: all_told(cluster, 3 * len(TOPICS)), "every broker was told")
    ids = {}
    for topic, znode in TOPICS.items():
        # The first replica that lives leads, all that live are in sync; without one there is nothing to write yet.
        states = await cluster.state_znodes(topic, range(4))
        assert states == {
            number: (
                {"controller_epoch": claim.controller_epoch, "leader": isr[0], "version": 1, "leader_epoch": 0}
                | {"isr": isr},
                0,
            )
            for number, isr in [(0, [2, 3, 1]), (1, [3]), (2, [1])]
        }
        data, stat = await cluster.zookeeper("get", f"/brokers/topics/{topic}")
        written = json.loads(data)
        ids[topic] = written["topic_id"]
        assert written == TOPICS["kafka-2.8"] | {"topic_id": ids[topic]}
        assert stat.version == (0 if znode["version"] == 3 else 1)
    assert ids["kafka-2.8"] == TOPIC_ID
    assert {len(topic_id) for topic_id in ids.values()} == {22}
    assert len(set(ids.values())) == len(ids)
    for broker in cluster.running:
        told = await broker.get("/v1/topics")
        assert {row["name"]: row["topic_id"] for row in told["items"]} == ids


async def all_told(cluster: Cluster, partitions: int) -> bool:
    return len(await cluster.running[0].told()) == partitions and await cluster.is_agreed()


async def test_a_state_changed_by_another_hand_and_announced_is_taken_in(cluster: Cluster) -> None:
    await cluster.start()
    await create_as_kafka_does(cluster, "orders", TOPICS["kafka-2.8"] | {"partitions": {"0": [1, 2, 3]}})
    await until(lambda: all_told(cluster, 1), "every broker was told")
    ((said, version),) = (await cluster.state_znodes("orders", [0])).values()
    shrunk = said | {"isr": [1, 3]}
    await cluster.zookeeper("set", "/brokers/topics/orders/partitions/0/state", as_json(shrunk), version)
    for partitions in ([{"topic": "orders", "partition": 0}], [{"topic": "unheard-of", "partition": 0}]):
        notification = as_json({"version": 1, "partitions": partitions})
        await cluster.zookeeper("create", "/isr_change_notification/isr_change_", notification, sequence=True)

    async def are_removed() -> bool:
        return not await cluster.zookeeper("get_children", "/isr_change_notification")

    await until(are_removed, "the notifications are removed")
    await until(cluster.is_agreed, "every broker was told")
    # the leader hears of it with all other brokers, and asks for the followers that fetch from it all the time
    grown = shrunk | {"isr": [1, 3, 2]}
    await until(lambda: has_state(cluster, (grown, version + 2)), "its leader takes it in, too")
    await until(cluster.is_agreed, "every broker was told")
    assert [(await broker.told())["orders", 0].isr for broker in cluster.running] == [(1, 3, 2)] * 3


async def has_state(cluster: Cluster, wanted: tuple[Any, int]) -> bool:
    return await cluster.state_znodes("orders", [0]) == {0: wanted}
