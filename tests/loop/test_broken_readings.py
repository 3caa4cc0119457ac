"""The connection breaks in the middle of a reading: what was read before that is not lost with it."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.fakes.client import FakeClient
from tests.loop.admin_site import CHANGES, Site, a_site, belief, leading
from tests.support.harness import Node, settled, state_of, topic_json, until

TOPIC = "/brokers/topics/orders"
READS = {"children", "exists", "get", "get_many", "brief_many", "watch_many"}
UNCLEAN = {"unclean.leader.election.enable": "true"}
CONFIG = json.dumps({"version": 1, "config": UNCLEAN}).encode()


def break_at(site: Site, node: Node, number: int) -> list[str]:
    """The controller's connection breaks as it asks for the read of this number. Returns the reads, noted as they
    come."""
    reads: list[str] = []

    async def note(client: FakeClient, name: str) -> None:
        if client is node.zk and name in READS:
            reads.append(name)
            if len(reads) == number:
                client.disconnect()
                asyncio.get_running_loop().call_soon(site.server.reconnect, client)

    site.server.on_request = note
    return reads


@pytest.mark.parametrize("number", range(1, 5))
async def test_a_topic_is_led_and_its_configuration_believed(number: int) -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.write("/config/topics/orders", CONFIG)
        reads = break_at(site, node, number)
        await site.write(TOPIC, topic_json([1, 2]))
        await until(lambda: site.leader("orders") == 1)
        await settled()
        assert belief(node).duties.topic_configs["orders"] == UNCLEAN
        assert len(reads) > number


@pytest.mark.parametrize("number", range(1, 5))
async def test_states_are_read_of_a_topic_that_was_malformed(number: int) -> None:
    """The only replica is dead: no other write finds out that there is a state."""
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [3])
        site.server.expire(node.zk)
    data = site.server.read(TOPIC)
    assert data is not None
    await site.write(TOPIC, b"[]")
    site.die(3)
    async with leading(site) as node:
        assert (state_of(site.server, "orders", 0) or {})["leader"] == 3
        reads = break_at(site, node, number)
        await site.write(TOPIC, data)
        await until(lambda: site.leader("orders") == -1)
        assert len(reads) > number


@pytest.mark.parametrize("number", range(1, 4))
async def test_a_configuration_that_changed_is_believed(number: int) -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        reads = break_at(site, node, number)
        await site.write("/config/topics/orders", CONFIG)
        await site.write(f"{CHANGES}/config_change_", {"version": 2, "entity_path": "topics/orders"}, sequential=True)
        await until(lambda: belief(node).duties.topic_configs.get("orders") == UNCLEAN)
        assert len(reads) > number
