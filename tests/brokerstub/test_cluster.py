"""Three stub brokers over real HTTP: followers fetch, leaders ask, and ask again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from controller.core.codes import Code
from controller.wire.bodies import AlterPartitionRequest, decode
from controller.wire.client import HttpClient
from tests.brokerstub.cluster import LAG_MS, Cluster, Controller, serving
from tests.brokerstub.support import eventually, row


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Registered and told of each other; partition 0 of `orders` is led by 1, and 2 and 3 have caught up."""
    http = HttpClient()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(http.close)
        cluster = Cluster(http, tmp_path)
        cluster.controller.port = await stack.enter_async_context(serving(cluster.controller.app()))
        for node in cluster.nodes.values():
            node.port = await stack.enter_async_context(serving(node.app()))
            node.broker.begin(100 * node.broker.broker_id)
            stack.callback(node.broker.close)
        runs = [asyncio.ensure_future(node.broker.run()) for node in cluster.nodes.values()]
        await cluster.tell_brokers()
        await cluster.tell_rows(row(), full=True)
        await eventually(lambda: cluster.are_caught_up(2, 3))
        yield cluster
        for run in runs:
            run.cancel()
        await asyncio.wait(runs)


async def silence(cluster: Cluster, follower: int) -> None:
    """It is heard no more, and its lag time passes; the other one is heard in time."""
    leader = cluster.nodes[1]
    leader.unheard_ids.add(follower)
    await eventually(lambda: not leader.fetching)
    cluster.now_ms += LAG_MS
    other = leader.broker.sessions.of(5 - follower)
    assert other is not None
    await eventually(lambda: other.fetched_ms == cluster.now_ms)
    cluster.now_ms += 1


def asked(body: bytes) -> list[tuple[int, int]]:
    request = decode(body, AlterPartitionRequest)
    return [(member.broker_id, member.broker_epoch) for member in request.topics[0].partitions[0].isr]


async def test_a_follower_that_stops_fetching_leaves_the_isr_and_is_taken_back_when_it_returns(
    cluster: Cluster,
) -> None:
    await silence(cluster, 2)
    await eventually(lambda: cluster.isr() == (1, 3))
    cluster.nodes[1].unheard_ids.clear()
    await eventually(lambda: cluster.isr() == (1, 3, 2))
    assert [asked(body) for body in cluster.controller.bodies] == [
        [(1, 100), (3, 300)],
        [(1, 100), (3, 300), (2, 200)],
    ]
    assert set(cluster.controller.senders) == {"1 100"}


async def test_a_new_incarnation_is_taken_back_once_the_metadata_knows_it(cluster: Cluster) -> None:
    await cluster.tell_rows(row(epoch=1, isr=(1, 3), version=1))
    await eventually(lambda: cluster.isr() == (1, 3, 2))
    cluster.nodes[2].broker.begin(201)
    await cluster.tell_rows(row(epoch=2, isr=(1, 3), version=3))
    await eventually(lambda: cluster.are_caught_up(2, 3))
    assert cluster.isr() == (1, 3)
    await cluster.tell_brokers()
    await eventually(lambda: cluster.isr() == (1, 3, 2))
    assert asked(cluster.controller.bodies[-1]) == [(1, 100), (3, 300), (2, 201)]


@pytest.mark.parametrize("refusal", [503, 504, Code.NOT_CONTROLLER, Code.STALE_BROKER_EPOCH])
async def test_a_question_is_sent_again_unchanged_until_it_is_answered(cluster: Cluster, refusal: int) -> None:
    cluster.controller.refuse_with = refusal
    await silence(cluster, 2)
    await eventually(lambda: len(cluster.controller.bodies) >= 1)
    cluster.nodes[1].unheard_ids.clear()  # the broker that left is back before an answer came
    await eventually(lambda: cluster.are_caught_up(2) and len(cluster.controller.bodies) >= 3)
    assert cluster.isr() == (1, 2, 3)
    cluster.controller.refuse_with = None
    await eventually(lambda: cluster.isr() == (1, 3, 2))
    first, second = dict.fromkeys(cluster.controller.bodies)
    assert (asked(first), asked(second)) == ([(1, 100), (3, 300)], [(1, 100), (3, 300), (2, 200)])


async def test_a_question_goes_to_the_controller_that_the_newest_metadata_names(cluster: Cluster) -> None:
    """The old one accepted the request and never answers."""
    old, new = cluster.controller, Controller(cluster.controller.http)
    is_asked = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        old.bodies.append(await request.read())
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    frozen = web.Application()
    frozen.router.add_post("/{path:.*}", hang)
    async with serving(frozen) as frozen_port, serving(new.app()) as new_port:
        old.port = frozen_port
        await cluster.tell_brokers()
        await silence(cluster, 2)
        await is_asked.wait()
        cluster.controller, new.port, new.epoch = new, new_port, 2
        await cluster.tell_brokers()
        await eventually(lambda: cluster.isr() == (1, 3))
    assert old.bodies == new.bodies


async def test_an_idle_cluster_lists_nothing_again(cluster: Cluster) -> None:
    session = cluster.nodes[1].broker.sessions.of(2)
    assert session is not None
    first = session.sequence
    await eventually(lambda: session.sequence > first + 3)
    assert (cluster.controller.bodies, cluster.isr()) == ([], (1, 2, 3))


async def test_a_leader_that_bounced_is_told_all_by_its_followers_again(cluster: Cluster) -> None:
    leader = cluster.nodes[1].broker
    leader.begin(101)
    assert not cluster.are_caught_up(2)
    await cluster.tell_brokers()
    await cluster.tell_rows(row(epoch=1, version=1), full=True)
    await eventually(lambda: cluster.are_caught_up(2, 3))
    assert cluster.controller.bodies == []


async def test_a_fetch_that_fails_is_tried_again(cluster: Cluster) -> None:
    cluster.nodes[1].unheard_ids |= {2, 3}
    await cluster.tell_rows(row(epoch=1, version=1))
    assert not cluster.are_caught_up(2, 3)
    cluster.nodes[1].unheard_ids.clear()
    await eventually(lambda: cluster.are_caught_up(2, 3))


async def test_followers_turn_to_a_new_leader_at_once(cluster: Cluster) -> None:
    await cluster.tell_rows(row(leader=2, epoch=1, isr=(2, 3), version=1))
    sessions = cluster.nodes[2].broker.sessions
    key = ("id-orders", 0)
    await eventually(lambda: sessions.is_counting(key, 1) and sessions.is_counting(key, 3))
    assert cluster.nodes[1].broker.sessions.is_counting(key, 3) is False
    assert cluster.nodes[1].broker.replicas.held[key].leader_epochs == (0, 1)
