"""The time that a cluster takes to recover, in virtual time: the bench measures real processes."""

from __future__ import annotations

from tests.faults.simulate.member import SESSION_TIMEOUT_MS
from tests.faults.simulate.zookeeper import TICK_S
from tests.faults.story import Stage, scene

CLAIMED_WITHIN_S = 0.1  # after the session went
LED_WITHIN_S = 1.0  # and every partition has a live leader, of which the others were told


@scene
async def test_a_killed_controller_is_succeeded_as_soon_as_its_session_expires(stage: Stage) -> None:
    old, others = stage.controller.broker_id, stage.others
    await stage.create("orders", dict.fromkeys(range(6), (old, *others)))
    await stage.rest()
    loop = stage.cluster.loop
    killed_s = loop.time()
    stage.kill(old)
    await stage.until(stage.gone(old), "its session expires")
    expired_s = loop.time()
    assert expired_s - killed_s <= SESSION_TIMEOUT_MS / 1_000 + 2 * TICK_S
    await stage.until(lambda: stage.cluster.seat_id in others, "another claims")
    assert loop.time() - expired_s <= CLAIMED_WITHIN_S
    await stage.until(lambda: all(stage.leads(others[0], "orders", number)() for number in range(6)), "another leads")
    assert loop.time() - expired_s <= LED_WITHIN_S
    stage.start(old)
    await stage.rest()
