"""Changes and announcements at the worst moments: each change is read again (S32), and an announced change before the
announcement goes (S31). The checker's rules judge."""

from __future__ import annotations

import json

from controller.core.events import ConfigAsked
from controller.core.operations import Create, Set
from controller.core.project.znodes import (
    CONFIG_CHANGES,
    CONTROLLER,
    ISR_NOTIFICATIONS,
    LOG_DIR_EVENTS,
    state_path,
    topic_path,
)
from controller.loop.watched_nodes import LOOK_EVERY_S
from tests.faults.checker.rules_notifications import CONFIG_CHANGES_KEPT_MS
from tests.faults.story import Stage, scene, staged

STATE, TOPIC = state_path("orders", 0), topic_path("orders")


def announce(stage: Stage, parent: str, **said: object) -> None:
    data = json.dumps({"version": 1, **said}).encode()
    assert stage.cluster.zookeeper.commit(0, [Create(f"{parent}/one_", data, sequential=True)]).refused is None


def shrink(stage: Stage) -> None:
    """As a leader of an older protocol level does: the ISR first, and then the word of it."""
    state = stage.state("orders")
    assert state is not None
    data = json.dumps({**state, "isr": [state["leader"]]}).encode()
    assert stage.cluster.zookeeper.commit(0, [Set(STATE, data, stage.version("orders"))]).refused is None
    announce(stage, ISR_NOTIFICATIONS, partitions=[{"topic": "orders", "partition": 0}])


async def until_a_successor_has_read(stage: Stage, path: str) -> None:
    """And its next request is under way for a while."""
    zookeeper = stage.cluster.zookeeper
    for broker_id in stage.others:
        stage.slow(broker_id, 0.05, 0.05)
    before, known = stage.controller.zk, len(zookeeper.ledger.readings)
    assert before is not None
    stage.kill(stage.controller.broker_id)

    def has_read() -> bool:
        node, read = zookeeper.tree.nodes.get(CONTROLLER), zookeeper.ledger.readings[known:]
        is_taken = node is not None and node.owner != before.session_id
        return is_taken and any(node is not None and one.session == node.owner and path in one.paths for one in read)

    await stage.until(has_read, "the successor loads")


@scene
async def test_a_change_between_a_reading_and_its_watch_is_read_again(stage: Stage) -> None:
    await stage.create("orders", {0: (1, 2, 3)})
    await stage.rest()
    await until_a_successor_has_read(stage, TOPIC)
    node = stage.cluster.zookeeper.tree.nodes[TOPIC]
    grown = {**json.loads(node.data), "partitions": {"0": [1, 2, 3], "1": [2, 3, 1]}}
    assert stage.cluster.zookeeper.commit(0, [Set(TOPIC, json.dumps(grown).encode(), node.version)]).refused is None
    written_ms = stage.cluster.zookeeper.now_ms
    await stage.until(lambda: stage.state("orders", 1), "it is led")
    assert stage.cluster.zookeeper.now_ms - written_ms < LOOK_EVERY_S * 1_000 / 2, "by its watch, and not by a look"
    await stage.rest()


@scene
async def test_what_could_not_be_read_as_the_connection_broke_is_read_as_soon_as_it_is_back(stage: Stage) -> None:
    await stage.rest()
    await stage.pause(LOOK_EVERY_S)
    zookeeper, client = stage.cluster.zookeeper, stage.controller.zk
    assert client is not None
    stage.cluster.fault("lose answer", stage.controller.broker_id)
    client.lose_next_answer()
    zookeeper.commit(0, [Create(TOPIC, b'{"version": 1, "partitions": {"0": [1, 2, 3]}}')])
    written_ms = zookeeper.now_ms
    await stage.until(lambda: stage.state("orders"), "it is led")
    assert zookeeper.now_ms - written_ms < LOOK_EVERY_S * 1_000 / 4, "and not by a look"
    await stage.rest()


@scene
async def test_an_announcement_just_after_a_reading_is_read_again(stage: Stage) -> None:
    await stage.create("orders", {0: (1, 2, 3)})
    await stage.rest()
    await until_a_successor_has_read(stage, STATE)
    shrink(stage)
    await stage.rest()


@scene
async def test_an_announcement_outlives_the_controller_that_was_to_read_it(stage: Stage) -> None:
    await stage.create("orders", {0: (1, 2, 3)})
    await stage.rest()
    controller = stage.controller
    controller.process.freeze()
    shrink(stage)
    announce(stage, LOG_DIR_EVENTS, broker=stage.others[0], event=1)
    stage.kill(controller.broker_id)
    await stage.until(lambda: stage.cluster.active_ids, "another controls")
    stage.start(controller.broker_id)
    await stage.rest()


@scene
async def test_a_broker_that_announces_a_log_directory_is_asked_about_all_its_replicas(stage: Stage) -> None:
    await stage.create("orders", {0: (1, 2, 3), 1: (2, 3, 1)})
    await stage.rest()
    for broker_id in stage.cluster.broker_ids:  # the controller, too; and a broker that does not exist
        announce(stage, LOG_DIR_EVENTS, broker=broker_id, event=1)
    announce(stage, LOG_DIR_EVENTS, broker=77, event=1)
    await stage.rest()


def test_changes_of_configuration_go_when_everybody_had_the_time_to_read_them() -> None:
    left: list[str] = []

    async def play(stage: Stage) -> None:
        await stage.create("orders", {0: (1, 2, 3)})
        for value in ("1", "2"):
            asked = ConfigAsked("topics", "orders", {"min.insync.replicas": value})
            assert await stage.ask(asked, what="configure", subject="orders") == "ok"
            await stage.pause(CONFIG_CHANGES_KEPT_MS / 1_000 + 1)
        left.extend(stage.cluster.zookeeper.tree.nodes[CONFIG_CHANGES].children)

    assert staged(play).findings == []
    assert left == ["config_change_0000000001"]
