"""Labs with one interface: a fake ZooKeeper, and the real one behind a proxy for each client. `simulated.py` is the
third.

The suite uses only this interface. Each lab implements the method in its own way, and the effect on the client is that
of the method's name.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.security import ACL, Id

from brokerstub.lab.zk_proxy import ZooKeeperProxy
from controller.zookeeper import client as zk
from controller.zookeeper.port import SessionState, ZooKeeper
from tests.fakes.acls import ADMIN, Grant, grant_to
from tests.fakes.zookeeper import FakeClient, FakeZooKeeper
from tests.waiting import until

#: the user that sets ACLs on the real server, and may do that afterwards
_ADMIN = "digest:admin:of the lab"

_numbers = itertools.count(1)


class InOrder(random.Random):
    """Servers are tried in the order given."""

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        return list(population)[:k]


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    await until(is_so, "what the test waits for", poll_s=0.005)


async def stays(is_so: Callable[[], object], for_s: float) -> None:
    """See that something does not happen: the condition holds all the time."""
    loop = asyncio.get_running_loop()
    end_at = loop.time() + for_s
    while loop.time() < end_at:
        assert is_so()
        await asyncio.sleep(0.005)


class Lab(Protocol):
    chroot: str

    async def connect(self, **options: Any) -> ZooKeeper:
        """A client of its own session, below the test's chroot if no other is given."""

    async def set_acl(self, path: str, *grants: Grant) -> None:
        """Set the ACL as a permitted client, whatever the ACL says. The path is without the chroot."""

    def cut(self, client: ZooKeeper) -> None:
        """The connection breaks, new ones are refused."""

    def heal(self, client: ZooKeeper) -> None: ...

    def lose_answer(self, client: ZooKeeper) -> None:
        """Of the next request; the connection breaks."""

    def lose_request(self, client: ZooKeeper) -> None: ...

    def hold(self, client: ZooKeeper) -> None:
        """No request of this client is answered."""

    def release(self, client: ZooKeeper) -> None: ...


class FakeLab:
    def __init__(self) -> None:
        self.chroot = f"/contract-{next(_numbers)}"
        self.server = FakeZooKeeper()
        self.server.seed({self.chroot: b""})
        self.server.on_request = self._on_request
        self._gates: dict[FakeClient, asyncio.Event] = {}

    async def connect(self, **options: Any) -> FakeClient:
        return await self.server.connect(**{"chroot": self.chroot, **options})

    async def set_acl(self, path: str, *grants: Grant) -> None:
        self.server.set_acl(self.chroot + path, *grants)

    def cut(self, client: ZooKeeper) -> None:
        self.server.disconnect(_fake(client))

    def heal(self, client: ZooKeeper) -> None:
        self.server.reconnect(_fake(client))

    def lose_answer(self, client: ZooKeeper) -> None:
        _fake(client).lose_next_answer()

    def lose_request(self, client: ZooKeeper) -> None:
        _fake(client).lose_next_request()

    def hold(self, client: ZooKeeper) -> None:
        self._gates[_fake(client)] = asyncio.Event()

    def release(self, client: ZooKeeper) -> None:
        self._gates.pop(_fake(client)).set()

    async def _on_request(self, client: FakeClient, _name: str) -> None:
        if client in self._gates:
            await self._gates[client].wait()


def _fake(client: ZooKeeper) -> FakeClient:
    assert isinstance(client, FakeClient)
    return client


class RealLab:
    def __init__(self, server: tuple[str, int]) -> None:
        self.chroot = f"/contract-{next(_numbers)}"
        self.server = server
        self._proxies: list[ZooKeeperProxy] = []
        self._clients: list[tuple[ZooKeeper, ZooKeeperProxy]] = []

    async def proxy(self) -> ZooKeeperProxy:
        proxy = ZooKeeperProxy(self.server)
        await proxy.start()
        self._proxies.append(proxy)
        return proxy

    async def connect(self, **options: Any) -> ZooKeeper:
        proxy = await self.proxy()
        given = {"chroot": self.chroot, "session_timeout_ms": 4000, "connect_timeout_ms": 60_000, **options}
        client = await zk.connect([("127.0.0.1", proxy.port)], **given)
        self._clients.append((client, proxy))
        return client

    def proxy_of(self, client: ZooKeeper) -> ZooKeeperProxy:
        return next(proxy for each, proxy in self._clients if each is client)

    async def set_acl(self, path: str, *grants: Grant) -> None:
        acl = [ACL(grant.perms, Id(grant.scheme, grant.id)) for grant in (*grants, grant_to(_ADMIN, ADMIN))]

        def act() -> None:
            admin = KazooClient(f"127.0.0.1:{self.server[1]}", auth_data=[tuple(_ADMIN.split(":", 1))])
            admin.start()
            admin.set_acls(self.chroot + path, acl)
            admin.stop()
            admin.close()

        await asyncio.to_thread(act)

    def cut(self, client: ZooKeeper) -> None:
        self.proxy_of(client).cut()

    def heal(self, client: ZooKeeper) -> None:
        self.proxy_of(client).heal()

    def lose_answer(self, client: ZooKeeper) -> None:
        self.proxy_of(client).lose_answer()

    def lose_request(self, client: ZooKeeper) -> None:
        self.proxy_of(client).drop_request()

    def hold(self, client: ZooKeeper) -> None:
        self.proxy_of(client).hold("down")

    def release(self, client: ZooKeeper) -> None:
        self.proxy_of(client).release("down")

    async def close(self) -> None:
        for client, proxy in self._clients:
            proxy.heal()
            proxy.thaw()
            await client.close()
        for proxy in self._proxies:
            await proxy.close()


@asynccontextmanager
async def real_lab(server: tuple[str, int]) -> AsyncIterator[RealLab]:
    lab = RealLab(server)
    admin = await zk.connect([server], session_timeout_ms=4000, connect_timeout_ms=60_000)
    await admin.create(lab.chroot, b"")
    await admin.close()
    try:
        yield lab
    finally:
        await lab.close()


async def back(client: ZooKeeper) -> None:
    """Wait until the client is connected (again)."""
    await eventually(lambda: client.state is SessionState.CONNECTED)
