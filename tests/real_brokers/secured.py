"""Clusters whose listeners ask for identities: properties of brokers, clients and our controller, with new keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.security.authority import Authority

PASSWORD, MODULES = "a-password-of-brokers", "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """A cluster's listeners: their protocol, and the properties of brokers, of clients and of ours."""

    protocol: str
    broker: Mapping[str, str]
    client: Mapping[str, str]
    ours: Mapping[str, str]
    #: nodes that ZooKeeper needs before the first broker: arguments of Kafka's ConfigCommand
    users: Sequence[Sequence[str]] = ()


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


KINDS: Mapping[str, Callable[[Path], Secured]] = {"ssl": by_ssl, "plain": by_plain, "scram": by_scram}
