"""A controller that stood still, or was cut off, past its session: its late actions change nothing."""

from __future__ import annotations

import asyncio
import json

import pytest

from controller.core.codes import Code
from tests.integration.cluster import Cluster
from tests.integration.order import Claim
from tests.waiting import until

SHORT_FREEZE_MS = 1_500
TOPICS_ASKED_FOR = 40

pytestmark = [pytest.mark.java, pytest.mark.slow]


async def start_with_a_topic(cluster: Cluster) -> Claim:
    await cluster.start()
    assert await cluster.controller.create_topic("orders", partitions=6) == 201
    await cluster.whole()
    return cluster.order.claims()[-1]


async def notes_stand(cluster: Cluster, term: Claim) -> bool:
    """Returns whether the controller has written its own notes: the phases of its start, and the brokers it met."""
    record = f"/klamm/terms/{term.controller_epoch}"
    for path in (record, *(f"/klamm/brokers/{broker_id}" for broker_id in cluster.brokers)):
        if await cluster.zookeeper("exists", path) is None:
            return False
    data, _ = await cluster.zookeeper("get", record)
    return "acknowledged" in json.loads(data)["phases"]


def assert_succeeded_for_good(cluster: Cluster, old: Claim, new: Claim) -> None:
    """From the successor's claim on, no write of the old session, no state of the old epoch, and no obedience to it."""
    assert new.broker_id != old.broker_id
    assert new.controller_epoch == old.controller_epoch + 1
    after = [one for one in cluster.order.operations() if one.zxid > new.zxid]
    assert [one for one in after if one.session == old.session] == []
    written = [json.loads(one.data or b"") for one in after if one.path is not None and one.path.endswith("/state")]
    assert [state for state in written if state["controller_epoch"] < new.controller_epoch] == []
    for broker in cluster.brokers.values():
        obeyed = [line["controller_epoch"] for line in broker.rpcs() if line["error_code"] == Code.NONE]
        assert obeyed == sorted(obeyed)
        assert obeyed[-1] == new.controller_epoch
        if broker.broker_id != old.broker_id:  # its requests to itself may end inside of it when it is thawed
            heard = [line["at_ms"] for line in broker.rpcs() if line["controller_epoch"] == old.controller_epoch]
            assert max(heard) < new.at_ms
    assert cluster.order.claims()[-1] == new


async def assert_everybody_is_back(cluster: Cluster, zombie_id: int, old: Claim) -> None:
    """The zombie too, under a new session; in every ISR."""
    await cluster.whole()
    assert cluster.order.registrations(zombie_id)[-1].session != old.session
    assert {frozenset(state.isr) for state in (await cluster.states()).values()} == {frozenset({1, 2, 3})}


async def test_a_controller_frozen_past_its_session_changes_nothing_afterwards_and_rejoins(cluster: Cluster) -> None:
    old = await start_with_a_topic(cluster)
    zombie = cluster.controller
    zombie.freeze()
    new = await cluster.claim_after(old)
    await until(cluster.is_agreed, "the others were told")
    zombie.thaw()
    await assert_everybody_is_back(cluster, zombie.broker_id, old)
    assert_succeeded_for_good(cluster, old, new)


async def test_work_in_hand_at_the_freeze_is_dropped_and_acknowledged_work_stands(cluster: Cluster) -> None:
    old = await start_with_a_topic(cluster)
    zombie = cluster.controller
    names = [f"t{number}" for number in range(TOPICS_ASKED_FOR)]
    asked = {name: asyncio.create_task(zombie.create_topic(name, partitions=5)) for name in names}
    await asyncio.wait(asked.values(), return_when=asyncio.FIRST_COMPLETED)
    zombie.freeze()
    assert not all(task.done() for task in asked.values())
    new = await cluster.claim_after(old)
    zombie.thaw()
    answers = dict(zip(names, await asyncio.gather(*asked.values()), strict=True))
    await assert_everybody_is_back(cluster, zombie.broker_id, old)
    assert_succeeded_for_good(cluster, old, new)
    assert {name for name, status in answers.items() if status == 201} <= {topic for topic, _ in await cluster.states()}


async def test_a_controller_cut_off_from_zookeeper_resigns_by_its_own_clock_and_rejoins(cluster: Cluster) -> None:
    old = await start_with_a_topic(cluster)
    zombie = cluster.controller
    zombie.cut()

    async def is_resigned() -> bool:
        said = await zombie.get("/v1/controller")
        return said is not None and said["phase"] != "active"

    await until(is_resigned, "it is not active")
    new = await cluster.claim_after(old)
    assert await zombie.create_topic("refused") == 503
    zombie.heal()
    await assert_everybody_is_back(cluster, zombie.broker_id, old)
    assert_succeeded_for_good(cluster, old, new)
    assert {topic for topic, _ in await cluster.states()} == {"orders"}


async def test_a_write_delayed_on_its_way_until_another_has_claimed_changes_nothing(cluster: Cluster) -> None:
    old = await start_with_a_topic(cluster)
    zombie = cluster.controller
    await until(
        lambda: notes_stand(cluster, old), "no write of its own is under way, behind which the topic would wait"
    )
    zombie.proxies[0].hold("up")
    asked = asyncio.create_task(zombie.create_topic("late"))
    new = await cluster.claim_after(old)
    zombie.proxies[0].release("up")
    assert await asked == 504  # it cannot know
    await assert_everybody_is_back(cluster, zombie.broker_id, old)
    assert_succeeded_for_good(cluster, old, new)
    assert {topic for topic, _ in await cluster.states()} == {"orders"}


async def test_a_controller_frozen_for_less_than_its_session_goes_on(cluster: Cluster) -> None:
    old = await start_with_a_topic(cluster)
    controller = cluster.controller
    controller.freeze(SHORT_FREEZE_MS)
    await until(lambda: controller.state == "running", "it thaws by itself")
    assert await controller.create_topic("afterwards") == 201
    await cluster.whole()
    assert cluster.order.claims() == [old]
    assert [len(cluster.order.registrations(broker_id)) for broker_id in cluster.brokers] == [1, 1, 1]
