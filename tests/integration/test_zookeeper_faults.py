"""ZooKeeper itself is killed: the cluster is healthy again by itself, with at most one more controller epoch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import Ensemble, ZooKeeperServer
from tests.integration.cluster import Broker, Cluster, a_cluster
from tests.integration.order import Claim
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.slow]

REGISTRATION = "/brokers/ids/1"
#: so that a leader holds on without followers (six ticks) for longer than it takes a session to expire
ELECTION_TICK_MS = 1_000
EXPIRED_SESSION_MS = 4_000


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[ZooKeeperServer]:
    """A server of the test's own."""
    server = ZooKeeperServer(tmp_path / "zookeeper", free_port(), fsync=False)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper", fsync=False)
    await ensemble.start()
    try:
        yield ensemble
    finally:
        await ensemble.stop()


async def start_with_a_topic(cluster: Cluster) -> Claim:
    await cluster.start()
    assert await cluster.controller.create_topic("before", partitions=6) == 201
    await cluster.whole()
    return cluster.order.claims()[-1]


async def assert_healthy_again(cluster: Cluster) -> None:
    """It serves, agrees and is whole."""
    await cluster.serve("afterwards")
    await cluster.whole()
    assert {topic for topic, _ in await cluster.states()} == {"before", "afterwards"}


def sessions_of(cluster: Cluster) -> list[list[int]]:
    """Under which every broker was ever registered."""
    return [[one.session for one in cluster.order.registrations(broker_id)] for broker_id in cluster.brokers]


async def test_restarted_within_the_session_time_out_it_goes_on(victim: ZooKeeperServer, tmp_path: Path) -> None:
    async with a_cluster([victim], tmp_path) as cluster:
        await start_with_a_topic(cluster)
        sessions = sessions_of(cluster)
        victim.kill()
        await victim.wait()
        await victim.start()
        await assert_healthy_again(cluster)
        assert sessions_of(cluster) == sessions
        assert len(cluster.order.claims()) <= 2


async def test_restarted_later_sessions_that_survived_are_used_again_in_a_new_term(
    victim: ZooKeeperServer, tmp_path: Path
) -> None:
    async with a_cluster([victim], tmp_path) as cluster:
        old = await start_with_a_topic(cluster)
        sessions = sessions_of(cluster)
        controller = cluster.controller
        victim.kill()
        await victim.wait()

        async def is_over() -> bool:
            said = await controller.get("/v1/controller")
            return said is not None and said["phase"] != "active"

        await until(is_over, "the controller resigns by its own clock")
        await victim.start()
        await assert_healthy_again(cluster)
        assert sessions_of(cluster) == sessions
        assert [claim.controller_epoch for claim in cluster.order.claims()] == [
            old.controller_epoch,
            old.controller_epoch + 1,
        ]


async def test_restarted_later_sessions_that_are_gone_are_replaced(victim: ZooKeeperServer, tmp_path: Path) -> None:
    async with a_cluster([victim], tmp_path) as cluster:
        await start_with_a_topic(cluster)
        lost = sessions_of(cluster)
        for broker in cluster.running:
            broker.cut()
        victim.kill()
        await victim.wait()
        await victim.start()
        await until(lambda: all(cluster.order.end_of(session) for [session] in lost), "the sessions expire")
        for broker in cluster.running:
            broker.heal()
        await assert_healthy_again(cluster)
        assert [len(sessions) for sessions in sessions_of(cluster)] == [2, 2, 2]
        assert len(cluster.order.claims()) == 2


@pytest.mark.parametrize("role", ["follower", "leader"])
async def test_the_loss_of_one_server_of_three_is_survived(ensemble: Ensemble, tmp_path: Path, role: str) -> None:
    async with a_cluster(ensemble.servers, tmp_path) as cluster:
        await start_with_a_topic(cluster)
        sessions = sessions_of(cluster)
        index = [await server.mode() for server in ensemble.servers].index(role)
        await have_connected(cluster.controller, index)
        lost = ensemble.servers[index]
        lost.kill()
        await lost.wait()
        await assert_healthy_again(cluster)
        assert len(cluster.order.claims()) <= 2
        assert sessions_of(cluster) == sessions
        await ensemble.start()
        await cluster.whole()
        assert len(cluster.order.claims()) <= 2


async def have_connected(broker: Broker, index: int) -> None:
    """See to it that this is the server whose loss the broker will feel."""
    for other, proxy in enumerate(broker.proxies):
        if other != index:
            proxy.cut()
    await until(lambda: broker.proxies[index].connections == 1, "it is connected there")
    for proxy in broker.proxies:
        proxy.heal()


@pytest.mark.long
async def test_a_node_that_outlived_its_expired_session_over_a_change_of_leader_is_taken_over(tmp_path: Path) -> None:
    """ZOOKEEPER-2985: the leader has told a broker that its session is over, and is gone before its followers know. The
    next leader knows of no end: the session lives for another time-out, and so does the broker's node."""
    ensemble = Ensemble(tmp_path / "zookeeper", tick_time_ms=ELECTION_TICK_MS, fsync=False)
    await ensemble.start()
    try:
        shape: dict[str, Any] = {"brokers": 1, "session_timeout_ms": EXPIRED_SESSION_MS}
        async with a_cluster(ensemble.servers, tmp_path, **shape) as cluster:
            await cluster.start()
            broker, old_leader = cluster.brokers[1], await ensemble.leader()
            (old,) = cluster.order.registrations(1)
            await expire_by(broker, old.session, ensemble, old_leader)
            await forget_the_end(ensemble, old_leader)
            for proxy in broker.proxies:
                proxy.heal()
            await until(lambda: len(cluster.order.registrations(1)) == 2, "it registers anew")
            assert await ensemble.leader() is not old_leader
            await old_leader.launch()
            await cluster.whole()
            new, ended = cluster.order.registrations(1)[-1], cluster.order.end_of(old.session)
            deleted = [one for one in cluster.order.operations() if (one.kind, one.path) == ("delete", REGISTRATION)]
            assert [one.session for one in deleted] == [new.session], "it deleted the node that was there before"
            assert ended is None or new.zxid < ended.zxid, "it waited until the earlier session was over"
            assert broker.log("registration.delayed") == []
    finally:
        await ensemble.stop()


async def expire_by(broker: Broker, session: int, ensemble: Ensemble, leader: ZooKeeperServer) -> None:
    """Only the leader, which no server follows any more, comes to know that the session is over; and the broker."""
    for proxy in broker.proxies:
        proxy.cut()
    for server in ensemble.servers:
        if server is not leader:
            server.freeze()
    log = leader.data_dir / "zookeeper.log"
    await until(lambda: f"Expiring session {session:#x}" in log.read_text(), "the session expires")
    broker.proxies[ensemble.servers.index(leader)].heal()
    told = {"session": f"{session:#x}", "state": "lost"}
    await until(lambda: any(told.items() <= one.items() for one in broker.log("session.changed")), "the broker is told")


async def forget_the_end(ensemble: Ensemble, leader: ZooKeeperServer) -> None:
    """Messages on their way to paused servers are lost with them. They come back, and one of them leads."""
    for server in ensemble.servers:
        server.kill()
        await server.wait()
    followers = [server for server in ensemble.servers if server is not leader]
    for server in followers:
        await server.launch()
    for server in followers:
        await server.serving()
