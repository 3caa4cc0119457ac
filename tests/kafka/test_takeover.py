"""The seat beside Kafka's brokers: taken from them, given back, preferred; and brokers of the other kind."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from controller.core.formats import ControllerZnode, encode
from controller.core.project.znodes import CONTROLLERS, controller_path
from controller.loop.inbox import NotControllerError
from controller.seat.claim import is_handed_back
from controller.wire import bodies
from controller.zookeeper.port import NodeExistsError
from tests.fakes.client import FakeClient
from tests.loop.admin_site import (
    Site,
    a_site,
    belief,
    leading,
)
from tests.support.harness import (
    a_controller,
    settled,
    topic_json,
    until,
)

SEAT = "/controller"


async def a_kafka_controller(site: Site, broker_id: int = 1) -> FakeClient:
    """A real broker sits there, by the session that it is registered with."""
    zk = site.brokers[broker_id]
    await zk.create(SEAT, a_seat(broker_id), ephemeral=True)
    return zk


def holder(site: Site) -> object:
    data = site.server.read(SEAT)
    return None if data is None else data.partition(b'"brokerid":')[2].partition(b",")[0]


async def test_a_takeover_claims_from_the_seats_holder_with_the_next_epoch() -> None:
    site = await a_site()
    await a_kafka_controller(site)
    async with a_controller(site.server, 100, is_dedicated=True) as node:
        await settled()
        assert node.handle.phase == "standby"
        assert await node.daemon.take_over() == 1
        assert holder(site) == b"100"
        await until(lambda: node.handle.is_active)
        assert await node.daemon.take_over() == 1, "ours already"


async def test_a_seat_handed_back_is_left_alone_until_the_next_takeover() -> None:
    site = await a_site()
    async with leading(site, is_dedicated=True) as node, a_controller(site.server, 101, is_dedicated=True):
        await node.daemon.hand_back()
        await settled()
        assert holder(site) is None, "for Kafka's brokers, not for another of ours"
        assert await is_handed_back(site.tool)
        await a_kafka_controller(site)
        site.die(1)
        await settled()
        assert holder(site) is None
        assert await node.daemon.take_over() == 2
        await until(lambda: node.handle.is_active)
        assert holder(site) == b"9"
        assert not await is_handed_back(site.tool)
        assert belief(node).duties.terms[1].why == "handed back"


async def test_only_the_seats_holder_can_hand_back() -> None:
    site = await a_site()
    await a_kafka_controller(site)
    async with a_controller(site.server, 100, is_dedicated=True) as node:
        await settled()
        with pytest.raises(NotControllerError):
            await node.daemon.hand_back()


async def test_a_preferred_controller_takes_the_seat_from_a_broker_and_not_from_another_of_ours() -> None:
    site = await a_site()
    await a_kafka_controller(site)
    async with a_controller(site.server, 100, is_dedicated=True, is_preferred=True) as node:
        await until(lambda: node.handle.is_active)
        async with a_controller(site.server, 101, is_dedicated=True, is_preferred=True):
            await settled()
            assert holder(site) == b"100"


async def test_a_preferred_controller_leaves_a_seat_that_was_handed_back() -> None:
    site = await a_site()
    async with leading(site, is_dedicated=True, is_preferred=True) as node:
        await node.daemon.hand_back()
        await a_kafka_controller(site)
        await settled()
        assert holder(site) == b"1"


async def test_a_takeover_that_two_ask_for_is_one() -> None:
    site = await a_site()
    await a_kafka_controller(site)
    async with a_controller(site.server, 100, is_dedicated=True) as node:
        await settled()
        assert await asyncio.gather(node.daemon.take_over(), node.daemon.take_over()) == [1, 1]


async def test_a_takeover_is_answered_when_the_session_ends_first() -> None:
    site = await a_site()
    await a_kafka_controller(site)
    async with a_controller(site.server, 100, is_dedicated=True) as node:
        await settled()
        site.server.expire(node.zk)
        with pytest.raises(NotControllerError, match="the session with ZooKeeper is over"):
            await node.daemon.take_over()


async def test_a_seat_lost_before_it_is_handed_back_is_no_success() -> None:
    site = await a_site()
    async with leading(site, is_dedicated=True) as node:
        handing_back = asyncio.create_task(node.daemon.hand_back())
        site.server.expire(node.zk)
        with pytest.raises(NotControllerError):
            await handing_back
        assert not await is_handed_back(site.tool)


async def test_a_broker_of_the_other_kind_is_listed_and_assigned_nothing() -> None:
    site = await a_site()
    async with leading(site, is_ours=lambda broker: broker.broker_id != 3) as node:
        await site.write("/brokers/topics/orders", topic_json([3, 1], [2, 3]))
        await until(lambda: site.leader("orders", 1) is not None)
        assert (site.leader("orders"), sorted(node.held.foreign_brokers)) == (1, [3])
        assert belief(node).live_ids == {1, 2}


async def test_a_stub_leads_no_cluster_of_real_brokers() -> None:
    site = await a_site()
    await site.write("/brokers/topics/orders", topic_json([1, 2]))
    is_stub = bodies.address_of
    async with a_controller(
        site.server,
        9,
        is_ours=lambda broker: is_stub(broker.endpoints, "NONE") is not None,
        yields_to_foreign_brokers=True,
    ) as node:
        await until(lambda: any(guard.reason is not None for guard in node.heard.guards))
        assert site.leader("orders") is None, "nothing was written"
        assert not node.handle.is_active


async def test_a_real_broker_that_holds_nothing_takes_no_cluster_from_its_stubs() -> None:
    site = await a_site()
    await site.write("/brokers/topics/orders", topic_json([1, 2]))
    async with a_controller(
        site.server, 9, is_ours=lambda broker: broker.broker_id != 3, yields_to_foreign_brokers=True
    ) as node:
        await until(lambda: node.handle.is_active)
        assert (site.leader("orders"), sorted(node.held.foreign_brokers)) == (1, [3])


async def test_a_vacant_seat_that_this_controller_could_not_fill_is_left_to_the_brokers() -> None:
    site = await a_site()
    reasons = ["a migration to KRaft is under way"]

    async def against(zk: object) -> list[str]:
        return reasons

    async with a_controller(site.server, 100, is_dedicated=True, is_preferred=True, vetoes_against=against) as node:
        await settled()
        assert holder(site) is None
        await a_kafka_controller(site)
        await settled()
        assert holder(site) == b"1"
        reasons.clear()
        site.die(1)
        await until(lambda: node.handle.is_active)


@pytest.mark.parametrize("preference", [None, True, False])
async def test_a_standby_takes_the_seat_back_from_a_broker_that_was_faster_when_ours_died(
    preference: bool | None,
) -> None:
    """Twenty times, with the broker always the faster one."""
    for _ in range(20):
        site = await a_site()
        active = await site.server.connect()
        with suppress(NodeExistsError):
            await active.create(CONTROLLERS, b"")
        await active.create(controller_path(100), b"{}", ephemeral=True)
        await active.create(SEAT, a_seat(100), ephemeral=True)
        async with a_controller(site.server, 101, is_dedicated=True, is_preferred=preference) as standby:
            await settled()
            assert standby.handle.phase == "standby"
            broker = site.brokers[1]
            # in one step of ZooKeeper's, as nothing can be between the two
            site.server.expire(active)
            await broker.create(SEAT, a_seat(1), ephemeral=True)
            if preference is False:
                await settled()
                assert holder(site) == b"1"
            else:
                await until(lambda: standby.handle.is_active)
                assert holder(site) == b"101"


async def test_a_standby_leaves_the_seat_to_a_broker_when_ours_handed_it_back_or_never_had_it() -> None:
    site = await a_site()
    broker = await a_kafka_controller(site)
    async with a_controller(site.server, 101, is_dedicated=True, is_preferred=None) as standby:
        await settled()
        assert holder(site) == b"1", "none of ours ever had it"
        assert await standby.daemon.take_over() == 1
        await until(lambda: standby.handle.is_active)
        async with a_controller(site.server, 102, is_dedicated=True, is_preferred=None):
            await settled()
            await standby.daemon.hand_back()
            await broker.create(SEAT, a_seat(1), ephemeral=True)
            await settled()
            assert holder(site) == b"1"


def a_seat(broker_id: int) -> bytes:
    return encode(ControllerZnode(brokerid=broker_id, timestamp="0", version=2))
