"""Real brokers with TLS, or with SASL: ours speaks as they do, in both directions, and proves its identity likewise."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import Signals

import pytest

from brokerstub.lab.kafka import HOST
from controller.base.config import BrokerConfig
from controller.kafka.protocol.access import PROTOCOLS, Access, Listener, NotAuthenticatedError, Sasl
from controller.security.tls import client_context_for
from tests.real_brokers.cluster import Cluster, Controller, a_cluster
from tests.real_brokers.secured import KINDS, PASSWORD, Secured
from tests.waiting import until

NEWCOMER = ("--entity-type", "users", "--entity-name", "newcomer")
pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("secured", KINDS.values(), ids=KINDS)
async def test_brokers_are_led_and_ask_back_in_the_protocol_of_their_listeners(
    secured: Callable[[Path], Secured], tmp_path: Path
) -> None:
    settings = secured(tmp_path)
    async with a_cluster(tmp_path, secured=settings) as cluster:
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
        if settings.users:
            await a_user_of_scram_is_made_and_removed_through_the_controller(cluster, settings)
        await cluster.brokers[1].stop()  # the controller has let it go
        assert "Controlled shutdown request returned successfully" in cluster.brokers[1].log_text()
        for path in tmp_path.rglob("controller-100/*"):
            assert PASSWORD.encode() not in path.read_bytes(), path


async def a_user_of_scram_is_made_and_removed_through_the_controller(cluster: Cluster, settings: Secured) -> None:
    """By Kafka's own command. Brokers, and we, let the user in, and no longer when he is gone."""
    mechanism = settings.client["sasl.mechanism"]
    trust = BrokerConfig(
        zookeeper_connect="", log_dirs="d", ssl_truststore_location=settings.client["ssl.truststore.location"]
    )
    access = Access(tls=client_context_for(trust), sasl=Sasl(mechanism, "newcomer", PASSWORD))
    ports = [cluster.brokers[1].port, cluster.brokers[3].port, cluster.controller.ports[settings.protocol]]

    async def let_in() -> int:
        count = 0
        for port in ports:
            with suppress(NotAuthenticatedError):
                opened = await access.open(Listener(settings.protocol, HOST, port, PROTOCOLS[settings.protocol]))
                opened.writer.transport.abort()
                count += 1
        return count

    async def are_let_in(wanted: int) -> bool:
        return await let_in() == wanted

    assert await let_in() == 0
    await cluster.configure("--alter", "--add-config", f"{mechanism}=[password={PASSWORD}]", *NEWCOMER)
    await until(lambda: are_let_in(len(ports)), "the new user is let in by all")
    assert mechanism in await cluster.configure("--describe", *NEWCOMER)
    await cluster.configure("--alter", "--delete-config", mechanism, *NEWCOMER)
    await until(lambda: are_let_in(0), "nobody lets him in any more")
    assert '"event": "user.altered"' in cluster.controller.log_text()


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
