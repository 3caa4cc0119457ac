"""A controller that dies in the middle of a drain: the successor carries it on, and the caller asks again.

Cut everywhere: the first steps stand, and any subset of the next one. No cut takes a partition offline, and the end is
that of the uncut drain.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.core.decide.drains import remaining
from controller.core.events import DrainAsked
from controller.core.model import NO_LEADER
from tests.builders import EPOCH, believed, settle
from tests.core.model_zookeeper import ModelZooKeeper
from tests.core.test_cut import Scene, cuts, prepare

#: broker 1 leads some partitions alone, some with others in sync
DRAINED = 1


def a_shutdown() -> Scene:
    zookeeper, cluster = prepare()
    epoch = cluster.brokers[DRAINED].epoch
    return Scene(zookeeper, cluster, DrainAsked(DRAINED, epoch, is_shutdown=True))


def a_drain_by_hand() -> Scene:
    zookeeper, cluster = prepare()
    return Scene(zookeeper, cluster, DrainAsked(DRAINED))


def end_of(zookeeper: ModelZooKeeper, asked: DrainAsked) -> tuple[dict[str, tuple[int, tuple[int, ...]]], list[str]]:
    """A successor starts, carries on a granted drain, and is asked again: leaders, ISRs, remaining partitions."""
    cluster, started = zookeeper.new_term(EPOCH + 1)
    settle(cluster, started, zookeeper)
    for broker_id, drain in dict(cluster.duties.drains).items():
        settle(cluster, DrainAsked(broker_id, is_shutdown=drain.is_shutdown), zookeeper)
    settle(cluster, asked, zookeeper)
    led = {name: one.state for name, one in believed(cluster).items() if one.state is not None}
    assert all(state.leader != NO_LEADER for state in led.values() if set(state.isr) & cluster.live_ids)
    left = [str(one) for one in remaining(cluster, DRAINED)]
    return {name: (state.leader, state.isr) for name, state in led.items()}, left


@pytest.mark.parametrize("make", [a_shutdown, a_drain_by_hand])
def test_wherever_a_drain_is_cut_the_successor_comes_to_the_same_end(make: Callable[[], Scene]) -> None:
    asked = make().event
    assert isinstance(asked, DrainAsked)
    ends = [end_of(zookeeper, asked) for zookeeper in cuts(make)]
    assert len(ends) > 4
    for end in ends:
        assert end == ends[-1]


def test_a_granted_drain_is_carried_on_without_another_request() -> None:
    """The last cut but one of the grant: it stands, and not one leadership has moved."""
    scene = a_drain_by_hand()
    moved = [believed(prepare()[1])[name].state for name in ("orders-0",)]
    assert moved[0] is not None
    assert moved[0].leader == DRAINED
    for zookeeper in list(cuts(lambda: scene))[2:]:
        cluster, started = zookeeper.new_term(EPOCH + 1)
        settle(cluster, started, zookeeper)
        if DRAINED in cluster.duties.drains:
            settle(cluster, DrainAsked(DRAINED), zookeeper)
            state = believed(cluster)["orders-0"].state
            assert state is not None
            assert state.leader != DRAINED
