"""Scenes of the museum about terms and the seat, played in the simulator. The checker's rules judge them."""

from __future__ import annotations

import pytest

from controller.core.events import CreateTopicAsked
from controller.core.operations import Delete, Set
from tests.faults.story import Stage, scene, staged

ON_PURPOSE = "a bug on purpose"


@scene
async def test_m01_an_old_controller_still_writes(stage: Stage) -> None:
    """The seat is taken away while events wait, and the news of it comes late."""
    await stage.create("orders", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    await stage.rest()
    old, victim = stage.controller, stage.others[0]
    stage.slow(old.broker_id, 0.3, 0.4)
    stage.expire(victim)
    stage.cluster.fault("delete /controller", can_move_seat=True)
    stage.cluster.zookeeper.commit(0, [Delete("/controller", -1)])
    await stage.pause(3.0)
    stage.no_longer_slow(old.broker_id)
    await stage.rest()


@scene
async def test_m05_a_deposed_controller_does_nothing_with_its_queue(stage: Stage) -> None:
    """A topic changes again and again while the seat moves; the former controller reads none of it afterwards."""
    await stage.create("orders", {0: (1, 2, 3)})
    await stage.rest()
    old, path = stage.controller, "/brokers/topics/orders"
    stage.slow(old.broker_id, 0.05, 0.05)
    stage.cluster.fault("delete /controller", can_move_seat=True)
    stage.cluster.zookeeper.commit(0, [Delete("/controller", -1)])
    await stage.until(lambda: stage.cluster.seat_id not in (None, old.broker_id), "another has the seat")
    await stage.pause(0.5)
    assert not old.handle.is_active
    before = old.zk.calls.count("get_many")
    for _ in range(100):
        data = stage.cluster.zookeeper.read(path)
        assert data is not None
        stage.cluster.zookeeper.commit(0, [Set(path, data, -1)])
        await stage.pause(0.02)
    assert old.zk.calls.count("get_many") == before
    stage.no_longer_slow(old.broker_id)
    await stage.rest()


@scene
async def test_m06_an_error_ends_the_acting_before_the_seat_is_released(stage: Stage) -> None:
    """A bug shows itself with requests queued: when the seat is vacant, no process acts as the controller any more."""
    await stage.rest()
    old = stage.controller
    stage.slow(old.broker_id, 0.3, 0.4)
    recorded = old.journal.accept

    def fail(lines: object) -> None:
        raise ZeroDivisionError(ON_PURPOSE)

    for number in range(20):
        stage.player.begin("create-topic", f"t{number}", CreateTopicAsked(f"t{number}", 1, 3))
    old.journal.accept = fail  # type: ignore[assignment,method-assign]
    stage.cluster.fault("bug", old.broker_id, can_move_seat=True)
    await stage.until(lambda: stage.cluster.seat_id != old.broker_id, "the seat is released")
    assert not old.handle.is_active
    old.journal.accept = recorded  # type: ignore[method-assign]
    stage.no_longer_slow(old.broker_id)
    await stage.player.finish()
    assert [one for one in stage.cluster.bugs if ON_PURPOSE in one]
    stage.cluster.bugs[:] = [one for one in stage.cluster.bugs if ON_PURPOSE not in one]
    await stage.rest()


@scene
async def test_m07_a_process_controls_again_after_it_was_fenced(stage: Stage) -> None:
    """The seat is taken from every process in turn until the first has it again; then a broker dies."""
    await stage.create("orders", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    await stage.rest()
    held: dict[int, int] = {}
    while max(held.values(), default=0) < 2:
        holder = stage.controller
        held[holder.broker_id] = held.get(holder.broker_id, 0) + 1
        await stage.until(lambda: stage.controller.handle.is_active, "it controls")
        stage.cluster.fault("delete /controller", can_move_seat=True)
        stage.cluster.zookeeper.commit(0, [Delete("/controller", -1)])
        await stage.until(lambda: stage.cluster.seat_id is not None, "there is a controller")
    await stage.rest()
    dying = stage.others[0]
    stage.kill(dying)
    await stage.until(stage.gone(dying), "it is gone")
    await stage.until(lambda: not stage.leads(dying, "orders", dying - 1)(), "another leads")
    stage.start(dying)
    await stage.rest()


@scene
async def test_m10_after_many_terms_no_watch_is_armed_twice(stage: Stage) -> None:
    """The seat moves fifty times; each process has as many handlers as after its first term."""
    await stage.create("orders", {0: (1, 2, 3)})
    await stage.rest()
    for _ in range(50):
        stage.cluster.fault("delete /controller", can_move_seat=True)
        stage.cluster.zookeeper.commit(0, [Delete("/controller", -1)])
        await stage.until(
            lambda: stage.cluster.seat_id is not None and stage.controller.handle.is_active, "one controls"
        )
    await stage.rest()
    clients = [member.zk for member in stage.cluster.members.values() if member.zk is not None]
    counts = {client.session_id: len(client._watch_handlers) for client in clients}
    fewest = min(counts.values())
    # the controller's term listens, too: for its nodes, and for its seat and epoch
    assert all(count <= fewest + 2 for count in counts.values()), counts


@scene
async def test_m16_topics_are_made_while_a_controller_loads(stage: Stage) -> None:
    """A tool makes topics from the moment that the seat is taken until the new controller has loaded. Watches alone
    tell the controller: a look at what it watches, which would hide a watch that was opened too late, never comes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.term.term.LOOK_EVERY_S", 1e6)
        await _topics_made_while_it_loads(stage)


async def _topics_made_while_it_loads(stage: Stage) -> None:
    await stage.create("orders", {0: (1, 2, 3)})
    await stage.rest()
    for member in stage.cluster.members.values():
        stage.slow(member.broker_id, 0.02, 0.02)
    old = stage.controller
    stage.kill(old.broker_id)
    stage.cluster.zookeeper.expire(old.zk.session_id if old.zk else 0)
    await stage.until(lambda: stage.cluster.seat_id is not None, "the seat is taken")
    made = 0
    while not stage.cluster.active_ids and made < 100:
        stage.write(f"/brokers/topics/late-{made}", b'{"version":2,"partitions":{"0":[1,2,3]}}')
        made += 1
        await stage.pause(0.01)
    assert made > 3, "it loaded too fast to be met"
    stage.start(old.broker_id)
    await stage.rest()
    assert all(stage.state(f"late-{number}") for number in range(made))


def test_m30_a_controller_without_its_session_resigns_though_a_rebalance_runs() -> None:
    outcome = staged(_expired_while_it_rebalances, balances=True)
    assert not outcome.findings, "; ".join(dict.fromkeys(one.rule for one in outcome.findings))


async def _expired_while_it_rebalances(stage: Stage) -> None:
    """ZooKeeper has carried out the rebalance, and its answer is still on its way. Then the session expires."""
    controller, (first, other) = stage.controller, stage.others
    await stage.create("orders", dict.fromkeys(range(6), (first, other, controller.broker_id)))
    await stage.rest()
    stage.kill(first)
    await stage.until(lambda: all(stage.leads(other, "orders", number)() for number in range(6)), "another leads")
    stage.start(first)
    await stage.until(lambda: all(len(_isr(stage, number)) == 3 for number in range(6)), "it is in sync again")
    stage.slow(controller.broker_id, 0.4, 0.5)
    await stage.until(stage.leads(first, "orders"), "the rebalance has been written")
    assert not any(one.reason == "leader imbalance" for one in stage.cluster.lines), "it is over already"
    begun_s = stage.cluster.loop.time()
    stage.expire(controller.broker_id)
    await stage.until(lambda: not controller.handle.is_active, "it resigns")
    assert stage.cluster.loop.time() - begun_s < 1.0
    await stage.until(lambda: stage.cluster.active_ids, "somebody controls")
    await stage.rest()


def _isr(stage: Stage, number: int) -> list[int]:
    return (stage.state("orders", number) or {"isr": []})["isr"]


@scene
async def test_m34_a_controller_stops_while_a_deletion_waits(stage: Stage) -> None:
    """A topic being deleted waits for a broker that is gone, and the controller, which leads it, is asked to stop."""
    waited_for, controller = stage.others[0], stage.controller
    await stage.create("doomed", {0: (controller.broker_id, *stage.others)})
    await stage.rest()
    stage.kill(waited_for)
    await stage.until(stage.gone(waited_for), "it is gone")
    await stage.delete("doomed")
    stage.cluster.fault("stop", controller.broker_id, can_move_seat=True)
    begun_s = stage.cluster.loop.time()
    controller.stop()
    await stage.until(stage.gone(controller.broker_id), "it has stopped")
    assert stage.cluster.loop.time() - begun_s < 10.0
    stage.start(waited_for)
    stage.start(controller.broker_id)
    await stage.rest()


@scene
async def test_m36_a_caller_that_waits_for_a_lost_controller_is_answered(stage: Stage) -> None:
    """Calls are queued when the seat goes."""
    await stage.rest()
    old = stage.controller
    stage.slow(old.broker_id, 0.3, 0.5)
    for number in range(8):
        stage.player.begin("create-topic", f"t{number}", CreateTopicAsked(f"t{number}", 1, 3))
    await stage.pause(0.2)
    stage.cluster.fault("delete /controller", can_move_seat=True)
    stage.cluster.zookeeper.commit(0, [Delete("/controller", -1)])
    await stage.pause(5.0)
    stage.no_longer_slow(old.broker_id)
    await stage.player.finish()
    assert all(one.ended_ms is not None for one in stage.cluster.calls)
    waited_ms = [(one.ended_ms or 0) - one.begun_ms for one in stage.cluster.calls]
    assert max(waited_ms) < 9_000, "somebody waited until its own time-out"
