"""Requests that met the end of a term, of their time, or other writers: the caller is told that part may stand."""

from __future__ import annotations

import asyncio

import pytest

from controller.base.config import Limits
from controller.core.codes import Code
from controller.core.events import (
    AlterPartitionAsked,
    ConfigAsked,
    CreateTopicAsked,
    DeleteTopicAsked,
    DrainAsked,
    ElectAsked,
    Event,
    GrowTopicAsked,
    ReassignAsked,
    UndrainAsked,
)
from controller.loop.inbox import Inbox, IsrReply, NotControllerError, Request
from tests.fakes.client import FakeClient
from tests.loop.admin_site import (
    Site,
    a_site,
    belief,
    leading,
    proposal_for,
)
from tests.support.harness import Node, settled


def stop_before(site: Site, node: Node, call: str) -> asyncio.Event:
    """Hold the controller's requests of this kind back from now on; the event is set when there is one."""
    reached = asyncio.Event()

    async def hold(client: FakeClient, name: str) -> None:
        if client is node.zk and name == call:
            reached.set()
            await asyncio.Event().wait()

    site.server.on_request = hold
    return reached


REQUESTS: list[Event] = [
    CreateTopicAsked("users", partitions=1, replication_factor=1),
    GrowTopicAsked("orders", 4),
    DeleteTopicAsked("orders"),
    DrainAsked(1),
    DrainAsked(1, is_shutdown=True),
    ElectAsked(False),
    ReassignAsked({("orders", 0): (1, 3)}),
    ConfigAsked("topics", "orders", {"retention.ms": "1"}),
]


@pytest.mark.parametrize("event", REQUESTS, ids=lambda event: type(event).__name__)
async def test_a_request_in_hand_when_the_term_ends_is_unknown_and_those_behind_it_are_refused(event: Event) -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2], [2, 1])
        await node.ask(DrainAsked(2))
        await node.ask(UndrainAsked(2))  # there is something to elect
        reached = stop_before(site, node, "transact")
        in_hand = asyncio.create_task(node.ask(event))
        await reached.wait()
        behind = asyncio.create_task(node.ask(UndrainAsked(3)))
        await settled(5)
        site.server.expire(node.zk)
        reply = await in_hand
        assert (reply.code, reply.is_unknown) == (Code.NONE, True)
        assert "term ended" in reply.detail
        with pytest.raises(NotControllerError):
            await behind


def interfere_with(site: Site, node: Node, path: str) -> None:
    """Another client writes this znode, as it is, before each of the controller's transactions."""

    async def write_first(client: FakeClient, name: str) -> None:
        if client is node.zk and name == "transact":
            await site.write(path, site.server.read(path) or b"{}")

    site.server.on_request = write_first


async def test_a_request_whose_znode_others_keep_changing_is_unknown_in_the_end_and_the_next_is_served() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        interfere_with(site, node, "/config/topics/orders")
        reply = await node.ask(ConfigAsked("topics", "orders", {"retention.ms": "1"}))
        assert (reply.code, reply.is_unknown) == (Code.NONE, True)
        site.server.on_request = None
        assert (await node.ask(ConfigAsked("topics", "orders", {"retention.ms": "1"}))).code is Code.NONE


async def test_an_isr_that_met_another_writer_is_refused_with_the_standing_state() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        asked = AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal_for(node, 1)])
        interfere_with(site, node, "/brokers/topics/orders/partitions/0/state")
        reply = await node.ask(asked)
        assert isinstance(reply, IsrReply)
        [row] = reply.topics[0].partitions
        assert (row.error_code, row.isr) == (Code.INVALID_UPDATE_VERSION, (1, 2))
        assert row.version > 0


async def test_a_request_that_waits_to_be_decided_again_when_the_term_ends_is_unknown() -> None:
    """Part of it may stand."""
    inbox = Inbox(Limits())
    asking = asyncio.ensure_future(inbox.ask(DrainAsked(1)))
    await asyncio.sleep(0)
    request = (await inbox.take()).request
    assert request is not None
    request.attempts = 1
    inbox.put_back(request)
    inbox.close()
    assert (await asking).is_unknown


async def test_a_request_whose_time_is_over_is_refused_if_it_was_never_decided_and_unknown_if_it_was() -> None:
    inbox = Inbox(Limits(request_deadline_ms=0))
    waiting = asyncio.ensure_future(inbox.ask(DrainAsked(1)))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    decided = Request(DrainAsked(2), loop.time(), loop.create_future(), attempts=1)
    inbox.put_back(decided)
    assert (await inbox.take()).request is None
    assert ((await waiting).code, (await waiting).is_unknown) == (Code.REQUEST_TIMED_OUT, False)
    assert (await decided.reply).is_unknown
