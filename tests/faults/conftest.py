"""The ground of the tests of primitives: a cluster of real processes, whole before each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.faults.chaos.target_cluster import Field, Injury
from tests.integration.cluster import Broker, a_cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Field]:
    """One cluster for all, on a ZooKeeper of its own; each test leaves it whole."""
    folder = tmp_path_factory.mktemp("field")
    server = ZooKeeperServer(folder / "zookeeper", free_port(), fsync=False)
    await server.start()
    try:
        async with a_cluster([server], folder) as cluster:
            await cluster.start(1)
            await cluster.start()
            await cluster.serve("orders")
            await cluster.whole()
            cluster.known = {"lost_lines": True, "has_true_clocks": False}
            yield Field(cluster, [server])
    finally:
        await server.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def field(ground: Field) -> Field:
    """The same for each test: repaired after a test that failed."""
    field = ground
    await field.restore()
    for broker in field.cluster.running:
        if broker.log("journal.failed"):
            await broker.stop()
            (broker.folder / "broker.log").unlink()
            await broker.start()
    await field.cluster.whole()
    return field


def aimed_at(field: Field) -> tuple[Broker, Broker]:
    """The active controller, and another."""
    controller = field.cluster.controller
    return controller, next(one for one in field.cluster.running if one is not controller)


async def healed(field: Field, injury: Injury) -> None:
    await injury.heal()
    assert injury.has_hit(), f"{injury.kind} {injury.target} missed"
    await field.cluster.whole()


async def begun_anew(field: Field, broker: Broker) -> None:
    """Lines that were lost are not forgotten before the process is another."""
    await broker.stop()
    await broker.start()
    await field.cluster.whole()


def sessions_of(field: Field, broker: Broker) -> list[int]:
    return [one.session for one in field.cluster.order.registrations(broker.broker_id)]
