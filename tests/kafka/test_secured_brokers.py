"""Real brokers that speak TLS, or ask who speaks: ours speaks as they do, in both directions, and is asked likewise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from signal import Signals

import pytest

from tests.kafka.cluster import Controller, Secured, a_cluster, until
from tests.security.authority import Authority

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long]
PASSWORD, MODULES = "a-password-of-brokers", "org.apache.kafka.common.security"


def by_ssl(directory: Path) -> Secured:
    """Everybody shows a certificate; keys and certificates in PEM."""
    authority = Authority(directory, "authority")

    def shown_by(name: str) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.keystore(name),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority.trust,
        }

    asking = {"ssl.client.auth": "required"}
    return Secured(
        protocol="SSL",
        broker=shown_by("broker") | asking,
        client=shown_by("client") | {"security.protocol": "SSL"},
        ours=shown_by("controller") | asking,
    )


def by_plain(directory: Path) -> Secured:
    who = f'{MODULES}.plain.PlainLoginModule required username="kafka" password="{PASSWORD}"'
    mechanism = {"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.enabled.mechanisms": "PLAIN"}
    users = {"sasl.jaas.config": f'{who} user_kafka="{PASSWORD}";'}
    return Secured(
        protocol="SASL_PLAINTEXT",
        broker=mechanism | {"listener.name.sasl_plaintext.plain.sasl.jaas.config": users["sasl.jaas.config"]},
        client={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{who};"},
        ours=mechanism | users,
    )


def by_scram(directory: Path) -> Secured:
    """Inside of TLS; the broker wants a login anew every ten seconds."""
    authority, name = Authority(directory, "authority"), "SCRAM-SHA-512"
    who = {"sasl.jaas.config": f'{MODULES}.scram.ScramLoginModule required username="kafka" password="{PASSWORD}";'}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority.trust}
    mechanism = {"sasl.mechanism.inter.broker.protocol": name, "sasl.enabled.mechanisms": name}

    def serving(who_serves: str) -> dict[str, str]:
        return trust | {"ssl.keystore.type": "PEM", "ssl.keystore.location": authority.keystore(who_serves)}

    added = ("--alter", "--add-config", f"{name}=[password={PASSWORD}]", "--entity-type", "users")
    return Secured(
        protocol="SASL_SSL",
        broker={
            **serving("broker"),
            **mechanism,
            "connections.max.reauth.ms": "10000",
            f"listener.name.sasl_ssl.{name.lower()}.sasl.jaas.config": who["sasl.jaas.config"],
        },
        client=trust | who | {"security.protocol": "SASL_SSL", "sasl.mechanism": name},
        ours=serving("controller") | mechanism | who,
        users=[(*added, "--entity-name", "kafka")],
    )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("secured", [by_ssl, by_plain, by_scram])
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
