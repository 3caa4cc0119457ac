"""A broker's announcements in ZooKeeper, and their moments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from brokerstub.notifications import PARTITIONS_PER_NODE, Notifications
from controller.base.config import BrokerConfig
from controller.core.operations import Delete
from controller.zookeeper.layout import ensure_paths
from tests.brokerstub.support import eventually
from tests.fakes.acls import ALL, READ, grant_to_all
from tests.fakes.zookeeper import FakeClient, FakeZooKeeper


class Scene:
    """Broker 2 on a fake ZooKeeper; its clock is the test's."""

    def __init__(self, zk: FakeZooKeeper, client: FakeClient) -> None:
        self.zk, self.client, self.now_ms = zk, client, 100_000
        config = BrokerConfig(broker_id=2, zookeeper_connect="", log_dirs="d", klamm_isr_notification_interval_ms=1)
        self.notifications = Notifications(config, lambda: self.now_ms)

    def below(self, parent: str) -> list[Any]:
        """Returns the announcements, in order."""
        paths = sorted(path for path in self.zk.tree.nodes if path.startswith(f"{parent}/"))
        return [msgspec.json.decode(self.zk.read(path) or b"") for path in paths]

    @property
    def log_dir_events(self) -> list[Any]:
        return self.below("/log_dir_event_notification")

    @property
    def isr_changes(self) -> list[list[tuple[str, int]]]:
        return [
            [(one["topic"], one["partition"]) for one in node["partitions"]]
            for node in self.below("/isr_change_notification")
        ]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    zk = FakeZooKeeper()
    client = await zk.connect()
    await ensure_paths(client)
    scene = Scene(zk, client)
    running = asyncio.ensure_future(scene.notifications.run())
    yield scene
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_a_lost_log_directory_is_announced_as_kafka_does(scene: Scene) -> None:
    scene.notifications.begin(scene.client)
    scene.notifications.on_log_dir()
    await eventually(lambda: scene.log_dir_events)
    assert scene.log_dir_events == [{"version": 1, "broker": 2, "event": 1}]
    assert "/log_dir_event_notification/log_dir_event_0000000000" in scene.zk.tree.nodes


@pytest.mark.parametrize("fault", ["lose_next_answer", "lose_next_request"])
async def test_an_announcement_is_made_until_it_stands(scene: Scene, fault: str) -> None:
    scene.notifications.begin(scene.client)
    getattr(scene.client, fault)()
    scene.notifications.on_log_dir()
    await eventually(lambda: scene.log_dir_events)


async def test_an_announcement_that_failed_in_one_session_is_made_in_the_next(scene: Scene) -> None:
    scene.notifications.on_log_dir()  # before the first
    scene.zk.expire(scene.client)
    scene.notifications.begin(scene.client)
    await eventually(lambda: not scene.notifications._woken.is_set())
    assert scene.log_dir_events == []
    scene.notifications.begin(await scene.zk.connect())
    await eventually(lambda: scene.log_dir_events)


async def test_isr_changes_are_announced_together_once_it_is_quiet(scene: Scene) -> None:
    scene.notifications.begin(scene.client)
    scene.notifications.on_isr("orders", 0)
    scene.now_ms += 5_000
    scene.notifications.on_isr("orders", 1)
    scene.now_ms += 5_000
    await eventually(lambda: not scene.notifications._woken.is_set())
    assert scene.isr_changes == []
    scene.now_ms += 1
    await eventually(lambda: scene.isr_changes)
    assert scene.isr_changes == [[("orders", 0), ("orders", 1)]]


async def test_isr_changes_that_never_cease_are_announced_after_a_minute(scene: Scene) -> None:
    scene.notifications.begin(scene.client)
    scene.now_ms += 60_000
    scene.notifications.on_isr("orders", 0)
    await eventually(lambda: not scene.notifications._woken.is_set())
    assert scene.isr_changes == []
    scene.now_ms += 1
    scene.notifications.on_isr("orders", 1)
    await eventually(lambda: scene.isr_changes)
    assert scene.isr_changes == [[("orders", 0), ("orders", 1)]]


async def test_an_isr_change_whose_announcement_was_lost_is_announced_again(scene: Scene) -> None:
    scene.notifications.begin(scene.client)
    scene.notifications.on_isr("orders", 0)
    scene.client.lose_next_request()
    scene.now_ms += 5_001
    await eventually(lambda: scene.isr_changes)
    assert scene.isr_changes == [[("orders", 0)]]


async def test_a_storm_is_announced_in_nodes_that_fit(scene: Scene) -> None:
    for number in range(PARTITIONS_PER_NODE + 1):
        scene.notifications.on_isr("t" * 249, number)
    scene.now_ms += 5_001
    scene.notifications.begin(scene.client)
    await eventually(lambda: len(scene.isr_changes) == 2)
    assert [len(node) for node in scene.isr_changes] == [PARTITIONS_PER_NODE, 1]


@pytest.mark.parametrize("how", ["gone", "forbidden"])
async def test_an_announcement_that_is_refused_is_made_when_it_can_be(scene: Scene, how: str) -> None:
    parent = "/log_dir_event_notification"
    if how == "gone":
        assert scene.zk.commit(0, [Delete(parent, -1)]).refused is None
    else:
        scene.zk.set_acl(parent, grant_to_all(READ))
    with capture_logs() as lines:
        scene.notifications.begin(scene.client)
        scene.notifications.on_log_dir()
        await eventually(lambda: scene.client.calls.count("create") >= 3)
        if how == "gone":
            await ensure_paths(scene.client)
        else:
            scene.zk.set_acl(parent, grant_to_all(ALL))
        await eventually(lambda: scene.log_dir_events)
    assert [line["event"] for line in lines if line["event"] == "notice.refused"] == ["notice.refused"]
