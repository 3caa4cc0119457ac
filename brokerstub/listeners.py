"""Where a broker listens: addresses by name. A name that Kafka has for a security protocol is a listener for Kafka's
clients; every other one speaks HTTP."""

from __future__ import annotations

from typing import NamedTuple

from controller.base.config import BrokerConfig, ConfigError
from controller.kafka.protocol.access import PROTOCOLS, SASL, TLS, Admission
from controller.security.exposure import is_loopback


class Listener(NamedTuple):
    """`NAME://host:port`."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def speaks_kafka(self) -> bool:
        return self.name in PROTOCOLS

    @property
    def has_tls(self) -> bool:
        return PROTOCOLS.get(self.name) in TLS

    @property
    def has_sasl(self) -> bool:
        return PROTOCOLS.get(self.name) in SASL


def listeners_in(text: str) -> list[Listener]:
    """Returns the listeners of a property, separated by commas."""
    return [_listener_in(part.strip()) for part in text.split(",")]


def advertised(config: BrokerConfig) -> list[Listener]:
    """Returns the advertised listeners: others may have to use other addresses than this process listens on."""
    return listeners_in(config.advertised_listeners or config.listeners)


def keeps_records(config: BrokerConfig) -> bool:
    """A broker keeps records if clients can reach it to write and read them."""
    return any(one.speaks_kafka for one in listeners_in(config.listeners))


def check_listeners(config: BrokerConfig, admission: Admission | None = None, *, is_insecure: bool = False) -> None:
    """Raises ConfigError for a forbidden listener for Kafka's clients. Any client that reaches it may write and read
    records, so it is for this machine alone, unless clients show a certificate or log in."""
    for one in listeners_in(config.listeners):
        if one.has_sasl and admission is None:
            raise ConfigError(
                f"listener {one}: sasl.enabled.mechanisms says how clients log in, sasl.jaas.config who may by PLAIN"
            )
        knows_who = one.has_sasl or (one.has_tls and config.ssl_client_auth == "required")
        if one.speaks_kafka and not (is_loopback(one.host) or knows_who or is_insecure):
            raise ConfigError(
                f"refusing to listen on {one}: whoever reaches it may write and read records. Let it be SASL_SSL, or "
                "SSL with ssl.client.auth=required, or say --insecure"
            )


def _listener_in(endpoint: str) -> Listener:
    name, separator, address = endpoint.partition("://")
    host, colon, port = address.rpartition(":")
    if not (name and separator and host and colon and port.isdecimal()):
        raise ConfigError(f"{endpoint!r} is no listener: write it like HTTP://127.0.0.1:8081")
    return Listener(name, host.strip("[]"), int(port))
