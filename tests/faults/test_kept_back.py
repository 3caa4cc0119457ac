"""Changes of nodes while no client may read them: ZooKeeper sends no events about them, and the watches are used up."""

from __future__ import annotations

from controller.core.events import DrainAsked, UndrainAsked
from controller.core.operations import Create, Delete
from controller.core.project.znodes import BROKER_IDS, CONTROLLER, DELETE_TOPICS, DRAINING, TOPICS, topic_path
from controller.loop.watched_nodes import LOOK_EVERY_S
from tests.fakes.acls import ALL, OPEN, READ, grant_to_all
from tests.faults.hostile import HIDE, HIDE_SEAT
from tests.faults.story import Stage, staged

MS = 1_000


async def changed_while_hidden(stage: Stage, path: str, *ops: Create | Delete, kind: str = HIDE) -> None:
    zookeeper = stage.cluster.zookeeper
    zookeeper.set_acl(path, grant_to_all(ALL & ~READ))
    stage.cluster.fault(kind, f"{path} for 0.1 s", can_move_seat=kind == HIDE_SEAT, lasts_s=0.1)
    if path == CONTROLLER:
        stage.cluster.fault("delete /controller", can_move_seat=True)
    zookeeper.commit(0, list(ops))
    await stage.pause(0.1)
    if path in zookeeper.tree.nodes:
        zookeeper.set_acl(path, *OPEN)


def test_a_topic_that_was_marked_while_the_markers_were_hidden_is_deleted() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("orders", {0: (1, 2, 3)})
        await stage.rest()
        begun_ms = stage.cluster.zookeeper.now_ms
        await changed_while_hidden(stage, DELETE_TOPICS, Create(f"{DELETE_TOPICS}/orders", b""))
        await stage.until(lambda: not stage.has(topic_path("orders")), "it is deleted")
        assert stage.cluster.zookeeper.now_ms - begun_ms < LOOK_EVERY_S * MS + 3_000
        await stage.create("payments", {0: (1, 2, 3)})
        await stage.delete("payments")  # the watch is there again
        await stage.rest()

    assert staged(scene).findings == []


def test_a_topic_that_was_made_while_the_list_was_hidden_is_led() -> None:
    async def scene(stage: Stage) -> None:
        await stage.rest()
        made = Create(topic_path("orders"), b'{"version": 1, "partitions": {"0": [1, 2, 3]}}')
        await changed_while_hidden(stage, TOPICS, made)
        await stage.until(lambda: stage.state("orders"), "it is led")
        await stage.rest()

    assert staged(scene).findings == []


def test_a_broker_that_came_while_the_list_was_hidden_is_told_everything() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("orders", {0: (1, 2, 3)})
        away = stage.others[0]
        stage.kill(away)
        await stage.until(stage.gone(away), "its session is over")
        await stage.until(lambda: away not in (stage.state("orders") or {})["isr"], "it is out of the ISR")
        zookeeper = stage.cluster.zookeeper
        zookeeper.set_acl(BROKER_IDS, grant_to_all(ALL & ~READ))
        stage.cluster.fault(HIDE, f"{BROKER_IDS} for 1.0 s", lasts_s=1.0)
        stage.start(away)
        await stage.until(lambda: stage.has(f"{BROKER_IDS}/{away}"), "it is registered")
        zookeeper.set_acl(BROKER_IDS, *OPEN)
        await stage.rest()

    assert staged(scene).findings == []


def test_a_seat_that_was_vacated_while_it_was_hidden_is_claimed() -> None:
    """Neither the old controller nor the standbys received an event, and no later write reveals the change."""

    async def scene(stage: Stage) -> None:
        await stage.rest()
        await stage.pause(3.0)
        begun_ms, epoch = stage.cluster.zookeeper.now_ms, stage.cluster.zookeeper.read("/controller_epoch")
        await changed_while_hidden(stage, CONTROLLER, Delete(CONTROLLER, -1), kind=HIDE_SEAT)
        await stage.until(lambda: stage.cluster.seat_id, "somebody claims it")
        assert stage.cluster.zookeeper.now_ms - begun_ms < LOOK_EVERY_S * MS + 1_000
        assert stage.cluster.zookeeper.read("/controller_epoch") != epoch
        await stage.rest()

    assert staged(scene).findings == []


def test_a_seat_that_was_hidden_and_kept_is_still_ours() -> None:
    async def scene(stage: Stage) -> None:
        await stage.rest()
        await stage.pause(3.0)  # a write would show that its own fence may not be read
        before = stage.controller
        stage.cluster.zookeeper.set_acl(CONTROLLER, grant_to_all(ALL & ~READ))
        stage.cluster.fault(HIDE_SEAT, f"{CONTROLLER} for 12.0 s", lasts_s=12.0)
        await stage.pause(3 * LOOK_EVERY_S)
        stage.cluster.zookeeper.set_acl(CONTROLLER, *OPEN)
        await stage.rest()
        assert stage.controller is before

    assert staged(scene).findings == []


def test_a_broker_whose_registration_is_hidden_lives_on_and_notices_that_it_is_gone() -> None:
    async def scene(stage: Stage) -> None:
        await stage.rest()
        one = stage.others[0]
        path, member = f"{BROKER_IDS}/{one}", stage.cluster.members[one]
        zookeeper, session = stage.cluster.zookeeper, member.zk
        zookeeper.set_acl(path, grant_to_all(ALL & ~READ))
        stage.cluster.fault(HIDE, f"{path} for 9.0 s", lasts_s=9.0)
        assert session is not None
        session.disconnect()  # it looks after each reconnect
        await stage.pause(3 * LOOK_EVERY_S)
        assert member.zk is session
        stage.cluster.fault("delete a registration", one, can_move_seat=True)
        zookeeper.commit(0, [Delete(path, -1)])
        await stage.until(lambda: stage.has(path), "it registers anew")
        await stage.rest()

    assert staged(scene).findings == []


def test_a_drain_that_a_term_could_not_read_is_ended_when_that_is_asked() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("orders", {0: (1, 2, 3)})
        drained = stage.others[0]
        assert await stage.ask(DrainAsked(drained), what="drain", subject=str(drained)) == "ok"
        zookeeper = stage.cluster.zookeeper
        zookeeper.set_acl(DRAINING, grant_to_all(ALL & ~READ))
        stage.cluster.fault(HIDE, f"{DRAINING} for 9.0 s", lasts_s=9.0)
        epoch = zookeeper.read("/controller_epoch")
        stage.delete_seat()
        await stage.until(lambda: zookeeper.read("/controller_epoch") != epoch, "another term begins")
        await stage.pause(2.0)
        zookeeper.set_acl(DRAINING, *OPEN)
        assert await stage.ask(UndrainAsked(drained), what="undrain", subject=str(drained)) == "ok"
        assert not stage.has(f"{DRAINING}/{drained}")
        await stage.rest()

    assert staged(scene).findings == []
