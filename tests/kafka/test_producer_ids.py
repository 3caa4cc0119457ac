"""Blocks of producer ids: drawn from `/latest_producer_id_block` as Kafka writes it, and none given twice."""

from __future__ import annotations

from controller.core.codes import Code
from controller.core.events import ProducerIdsAsked
from controller.loop.inbox import ProducerIdsReply
from tests.loop.admin_site import (
    Site,
    a_site,
    belief,
    leading,
)
from tests.support.harness import Node
from tests.support.znodes import generic

BLOCK = "/latest_producer_id_block"


async def granted(node: Node, broker_id: int = 2) -> object:
    epoch = belief(node).brokers[broker_id].epoch
    reply = await node.ask(ProducerIdsAsked(broker_id, epoch))
    return (reply.start, reply.size) if isinstance(reply, ProducerIdsReply) else reply.code


def block(site: Site) -> object:
    return generic(site.server.read(BLOCK) or b"null")


def written(start: int, broker_id: int = 2) -> dict[str, object]:
    return {"version": 1, "broker": broker_id, "block_start": str(start), "block_end": str(start + 999)}


async def test_blocks_follow_one_another_from_zero_whether_the_node_is_there_or_not() -> None:
    for content in (None, b""):  # brokers make it empty
        site = await a_site()
        if content is None:
            await site.tool.delete(BLOCK, -1)
        async with leading(site) as node:
            assert [await granted(node), await granted(node, 3)] == [(0, 1_000), (1_000, 1_000)]
            assert block(site) == written(1_000, 3)


async def test_a_successor_goes_on_after_the_last_block() -> None:
    site = await a_site()
    await site.write(BLOCK, written(41_000))
    async with leading(site) as node:
        assert await granted(node) == (42_000, 1_000)


async def test_a_block_that_a_broker_took_itself_is_not_given_again() -> None:
    """Brokers below protocol level 3.0 write the node themselves."""
    site = await a_site()
    async with leading(site) as node:
        assert await granted(node) == (0, 1_000)
        await site.write(BLOCK, written(1_000, 3))
        assert await granted(node) == (2_000, 1_000)


async def test_only_a_broker_as_it_is_registered_now_is_given_ids() -> None:
    site = await a_site()
    async with leading(site) as node:
        epoch = belief(node).brokers[2].epoch
        for asked, code in (
            (ProducerIdsAsked(2, epoch - 1), Code.STALE_BROKER_EPOCH),
            (ProducerIdsAsked(7, 1), Code.BROKER_ID_NOT_REGISTERED),
        ):
            assert (await node.ask(asked)).code is code
        assert not site.server.read(BLOCK)


async def test_a_node_that_makes_no_sense_is_left_alone_and_gives_no_ids() -> None:
    site = await a_site()
    await site.write(BLOCK, b"{nonsense")
    async with leading(site) as node:
        assert await granted(node) is Code.UNKNOWN_SERVER_ERROR
        assert site.server.read(BLOCK) == b"{nonsense"
        assert any("latest_producer_id_block" in (line.reason or "") for line in node.heard.lines)
