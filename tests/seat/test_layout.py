"""Parents that vanish while all brokers run are made again, and the nodes below them are served again."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from controller.core.events import CreateTopicAsked
from controller.core.operations import Delete
from controller.core.project.znodes import CLUSTER_ID
from controller.zookeeper.layout import TOP_LEVEL_PATHS, ensure_chroot, ensure_paths
from controller.zookeeper.port import SessionLostError
from tests.fakes.acls import ALL, READ, grant_to, grant_to_all
from tests.fakes.zookeeper import FakeZooKeeper
from tests.support.harness import (
    a_broker,
    a_controller,
    a_server,
    settled,
    state_of,
    topic_json,
    until,
)

OPERATOR = "digest:operator:secret"


def uproot(server: FakeZooKeeper, root: str, *spared: str) -> None:
    """Delete a node and all below it, in one foreign transaction."""
    below = [path for path in server.tree.nodes if path == root or path.startswith(f"{root.rstrip('/')}/")]
    paths = sorted((path for path in below if path not in ("/", *spared)), reverse=True)
    assert server.commit(0, [Delete(path, -1) for path in paths]).refused is None


@pytest.mark.parametrize("path", [*TOP_LEVEL_PATHS, CLUSTER_ID])
async def test_a_term_makes_again_each_parent_that_vanishes(path: str) -> None:
    server = await a_server()
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        await settled()
        for _ in range(2):
            uproot(server, path)
            await until(lambda: all(one in server.tree.nodes for one in (*TOP_LEVEL_PATHS, CLUSTER_ID)))
            await settled()
        assert server.read(CLUSTER_ID) is not None
        assert node.handle.controller_epoch == 1, "no reason to leave"


async def test_nodes_below_a_remade_parent_are_served_again() -> None:
    server = await a_server()
    sessions = [await a_broker(server, broker_id) for broker_id in (2, 3)]
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        for path in ("/brokers", "/admin", "/config"):
            uproot(server, path)
        await until(lambda: "/brokers/ids" in server.tree.nodes)
        for broker_id, zk in zip((2, 3), sessions, strict=True):
            await zk.create(f"/brokers/ids/{broker_id}", b'{"version":5,"endpoints":["HTTP://h:1"],"host":"h","port":1}',
                            ephemeral=True)  # fmt: skip
        await settled()
        await sessions[0].create("/brokers/topics/orders", topic_json([2, 3]))
        await until(lambda: state_of(server, "orders", 0))
        reply = await node.ask(CreateTopicAsked("more", partitions=1, replication_factor=2))
        assert reply.code.name == "NONE"
        await sessions[0].create("/admin/delete_topics/orders", b"")
        await until(lambda: any("orders" in str(told.stops) for _, told in node.heard.tellings))
        assert node.handle.controller_epoch == 1


async def test_one_that_may_not_be_made_is_said_and_stops_no_other() -> None:
    server = await a_server()
    async with a_controller(server, 1) as node:
        await until(lambda: node.handle.is_active)
        await settled()
        server.set_acl("/admin", grant_to(OPERATOR, ALL), grant_to_all(READ))
        with capture_logs() as lines:
            uproot(server, "/admin/delete_topics")
            uproot(server, "/config")
            await until(lambda: "/config/changes" in server.tree.nodes)
            before = len(node.zk.calls)
            for _ in range(600):
                server.clock.advance(0.1)
                await settled(20)
        assert len(node.zk.calls) - before < 1_000, "asked again more and more seldom"
        assert {line["path"] for line in lines if line["event"] == "path.unmade"} == {"/admin/delete_topics"}
        server.set_acl("/admin", grant_to_all(ALL))
        for _ in range(60):
            server.clock.advance(0.1)
            await settled(20)
        assert "/admin/delete_topics" in server.tree.nodes


async def test_a_chroot_is_made_again_by_the_claiming_process() -> None:
    server = FakeZooKeeper()
    await ensure_chroot(await server.connect(), "/a")
    tool = await server.connect(chroot="/a")
    await ensure_paths(tool)
    zk = await server.connect(chroot="/a")
    async with a_controller(server, 1, zk=zk) as node:
        await until(lambda: node.handle.is_active)
        uproot(server, "/a")
        await until(lambda: node.handle.is_active and node.handle.controller_epoch == 2)
        assert server.read("/a/controller_epoch") == b"2", "whatever became of the first node"
        await until(lambda: all(f"/a{path}" in server.tree.nodes for path in (*TOP_LEVEL_PATHS, CLUSTER_ID)))


async def test_where_the_chroot_is_below_nothing_the_session_is_given_up() -> None:
    """Below its chroot no session can make the chroot's parent; a new session does."""
    server = FakeZooKeeper()
    await ensure_chroot(await server.connect(), "/a/b")
    zk = await server.connect(chroot="/a/b")
    await ensure_paths(zk)
    uproot(server, "/a")
    with pytest.raises(SessionLostError):
        await ensure_paths(zk)
    root = await server.connect()
    await ensure_chroot(root, "/a/b")
    assert await ensure_paths(await server.connect(chroot="/a/b"))
