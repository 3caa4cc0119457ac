"""The view of a controller of ours while one of Kafka's own brokers decides: the cluster as ZooKeeper has it."""

from __future__ import annotations

import json

import pytest

from controller.api.counts import Summary
from controller.api.metrics import klamm_families
from controller.core.project.znodes import controller_path
from controller.kafka.cluster.foreign_cluster import BeliefView, ForeignCluster
from controller.kafka.cluster.presence import ControllerZnode
from tests.api.api_support import FakeHandle
from tests.fakes.client import FakeClient
from tests.fakes.zookeeper import FakeZooKeeper
from tests.support.harness import a_server, topic_json

OWN_ID = 100
STATE = {"controller_epoch": 7, "leader": 2, "version": 1, "leader_epoch": 4, "isr": [2, 1]}


def registration(broker_id: int, endpoint: str | None = None) -> bytes:
    endpoint = endpoint or f"PLAINTEXT://h:{9090 + broker_id}"
    names = {endpoint.partition("://")[0]: "PLAINTEXT"}
    told = {"version": 5, "host": None, "port": -1, "endpoints": [endpoint], "listener_security_protocol_map": names}
    return json.dumps(told).encode()


class Scene:
    """Two of Kafka's brokers with a topic, the first of them its controller, and a standby of ours that looks."""

    def __init__(self, server: FakeZooKeeper, own: FakeClient, brokers: dict[int, FakeClient], rest_s: float) -> None:
        self.server = server
        self.own = own
        self.brokers = brokers
        self.handle = FakeHandle()
        self.handle.stand_by((1, brokers[1].session_id))
        self.foreign_cluster = ForeignCluster(self.handle, lambda: own, lambda _: rest_s)
        self.view = BeliefView(self.handle, self.foreign_cluster, "a-cluster", OWN_ID)

    async def look(self) -> None:
        await self.foreign_cluster.learn()
        await self.foreign_cluster.look()


async def a_scene(first: str | None = None, rest_s: float = 0) -> Scene:
    server = await a_server()
    brokers = {broker_id: await server.connect() for broker_id in (1, 2)}
    for broker_id, zk in brokers.items():
        endpoint = first if broker_id == 1 else None
        await zk.create(f"/brokers/ids/{broker_id}", registration(broker_id, endpoint), ephemeral=True)
    tool = await server.connect()
    await tool.create("/controller_epoch", b"7")
    await tool.create("/brokers/topics/orders", topic_json([1, 2, 3]))
    for path in ("partitions", "partitions/0"):
        await tool.create(f"/brokers/topics/orders/{path}", b"")
    await tool.create("/brokers/topics/orders/partitions/0/state", json.dumps(STATE).encode())
    return Scene(server, await server.connect(), brokers, rest_s)


async def test_before_its_first_reading_it_knows_the_controller_and_shows_nothing() -> None:
    scene = await a_scene()
    assert not scene.view.is_led_by_kafka
    await scene.foreign_cluster.learn()
    assert (scene.view.is_led_by_kafka, scene.view.controller_id, scene.view.controller_epoch) == (True, 1, 7)
    assert (scene.view.brokers, scene.view.topic_names) == ((), ())


async def test_brokers_topics_and_leaders_are_shown_as_zookeeper_has_them() -> None:
    scene = await a_scene()
    await scene.look()
    view = scene.view
    # no broker 3 has registered, and an assignment names it
    assert [(one.id, one.state) for one in view.brokers] == [(1, "live"), (2, "live"), (3, "gone")]
    [topic] = view.topics()
    [row] = topic.partitions
    assert (topic.topic, row.leader, row.leader_epoch, row.isr, row.replicas) == ("orders", 2, 4, (2, 1), (1, 2, 3))
    assert row.controller_epoch == 7
    families = {one.name: one.samples[0].value for one in klamm_families(view, scene.handle, Summary()) if one.samples}
    assert (families["klamm_controller_is_kafka"], families["klamm_controller_epoch"]) == (1, 7)


async def test_a_look_leaves_no_watch_and_writes_nothing() -> None:
    scene = await a_scene()
    heard: list[object] = []
    scene.own.on_watch(heard.append)
    zxid = scene.server.zxid
    await scene.look()
    assert scene.server.zxid == zxid
    tool = await scene.server.connect()
    await tool.create("/brokers/topics/payments", topic_json([1]))
    await tool.create("/admin/delete_topics/orders", b"")
    scene.server.expire(scene.brokers[2])
    await scene.own.sync("/")
    assert heard == []


async def test_an_unchanged_view_has_the_same_version_and_a_changed_one_a_newer() -> None:
    scene = await a_scene()
    await scene.look()
    first = scene.view.metadata_version
    await scene.look()
    assert scene.view.metadata_version == first
    tool = await scene.server.connect()
    await tool.set("/brokers/topics/orders/partitions/0/state", json.dumps(STATE | {"leader": 1}).encode(), 0)
    await scene.look()
    second = scene.view.metadata_version
    assert second > first
    assert next(scene.view.topics()).partitions[0].leader == 1
    scene.server.expire(scene.brokers[2])
    await scene.look()
    assert scene.view.metadata_version > second
    assert [(one.id, one.state) for one in scene.view.brokers] == [(1, "live"), (2, "gone"), (3, "gone")]


async def test_a_caller_that_asks_again_at_once_gets_the_reading_of_just_now() -> None:
    scene = await a_scene(rest_s=60)
    await scene.look()
    tool = await scene.server.connect()
    await tool.create("/brokers/topics/payments", topic_json([1]))
    await scene.look()
    assert list(scene.view.topic_names) == ["orders"]


async def test_without_zookeeper_the_last_reading_stays() -> None:
    scene = await a_scene()
    await scene.look()
    scene.server.expire(scene.own)
    await scene.look()
    assert list(scene.view.topic_names) == ["orders"]


async def test_the_seat_is_read_again_whenever_it_has_moved() -> None:
    scene = await a_scene()
    await scene.look()
    await scene.own.create("/klamm/controllers", b"")
    ours = await scene.server.connect()
    endpoints = ControllerZnode(("HTTP://h:9101",)).endpoints
    await ours.create(controller_path(101), json.dumps({"endpoints": endpoints}).encode(), ephemeral=True)
    scene.handle.stand_by((101, ours.session_id))
    assert (scene.view.is_led_by_kafka, scene.view.topic_names) == (False, ()), "the view is not that controller's"
    await scene.look()
    assert not scene.view.is_led_by_kafka
    assert [one.id for one in scene.foreign_cluster.entries()] == [101]
    assert scene.view.controller_epoch == 7


@pytest.mark.parametrize(
    ("seat", "first"),
    [
        pytest.param((3000, 77), None, id="the migration's controller, which is registered nowhere"),
        pytest.param((1, 77), None, id="a broker's id, and not its session"),
        pytest.param(None, "HTTP://h:8081", id="a stub"),
    ],
)
async def test_no_other_holder_is_taken_for_one_of_kafkas(seat: tuple[int, int] | None, first: str | None) -> None:
    scene = await a_scene(first)
    if seat is not None:
        scene.handle.stand_by(seat)
    await scene.look()
    assert (scene.view.is_led_by_kafka, scene.view.topic_names) == (False, ())


@pytest.mark.parametrize("is_active", [False, True])  # while it loads, too
async def test_once_ours_has_claimed_only_belief_is_shown(is_active: bool) -> None:
    scene = await a_scene()
    await scene.look()
    scene.handle.is_active, scene.handle.controller_epoch = is_active, 8
    assert (scene.view.is_led_by_kafka, scene.view.topic_names) == (False, ())
