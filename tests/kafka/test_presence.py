"""A controller that is no broker registers its address, and a failure of that ends no process."""

from __future__ import annotations

import asyncio
import json

import pytest

from controller.base.config import ConfigError
from controller.core.operations import Delete
from controller.core.project.znodes import controller_path
from controller.kafka.cluster.presence import Presence
from controller.zookeeper.layout import ensure_paths
from tests.fakes.acls import ALL, READ, grant_to_all
from tests.fakes.zookeeper import FakeZooKeeper

PATH = controller_path(100)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.kafka.cluster.presence.POLL_S", 0)
    monkeypatch.setattr("controller.kafka.cluster.presence.REFUSED_S", 0)


def said(server: FakeZooKeeper, chroot: str = "") -> object:
    return json.loads(server.read(chroot + PATH) or b"null")


async def test_it_says_where_it_listens_under_an_epoch_of_its_own() -> None:
    server = FakeZooKeeper()
    presence = Presence(100, "HTTP://h:1", 4_000)
    await presence.announce(await server.connect())
    assert said(server) == {"endpoints": ["HTTP://h:1"]}
    assert presence.own().epoch == server.tree.nodes[PATH].czxid


async def test_a_broker_with_its_id_keeps_it() -> None:
    server = FakeZooKeeper()
    await Presence(100, "HTTP://h:1", 0).announce(await server.connect())
    with pytest.raises(ConfigError, match="give this one another --id"):
        await Presence(100, "HTTP://h:2", 0).announce(await server.connect())


async def test_a_chroot_that_is_gone_is_made_again() -> None:
    server = FakeZooKeeper()
    await (await server.connect()).create("/a", b"")
    zk = await server.connect(chroot="/a")
    await ensure_paths(zk)
    below = sorted((path for path in server.tree.nodes if path.startswith("/a")), reverse=True)
    assert server.commit(0, [Delete(path, -1) for path in below]).refused is None
    await Presence(100, "HTTP://h:1", 0).announce(zk)
    assert said(server, "/a") == {"endpoints": ["HTTP://h:1"]}


async def test_a_refused_registration_is_repeated_until_it_is_allowed() -> None:
    server = FakeZooKeeper()
    zk = await server.connect()
    await ensure_paths(zk)
    server.set_acl("/klamm", grant_to_all(READ))
    announcing = asyncio.create_task(Presence(100, "HTTP://h:1", 0).announce(zk))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not announcing.done()
    server.set_acl("/klamm", grant_to_all(ALL))
    await announcing
    assert said(server) == {"endpoints": ["HTTP://h:1"]}
