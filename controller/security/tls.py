"""TLS by files in PEM, under Kafka's property names: a server's certificate, and the authorities that each side trusts.

A listener whose name ends in `HTTPS` speaks TLS. This module makes contexts and opens no connection; a message names
files and never their content.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from controller.base.config import BrokerConfig, ConfigError

_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
#: for commands, which have no server.properties
TRUST: Final = "KLAMM_TLS_CA"
OWN: Final = "KLAMM_TLS_CERT"
#: the socket of Java's that Kafka's brokers have to name for TLS to ZooKeeper
NETTY: Final = "org.apache.zookeeper.ClientCnxnSocketNetty"


def server_context_for(config: BrokerConfig) -> ssl.SSLContext:
    """Of a listener that speaks TLS."""
    if config.ssl_keystore_location is None:
        raise ConfigError("property ssl.keystore.location: a listener with TLS needs a PEM file of key and certificate")
    if config.ssl_client_auth not in _CLIENT_AUTH:
        raise ConfigError(f"property ssl.client.auth: one of {', '.join(_CLIENT_AUTH)}, not {config.ssl_client_auth!r}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _check(_own_names(config))
    _show(context, config.ssl_keystore_location)
    context.verify_mode = _CLIENT_AUTH[config.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        if config.ssl_truststore_location is None:
            raise ConfigError("property ssl.truststore.location: whose certificates are clients to show?")
        _trust(context, config.ssl_truststore_location)
    return context


def client_context_for(config: BrokerConfig) -> ssl.SSLContext | None:
    """Returns the context for this process's own requests; None: the authorities that the system trusts."""
    _check(_own_names(config))
    context = _client_context(config.ssl_truststore_location, config.ssl_keystore_location)
    if context is not None:
        context.check_hostname = config.ssl_endpoint_identification_algorithm != ""
    return context


def zookeeper_context_for(config: BrokerConfig) -> ssl.SSLContext | None:
    """Returns the context of connections to ZooKeeper, by Kafka's names; None where they are not by TLS."""
    given = [
        config.zookeeper_ssl_keystore_location,
        config.zookeeper_ssl_keystore_type,
        config.zookeeper_ssl_truststore_location,
        config.zookeeper_ssl_truststore_type,
    ]
    if not config.zookeeper_ssl_client_enable:
        if any(one is not None for one in given):
            raise ConfigError(
                "property zookeeper.ssl.client.enable: true, as zookeeper.ssl.* is set otherwise for nothing"
            )
        return None
    if config.zookeeper_clientCnxnSocket not in (None, NETTY):
        raise ConfigError(f"property zookeeper.clientCnxnSocket: {NETTY} is the one that speaks TLS")
    identification = config.zookeeper_ssl_endpoint_identification_algorithm
    types = config.zookeeper_ssl_keystore_type, config.zookeeper_ssl_truststore_type
    _check(_Names("zookeeper.", *types, identification))
    found = _client_context(config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_keystore_location)
    context = ssl.create_default_context() if found is None else found
    context.check_hostname = identification != ""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def client_context_from(environment: Mapping[str, str]) -> ssl.SSLContext | None:
    """For a command."""
    return _client_context(environment.get(TRUST), environment.get(OWN))


def _client_context(trusted: str | None, own: str | None) -> ssl.SSLContext | None:
    if trusted is None and own is None:
        return None
    context = ssl.create_default_context() if trusted is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if trusted is not None:
        _trust(context, trusted)
    if own is not None:
        _show(context, own)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class _Names(NamedTuple):
    """The settings of a TLS connection that need not be what is spoken here; `prefix` of their properties."""

    prefix: str
    keystore_type: str | None
    truststore_type: str | None
    identification: str


def _own_names(config: BrokerConfig) -> _Names:
    return _Names(
        "", config.ssl_keystore_type, config.ssl_truststore_type, config.ssl_endpoint_identification_algorithm
    )


def _check(names: _Names) -> None:
    for name, kind, to_pem in (
        (
            "ssl.keystore.type",
            names.keystore_type,
            "keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12, then "
            "openssl pkcs12 -in FILE.p12 -nodes -out FILE.pem",
        ),
        ("ssl.truststore.type", names.truststore_type, "keytool -list -rfc -keystore FILE > FILE.pem"),
    ):
        if kind not in (None, "PEM"):
            raise ConfigError(f"property {names.prefix}{name}: only PEM is read here, not {kind}; {to_pem} makes one")
    if names.identification.lower() not in ("", "https"):
        raise ConfigError(
            f"property {names.prefix}ssl.endpoint.identification.algorithm: https, or empty for no check of names"
        )


def _trust(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{path} is no PEM file of certificates ({_reason_of(error)})") from None


def _show(context: ssl.SSLContext, path: str) -> None:
    """Load key and certificate. The key is a secret: only its owner may use the file."""
    try:
        if stat.S_IMODE(Path(path).stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"others than its owner may use {path}, which holds a key: `chmod 600 {path}`")
        context.load_cert_chain(path, password="")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{path} is no PEM file of a key and its certificate ({_reason_of(error)})") from None


def _reason_of(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or type(error).__name__
