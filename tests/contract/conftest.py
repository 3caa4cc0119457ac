"""Fixtures of the contract suite: one real ZooKeeper for the whole run, a chroot of its own for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.contract.labs import FakeLab, Lab, RealLab, real_lab
from tests.contract.simulated import SimLab, sim_lab


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, int]]:
    """The address of a real server, which is never restarted."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), free_port(), fsync=False)
    await server.start()
    try:
        yield ("127.0.0.1", server.client_port)
    finally:
        await server.stop()


@pytest.fixture
async def real(zookeeper: tuple[str, int]) -> AsyncIterator[RealLab]:
    async with real_lab(zookeeper) as lab:
        yield lab


@pytest.fixture
def fake() -> FakeLab:
    return FakeLab()


@pytest.fixture
async def simulated() -> AsyncIterator[SimLab]:
    async with sim_lab() as lab:
        yield lab


@pytest.fixture(params=["fake", "simulated", pytest.param("real", marks=pytest.mark.java)])
def lab(request: pytest.FixtureRequest) -> Lab:
    """The same tests on all: the fakes are trusted because the real one passes them."""
    found: Lab = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def server(tmp_path: Path) -> ZooKeeperServer:
    """A real server of the test's own, not started."""
    return ZooKeeperServer(tmp_path / "zookeeper", free_port(), fsync=False)
