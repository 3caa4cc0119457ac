"""The backlog of an unreachable broker keeps nothing waiting: not the inbox, and not the end of a term (L11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.chaos.harms import HARMS
from tests.faults.chaos.steps import HIT
from tests.faults.checker.slow_faults import HOLDING
from tests.faults.simulate.delays import ENDS_WITHIN_MS
from tests.faults.simulate.harms import FAULTS
from tests.faults.story import Stage, staged


async def with_a_backlog(stage: Stage) -> None:
    """Something is to be told to a broker that the controller cannot reach."""
    controller, deaf = stage.controller, stage.others[0]
    stage.cluster.fault("cut link", controller.broker_id)
    stage.cluster.network.link(controller.name, f"b{deaf}:80").is_cut = True
    await stage.create("orders", {0: (deaf, controller.broker_id)})
    await stage.pause(0.5)  # so that its loop has nothing left to do


def expired(stage: Stage) -> None:
    stage.expire(stage.controller.broker_id)


def deposed(stage: Stage) -> None:
    stage.delete_seat()


@pytest.mark.parametrize("lose", [expired, deposed])
def test_a_term_ends_at_once_with_any_backlog(lose: Callable[[Stage], None]) -> None:
    ended_after_ms: list[int] = []

    async def scene(stage: Stage) -> None:
        await with_a_backlog(stage)
        lost_ms, epoch = stage.cluster.zookeeper.now_ms, stage.controller.handle.controller_epoch
        assert epoch is not None
        lose(stage)
        await stage.pause(3.0)
        ended_after_ms.append(stage.cluster.ended_ms[epoch] - lost_ms)
        stage.cluster.heal()

    assert staged(scene).findings == []
    assert ended_after_ms[0] <= ENDS_WITHIN_MS


def test_nothing_waits_in_the_inbox_for_a_broker_to_answer() -> None:
    async def scene(stage: Stage) -> None:
        await with_a_backlog(stage)
        for number in range(3):
            await stage.pause(1.0)
            await stage.create(f"more-{number}", {0: (1, 2, 3)})
        stage.cluster.heal()

    outcome = staged(scene)
    assert outcome.findings == []
    assert outcome.history.end is not None
    assert outcome.history.end.lags == []


def test_a_fault_that_holds_a_process_up_falls() -> None:
    assert HARMS.keys() | FAULTS.keys() | {HIT} >= HOLDING
