"""The wall clock of the controller's process jumps while something waits: it waits as long as it would have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from controller.base.config import Limits
from controller.core.belief.duties import Deletion
from controller.core.codes import Code
from controller.core.events import RefusalsAnswered, StopReplicaAnswered, ToldRefused
from controller.core.project.requests import Telling
from tests.fakes.zookeeper import FakeZooKeeper
from tests.loop.admin_site import Site, a_site, belief, leading
from tests.support.harness import Node, a_controller, a_server, settled, topic_json, until

HOUR_MS = 3_600_000
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAg"
REPLICA = (TOPIC_ID, 0)
TOPIC = "/brokers/topics/orders"

jumps = pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "back"])


class Wall:
    """Right until it jumps."""

    def __init__(self, server: FakeZooKeeper, each_ms: int = 0) -> None:
        self._server = server
        #: by which it jumps at each reading
        self._each_ms = each_ms
        self.ahead_ms = 0

    def __call__(self) -> int:
        self.ahead_ms += self._each_ms
        return self._server.now_ms + self.ahead_ms


async def pass_s(site: Site, seconds: int, told: Callable[[], int]) -> list[int]:
    """How often something had been told after each of so many seconds."""
    counts = []
    for _ in range(seconds):
        site.server.clock.advance(1)
        await settled()
        counts.append(told())
    return counts


def is_told_to_delete(telling: Telling, broker_id: int) -> bool:
    return any(stop.delete for stops in telling.stops.get(broker_id, {}).values() for stop in stops.values())


def how_often(node: Node, is_told: Callable[[Telling], Any]) -> Callable[[], int]:
    return lambda: sum(bool(is_told(telling)) for _, telling in node.heard.tellings)


@jumps
async def test_a_refused_deletion_is_tried_again_when_its_pause_is_over(by_ms: int) -> None:
    site = await a_site()
    wall = Wall(site.server)
    async with leading(site, wall_ms=wall) as node:
        await site.topic("orders", [1])
        asked = how_often(node, lambda telling: is_told_to_delete(telling, 1))
        await site.write("/admin/delete_topics/orders", b"")
        await until(lambda: asked() == 1)
        seen = []
        for _ in range(2):
            await refuse(node, lambda: StopReplicaAnswered(1, epoch(node), frozenset({REPLICA}), frozenset({REPLICA})))
            wall.ahead_ms += by_ms
            seen.append(await pass_s(site, 2, asked))
        assert seen == [[2, 2], [2, 3]]  # pauses of 1 and 2 seconds


@jumps
async def test_a_refused_state_is_told_again_when_its_pause_is_over(by_ms: int) -> None:
    site = await a_site()
    wall = Wall(site.server)
    async with leading(site, wall_ms=wall) as node:
        await site.topic("orders", [1])
        await settled()
        told = how_often(node, lambda telling: 1 in telling.leaderships)
        before = told()
        refused = ToldRefused("LeaderAndIsr", Code.INCONSISTENT_TOPIC_ID, 0)
        node.heard.on_answer(RefusalsAnswered(1, epoch(node), {REPLICA: refused}))
        await settled()
        counts = await pass_s(site, 1, told)
        wall.ahead_ms += by_ms
        counts += await pass_s(site, 6, told)
        assert [count - before for count in counts] == [1, 1, 2, 2, 2, 2, 3]  # after 1 second, 2 and 4


@jumps
async def test_a_broker_that_says_nothing_of_a_topics_id_is_waited_for_as_long_as_a_session(by_ms: int) -> None:
    site = await a_site()
    wall = Wall(site.server)
    async with leading(site, wall_ms=wall) as node:
        await site.write(TOPIC, topic_json([1, 2], topic_id=None))
        await settled()
        wall.ahead_ms += by_ms
        assert await pass_s(site, 5, lambda: int(belief(node).topics["orders"].topic_id is not None)) == [0, 0, 0, 1, 1]


async def test_terms_that_fail_at_once_are_tried_less_and_less_often() -> None:
    """Though by the wall clock, which jumps at each reading, each of them lasted for hours."""
    server = await a_server()

    def fail(*given: object) -> Any:
        raise RuntimeError(f"a bug met {len(given)} arguments")

    limits = Limits(claim_backoff_min_ms=1_000, claim_backoff_max_ms=60_000)
    async with a_controller(server, 1, limits=limits, open_outboxes=fail, wall_ms=Wall(server, HOUR_MS)):
        await until(lambda: server.read("/controller_epoch") == b"1")
        claims = []
        for _ in range(8):
            await settled()
            claims.append(int(server.read("/controller_epoch") or b"0"))
            server.clock.advance(1)
    assert claims == [1, 2, 2, 3, 3, 3, 3, 4]  # pauses of 1, 2 and 4 seconds


def epoch(node: Node) -> int:
    return belief(node).brokers[1].epoch


async def refuse(node: Node, answer: Callable[[], StopReplicaAnswered]) -> None:
    def deletions() -> Iterable[Deletion]:
        return belief(node).duties.deletions.values()

    failures = sum(one.failures for one in deletions())
    node.heard.on_answer(answer())
    await until(lambda: sum(one.failures for one in deletions()) == failures + 1)
    await asyncio.sleep(0)
