"""The active controller's process is killed: another takes over, and it comes back as a follower."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.slow]


async def test_when_the_controller_is_killed_another_leads_and_it_returns_as_a_follower(
    cluster: Cluster,
) -> None:
    await cluster.start()
    assert await cluster.controller.create_topic("orders", partitions=6) == 201
    await cluster.whole()
    before = await cluster.states()
    assert len(before) == 6
    old, dead = cluster.order.claims()[-1], cluster.controller

    await dead.kill()
    claim = await cluster.claim_after(old)
    expired = cluster.order.end_of(old.session)
    assert expired is not None
    assert not expired.is_asked_for
    assert expired.zxid < claim.zxid
    assert claim.broker_id != old.broker_id
    assert claim.controller_epoch == old.controller_epoch + 1

    async def is_taken_over() -> bool:
        return dead.broker_id not in {state.leader for state in (await cluster.states()).values()}

    await until(is_taken_over, "every partition has a live leader")
    await until(cluster.is_agreed, "the survivors were told")
    after = await cluster.states()
    assert {key: state.leader_epoch for key, state in after.items()} == {
        key: state.leader_epoch + 1 for key, state in before.items()
    }
    for key, state in after.items():
        assert set(state.isr) == set(before[key].isr) - {dead.broker_id}
        assert state.leader in state.isr
        assert before[key].leader in (state.leader, dead.broker_id)

    await cluster.start(dead.broker_id)
    registered = cluster.order.registrations(dead.broker_id)[-1]
    told_first = [line["reason"] for line in dead.rpcs() if line["broker_epoch"] == registered.zxid][:2]
    assert told_first == [
        "update-metadata: 1 topic, 3 brokers, part 1 of 1 of a full list",
        "leader-and-isr: 6 partitions, part 1 of 1 of a full list",
    ]
    for key, state in (await cluster.states()).items():
        assert set(state.isr) == {1, 2, 3}
        assert (state.leader, state.leader_epoch) == (after[key].leader, after[key].leader_epoch)
    assert len(cluster.order.claims()) == 2
