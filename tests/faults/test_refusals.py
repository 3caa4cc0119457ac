"""Brokers that refuse requests: in virtual time, by stub brokers, until all agree again."""

from __future__ import annotations

from collections.abc import Iterable

from brokerstub.faults import Faults
from controller.core.operations import Create, Delete
from tests.faults.story import Stage, scene

STATE = "/brokers/topics/orders/partitions/0/state"


@scene
async def test_a_state_that_vanishes_with_the_seat_gets_a_leader_epoch_that_brokers_take(stage: Stage) -> None:
    """The successor knows of no leadership and begins anew; brokers know a higher leader epoch."""
    await _with_leader_epochs(stage)
    old = stage.controller.broker_id
    _by_a_tool(stage, "and a state", [Delete(STATE, -1), Delete("/controller", -1)])
    await stage.until(lambda: stage.cluster.seat_id not in (None, old) and stage.cluster.active_ids, "another controls")
    await stage.until(lambda: stage.has(STATE), "it is led anew")
    await stage.pause(5.0)
    _all_agree(stage)
    assert not stage.controller.handle.cluster.duties.refusals
    await stage.rest()


@scene
async def test_a_leadership_that_begins_anew_with_the_leader_epoch_that_brokers_know_is_noticed(stage: Stage) -> None:
    """Never elected again, so brokers know leader epoch 0, too; but the ISR is another one."""
    first, second = stage.others
    old = stage.controller.broker_id
    await stage.create("orders", {0: (first, second, old)})
    await stage.rest()
    gone = [Delete(STATE, -1), Delete(f"/brokers/ids/{second}", -1), Delete("/controller", -1)]
    stage.kill(second)
    _by_a_tool(stage, "a registration and a state", gone)
    await stage.until(lambda: stage.has(STATE), "another controls, and leads it anew")
    assert (stage.state("orders") or {})["leader_epoch"] == 0
    stage.start(second)
    await stage.until(lambda: len((stage.state("orders") or {"isr": ()})["isr"]) == 3, "all are in sync again")
    _all_agree(stage)
    await stage.rest()


def _by_a_tool(stage: Stage, what: str, ops: Iterable[Create | Delete]) -> None:
    stage.cluster.fault("delete /controller", what, can_move_seat=True)
    stage.cluster.zookeeper.commit(0, list(ops))


async def _with_leader_epochs(stage: Stage) -> None:
    """A partition whose leader epoch has risen."""
    first, second = stage.others
    await stage.create("orders", {0: (first, second, stage.controller.broker_id)})
    await stage.rest()
    for leader in (first, second):
        stage.kill(leader)
        await stage.until(lambda gone=leader: not stage.leads(gone, "orders")(), "another leads")
        stage.start(leader)
        await stage.rest()
    assert (stage.state("orders") or {})["leader_epoch"] > 1


def _all_agree(stage: Stage) -> None:
    """ZooKeeper's states are those that the replicas act by."""
    state = stage.state("orders")
    assert state is not None
    for member in stage.cluster.members.values():
        assert member.broker is not None
        [row] = member.broker.replicas.told.values()
        assert (row.leader, row.leader_epoch) == (state["leader"], state["leader_epoch"]), member.name


@scene
async def test_a_topic_without_states_that_was_moving_is_deleted_and_not_led_by_the_empty_replica(stage: Stage) -> None:
    """Its deletion was begun and its states erased by a tool while there was no controller."""
    controller, _, empty = await _moving(stage)
    stage.kill(controller)
    erased = [Delete(path, -1) for path in (STATE, STATE.removesuffix("/state"), "/brokers/topics/orders/partitions")]
    stage.cluster.zookeeper.commit(0, [Create("/admin/delete_topics/orders", b""), *erased])
    await stage.until(lambda: stage.cluster.active_ids, "another controls")
    await stage.pause(1.0)
    assert not stage.leads(empty, "orders")()
    stage.start(controller)
    await stage.until(lambda: not stage.has("/brokers/topics/orders"), "it is gone, though nobody moves it any more")
    await stage.rest()


@scene
async def test_a_moving_partition_that_lost_its_state_is_led_by_a_replica_that_may_hold_data(stage: Stage) -> None:
    """First in the assignment is the replica that is being added, and live; those that may hold data are not yet."""
    controller, near, empty = await _moving(stage)
    stage.kill(near)
    await stage.until(stage.gone(near), "it is gone")
    stage.kill(controller)
    stage.cluster.zookeeper.commit(0, [Delete(STATE, -1)])
    await stage.until(lambda: stage.cluster.active_ids, "another controls")
    await stage.pause(5.0)
    assert not stage.leads(empty, "orders")(), "the empty replica leads"
    stage.start(near)
    await stage.until(stage.leads(near, "orders"), "who may hold data leads")
    stage.start(controller)
    _hold_back(stage, empty, [])
    await stage.until(lambda: stage.player.assignment("orders")[0] == [empty, controller], "the reassignment is over")
    await stage.rest()


def _hold_back(stage: Stage, broker_id: int, partitions: Iterable[tuple[str, int]]) -> None:
    """Let the broker fetch none of these, so that it does not come into sync."""
    broker = stage.cluster.members[broker_id].broker
    assert broker is not None
    broker.on_faults(Faults(held=frozenset(partitions)))


async def _moving(stage: Stage) -> tuple[int, int, int]:
    """A partition on the controller's broker and another, that moves to a third, which is held back. Returns the three:
    the third is first in the assignment."""
    controller, near, empty = stage.controller.broker_id, *stage.others
    await stage.create("orders", {0: (near, controller)})
    await stage.rest()
    _hold_back(stage, empty, [("orders", 0)])
    await stage.reassign("orders", {0: (empty, controller)})
    await stage.until(lambda: stage.player.assignment("orders")[0][0] == empty, "it moves")
    await stage.pause(1.0)
    return controller, near, empty
