"""Topics that real brokers create by themselves, and place on a controller that is no broker."""

from __future__ import annotations

import json

from tests.loop.admin_site import a_site, belief, leading
from tests.support.harness import state_of, topic_json, until

TOPIC = "/brokers/topics/made-by-a-broker"


async def test_a_replica_on_the_controller_goes_to_the_broker_that_hosts_least() -> None:
    site = await a_site()
    async with leading(site, is_dedicated=True) as node:  # its id is 9, and it is no broker
        await site.topic("orders", [1, 2])
        await site.write(TOPIC, topic_json([9, 1], [2, 9], [1, 2], topic_id="BBBBBBBBBBBBBBBBBBBBBg"))
        await until(lambda: all(site.leader("made-by-a-broker", number) is not None for number in range(3)))
        written = json.loads(site.server.read(TOPIC) or b"")
        assert written["partitions"] == {"0": [3, 1], "1": [2, 3], "2": [1, 2]}
        assert written["topic_id"] == "BBBBBBBBBBBBBBBBBBBBBg"
        assert (state_of(site.server, "made-by-a-broker", 0) or {})["isr"] == [3, 1]
        assert 9 not in belief(node).hosted


async def test_where_every_broker_has_a_replica_there_is_one_less() -> None:
    site = await a_site()
    async with leading(site, is_dedicated=True):
        await site.write(TOPIC, topic_json([1, 9, 2, 3]))
        await until(lambda: site.leader("made-by-a-broker") == 1)
        assert json.loads(site.server.read(TOPIC) or b"")["partitions"] == {"0": [1, 2, 3]}


async def test_a_partition_that_was_led_stays_as_it_is() -> None:
    site = await a_site()
    async with leading(site, is_dedicated=True):
        await site.write(TOPIC, topic_json([1, 2]))
        await until(lambda: site.leader("made-by-a-broker") == 1)
        await site.write(TOPIC, topic_json([1, 9]))
        await site.topic("later", [1])
        assert json.loads(site.server.read(TOPIC) or b"")["partitions"] == {"0": [1, 9]}


async def test_a_misplaced_partition_led_by_another_controller_is_placed_anew_by_the_next_term() -> None:
    site = await a_site()
    await site.write(TOPIC, topic_json([9, 1, 2], [9, 1, 2, 3]))
    state = json.dumps({"controller_epoch": 0, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1, 2]}).encode()
    for path in ("", "/0", "/1"):
        await site.write(f"{TOPIC}/partitions{path}", b"")
    for number in range(2):
        await site.write(f"{TOPIC}/partitions/{number}/state", state)
    async with leading(site, is_dedicated=True) as node:
        assert json.loads(site.server.read(TOPIC) or b"")["partitions"] == {"0": [3, 1, 2], "1": [1, 2, 3]}
        assert site.server.read(f"{TOPIC}/partitions/0/state") == state, "leader and ISR are the same"
        assert 9 not in belief(node).hosted


async def test_a_controller_that_is_a_broker_keeps_its_replicas_while_it_is_away() -> None:
    site = await a_site()
    async with leading(site):
        await site.write(TOPIC, topic_json([9, 1]))
        await until(lambda: site.leader("made-by-a-broker") == 1)
        assert json.loads(site.server.read(TOPIC) or b"")["partitions"] == {"0": [9, 1]}
