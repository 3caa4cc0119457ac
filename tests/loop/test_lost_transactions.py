"""A transaction that never arrives: it changed nothing, and yet its work is done in the end."""

from __future__ import annotations

import asyncio

import pytest

from controller.core.project.znodes import REASSIGN
from tests.fakes.client import FakeClient
from tests.loop.admin_site import (
    LOG_DIR_EVENTS,
    Site,
    a_site,
    belief,
    leading,
)
from tests.support.harness import Node, state_of, until
from tests.support.znodes import generic

TOPIC = "/brokers/topics/orders"
PARTITION = {"topic": "orders", "partition": 0}


def lose(site: Site, node: Node, number: int) -> list[str]:
    """The transaction of this number never arrives, and the connection breaks; those sent are noted."""
    sent: list[str] = []

    async def note(client: FakeClient, name: str) -> None:
        if client is node.zk and name == "transact":
            sent.append(name)
            if len(sent) == number:
                client.disconnect()
                asyncio.get_running_loop().call_soon(site.server.reconnect, client)

    site.server.on_request = note
    return sent


async def in_sync(site: Site, *isr: int) -> None:
    """The leader writes it and says so, as brokers before AlterPartition do."""
    await site.write(f"{TOPIC}/partitions/0/state", {**(state_of(site.server, "orders", 0) or {}), "isr": isr})
    await site.write("/isr_change_notification/isr_change_", {"version": 1, "partitions": [PARTITION]}, sequential=True)


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_reassignment_goes_on_though_the_second_reading_shows_no_change(number: int) -> None:
    """1: it begins; 2: the new replica is to be told; 3: it ends."""
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        sent = lose(site, node, number)
        await site.write(REASSIGN, {"version": 1, "partitions": [{**PARTITION, "replicas": [2, 3]}]})
        await until(lambda: belief(node).topics["orders"].partitions[0].adding == (3,))
        await in_sync(site, 1, 2, 3)
        await until(lambda: site.server.read(REASSIGN) is None)
        assert generic(site.server.read(TOPIC) or b"")["partitions"] == {"0": [2, 3]}
        assert (state_of(site.server, "orders", 0) or {})["isr"] == [2, 3]
        assert len(sent) > number


@pytest.mark.parametrize("parent", ["/isr_change_notification", LOG_DIR_EVENTS])
async def test_a_notification_whose_removal_never_arrived_is_removed(parent: str) -> None:
    site = await a_site()
    async with leading(site) as node:
        sent = lose(site, node, 1)
        await site.write(f"{parent}/one_", {"version": 1, "partitions": [], "broker": 1, "event": 1}, sequential=True)
        await until(lambda: not site.names(parent))
        assert len(sent) == 2
