"""Real brokers with TLS, or with SASL: ours speaks as they do, in both directions, and proves its identity likewise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from signal import Signals

import pytest

from tests.real_brokers.cluster import Controller, a_cluster
from tests.real_brokers.secured import KINDS, PASSWORD, Secured
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("secured", KINDS.values(), ids=KINDS)
async def test_brokers_are_led_and_ask_back_in_the_protocol_of_their_listeners(
    secured: Callable[[Path], Secured], tmp_path: Path
) -> None:
    async with a_cluster(tmp_path, secured=secured(tmp_path)) as cluster:
        await refused_with_a_reason_unless_it_can_speak(cluster.directory, cluster.zookeeper)
        await cluster.controller.take_over()
        # the administrator's tool asks us for this
        await cluster.create("orders", "--partitions", "3", "--replication-factor", "3")
        await until(lambda: cluster.is_in_sync("orders", 1, 2, 3), "all replicas of orders are in sync")
        await cluster.brokers[2].kill()
        await until(lambda: 2 not in cluster.leaders("orders"), "others lead")
        assert len(await cluster.produce("orders", 100)) == 100  # idempotent: with an id out of a block of ours
        await cluster.brokers[2].start()
        await until(lambda: cluster.is_in_sync("orders", 1, 2, 3), "leaders asked us, and it is back in each ISR")
        assert await cluster.consume("orders", 100) == 100
        await cluster.brokers[1].stop()  # the controller has let it go
        assert "Controlled shutdown request returned successfully" in cluster.brokers[1].log_text()
        for path in tmp_path.rglob("controller-100/*"):
            assert PASSWORD.encode() not in path.read_bytes(), path


async def refused_with_a_reason_unless_it_can_speak(directory: Path, zookeeper: str) -> None:
    """A controller of ours that speaks PLAINTEXT alone."""
    other = Controller(directory, zookeeper, 101, [])
    await other.start()
    try:
        status, body = await other.ask("POST", "/v1/takeover", {})
        assert status == 409
        assert "have a listener of S" in body["detail"]
        assert "which takes s" in body["detail"]
    finally:
        await other.end(Signals.SIGKILL)
