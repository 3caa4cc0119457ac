"""The ways between a lab's brokers: refused where no broker runs, cut or mute where asked, and only there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from brokerstub.lab.peers import Peers
from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster
from tests.integration.duties import a_duty_cluster, with_topics
from tests.waiting import until

SILENT_S = 0.1  # how long nothing must come in where nothing may
ANSWER_S = 10


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1_000):
        writer.write(chunk)
    writer.close()


@asynccontextmanager
async def three_peers() -> AsyncIterator[Peers]:
    """Ways between three, of which 1 and 2 run."""
    ports = {broker_id: free_port() for broker_id in (1, 2, 3)}
    peers = Peers(ports)
    peers.open()
    async with AsyncExitStack() as running:
        running.push_async_callback(peers.close)
        for broker_id in (1, 2):
            await running.enter_async_context(await asyncio.start_server(_echo, "127.0.0.1", ports[broker_id]))
            await peers.admit(broker_id)
        yield peers


async def said(peers: Peers, source: int, target: int, timeout_s: float = ANSWER_S) -> bytes | None:
    """Returns the answer to a word, empty after a reset; None for silence."""
    host, port = peers.ways[source, target].address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(timeout_s):
            writer.write(b"hello")
            return await reader.read(1_000)
    except TimeoutError:
        return None
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def test_a_way_to_a_stopped_broker_refuses_and_keeps_its_port() -> None:
    async with three_peers() as peers:
        assert await said(peers, 1, 2) == b"hello"
        with pytest.raises(ConnectionRefusedError):
            await said(peers, 1, 3)
        await peers.refuse(2)
        with pytest.raises(ConnectionRefusedError):
            await said(peers, 1, 2)
        await peers.admit(2)
        assert await said(peers, 1, 2) == b"hello"


async def test_a_cut_resets_both_ways_of_a_pair_and_only_these() -> None:
    async with three_peers() as peers:
        assert peers.cut(2, 1)
        assert not peers.cut(1, 2)
        assert (await said(peers, 1, 2), await said(peers, 2, 1), await said(peers, 3, 1)) == (b"", b"", b"hello")
        assert (peers.cut_from(1), peers.cut_from(2), peers.cut_from(3)) == ([2], [1], [])
        assert peers.heal(1, 2)
        assert not peers.heal(1, 2)
        assert await said(peers, 1, 2) == b"hello"


async def test_a_mute_one_is_not_heard_as_asker_nor_as_asked() -> None:
    async with three_peers() as peers:
        assert peers.mute(1, 2)
        assert (peers.mute_to(1), peers.mute_to(2)) == ([2], [])
        assert await said(peers, 1, 2, SILENT_S) is None
        assert peers.ways[1, 2].passed_bytes == {"up": 0, "down": 0}
        assert await said(peers, 2, 1, SILENT_S) is None
        assert peers.ways[2, 1].passed_bytes["up"] > 0
        assert await said(peers, 3, 1) == b"hello"
        assert peers.heal_all_of(2)
        assert await said(peers, 1, 2) == b"hello"


async def test_each_broker_is_told_its_own_ways_to_the_others() -> None:
    async with three_peers() as peers:
        ways = [way for broker_id in (1, 2, 3) for way in peers.routes_of(broker_id).values()]
        assert len(set(ways)) == len(ways) == 6
        assert set(peers.routes_of(1)) == {
            peers.ways[1, each].target[0] + f":{peers.ways[1, each].target[1]}" for each in (2, 3)
        }


async def _isr(cluster: Cluster) -> tuple[int, ...]:
    return (await cluster.states())["orders", 0].isr


@pytest.mark.java
async def test_a_follower_cut_from_its_leader_leaves_the_isr_and_comes_back(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    async with a_duty_cluster(zookeeper, tmp_path, {"replica.lag.time.max.ms": "1500"}) as cluster:
        await cluster.start(3)  # the controller, so that the leader can ask it without its follower
        await cluster.start(1, 2)
        await with_topics(cluster, orders=[[1, 2, 3]])
        cluster.brokers[2].cut(1)

        async def without_2() -> bool:
            return await _isr(cluster) == (1, 3)

        await until(without_2, "2 is out of the ISR")
        cluster.brokers[2].heal()
        await cluster.whole()
        assert sorted(await _isr(cluster)) == [1, 2, 3]


@pytest.mark.java
async def test_a_broker_cut_from_the_controller_is_told_the_changes_that_it_missed(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        await cluster.start()
        controller = cluster.controller
        deaf, other = [broker for broker in cluster.brokers.values() if broker is not controller]
        controller.cut(deaf.broker_id, one_way=True)
        assert await other.create_topic("orders") in (200, 201)

        async def is_told() -> bool:
            return ("orders", 0) in await other.told()

        await until(is_told, "the other one is told")
        assert ("orders", 0) not in await deaf.told()
        deaf.heal(controller.broker_id)
        await cluster.whole()
        assert ("orders", 0) in await deaf.told()
