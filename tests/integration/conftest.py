"""Fixtures of the integration tests: one real ZooKeeper for all tests that do not harm it, a cluster for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster, a_cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ZooKeeperServer]:
    """A server that is never restarted."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), free_port(), fsync=False)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three brokers, none of them started, in a chroot of the test's own."""
    async with a_cluster([zookeeper], tmp_path) as cluster:
        yield cluster
