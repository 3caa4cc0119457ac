"""The settings of `klamm controller` and `klamm run`: addresses, properties with Kafka's names, this process's identity
towards brokers, and the clients that listeners let in.

It reads and checks; nothing listens or connects yet. A protocol that is not spoken is refused here, with a remedy.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from controller.base.config import (
    BrokerConfig,
    ConfigError,
    broker_config_for,
    given_properties,
    parse_properties,
    read_properties,
)
from controller.kafka.cluster.acl_keeper import AuthorizerSettings
from controller.kafka.protocol.access import PLAIN, PLAINTEXT, PROTOCOLS, SASL, SCRAM, TLS, Access, Admission, Sasl
from controller.kafka.protocol.levels import Level, level_for
from controller.security.exposure import check_exposure, is_loopback
from controller.security.secrets import Secrets, owned_text
from controller.security.tls import client_context_for, server_context_for, zookeeper_context_for

#: `--listen`: Kafka's own names of protocols; `kafka` is PLAINTEXT
SCHEMES: Final = {"kafka": PLAINTEXT, **{name.lower(): number for name, number in PROTOCOLS.items()}}
_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
_ENABLED: Final = "sasl.enabled.mechanisms"
_JAAS: Final = "sasl.jaas.config"
_AUTHORIZER: Final = "authorizer.class.name"
_SUPER_USERS: Final = "super.users"
_IS_OPEN: Final = "allow.everyone.if.no.acl.found"
_AUTO_CREATES: Final = "auto.create.topics.enable"
#: Kafka's authorizers whose rules are in ZooKeeper, of 2.4 and later and of earlier versions
_AUTHORIZERS: Final = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
_KEY_PASSWORD: Final = "ssl.key.password"
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": (PLAIN,),
    "org.apache.kafka.common.security.scram.ScramLoginModule": SCRAM,
}
_PORT = re.compile(r"[0-9]{1,5}")
_OPTION = re.compile(r'\s*([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int


class DedicatedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`kafka`: by security protocol. `broker` has the properties that brokers have too."""

    controller_id: int
    kafka: Mapping[int, Address]
    http: Address
    is_https: bool
    level: Level
    access: Access
    #: None: once one of ours was seen to have the seat
    is_preferred: bool | None
    is_insecure: bool
    #: though one has left its marks in ZooKeeper
    is_without_authorizer: bool
    #: None: every client that this listener lets in may do everything
    authorizer: AuthorizerSettings | None = None
    directory: Path
    broker: BrokerConfig
    secrets: Secrets

    @property
    def zookeeper_tls(self) -> ssl.SSLContext | None:
        """Of the connections to ZooKeeper, if they are by TLS."""
        return zookeeper_context_for(self.broker)

    @property
    def server_tls(self) -> ssl.SSLContext | None:
        """Of those listeners that speak TLS."""
        return server_context_for(self.broker) if self.is_https or self.kafka.keys() & TLS else None


def config_for(
    *,
    zookeeper: str,
    controller_id: int,
    listen: str,
    protocol: str,
    listener: str | None,
    is_preferred: bool | None,
    is_insecure: bool,
    is_without_authorizer: bool = False,
    directory: Path,
    file: Path | None,
    overrides: tuple[str, ...],
    secrets: Secrets,
) -> DedicatedConfig:
    """Raises ConfigError."""
    kafka, http, is_https = addresses_in(listen)
    given = _properties_of(file, overrides)
    sasl = sasl_for({name: given.pop(name) for name in (_MECHANISM, _ENABLED, _JAAS) if name in given})
    if kafka.keys() & SASL and sasl is None:
        raise ConfigError(f"--listen {listen}: a SASL listener takes {_JAAS}, in the file of --config")
    authorizer = authorizer_for({name: given.pop(name) for name in _OF_AUTHORIZER if name in given})
    if authorizer is not None and is_without_authorizer:
        raise ConfigError(f"--no-authorizer says that brokers have none, and {_AUTHORIZER} names one")
    name = "HTTPS" if is_https else "HTTP"
    named = {"inter.broker.listener.name": name}
    own = {"broker.id": str(controller_id), "zookeeper.connect": zookeeper, "log.dirs": str(directory)}
    broker = broker_config_for({**own, "listeners": f"{name}://{http.host}:{http.port}", **named, **given})
    try:
        level = level_for(protocol)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    config = DedicatedConfig(
        controller_id=controller_id,
        kafka=kafka,
        http=http,
        is_https=is_https,
        level=level,
        access=Access(listener=listener, tls=client_context_for(broker), sasl=sasl),
        is_preferred=is_preferred,
        is_insecure=is_insecure,
        is_without_authorizer=is_without_authorizer,
        authorizer=authorizer,
        directory=directory,
        broker=broker,
        secrets=secrets,
    )
    _check_exposure(config)
    zookeeper_context_for(broker)  # what makes no sense is told before anything starts
    return config


def addresses_in(listen: str) -> tuple[dict[int, Address], Address, bool]:
    """Of Kafka's protocol by security protocol; of HTTP, and whether by TLS."""
    kafka: dict[int, Address] = {}
    http: list[tuple[Address, bool]] = []
    for text in listen.split(","):
        scheme, found, rest = text.strip().partition("://")
        host, colon, port = rest.rstrip("/").rpartition(":")
        name = scheme.lower()
        if not (found and colon and host and _PORT.fullmatch(port)) or name not in {*SCHEMES, "http", "https"}:
            raise ConfigError(
                f"--listen {text}: write it like kafka://127.0.0.1:9100, ssl://…, sasl_plaintext://…, sasl_ssl://…, "
                "http://… or https://…"
            )
        address = Address(host.strip("[]"), int(port))
        if name in ("http", "https"):
            http.append((address, name == "https"))
        elif kafka.setdefault(SCHEMES[name], address) is not address:
            raise ConfigError(f"--listen {listen}: one address for each protocol, and {scheme} is named twice")
    if not kafka or len(http) != 1:
        raise ConfigError(f"--listen {listen}: name a kafka:// address (or ssl://, …) and one of http:// or https://")
    return kafka, *http[0]


def sasl_for(properties: Mapping[str, str]) -> Sasl | None:
    """None where nothing was said."""
    if not properties:
        return None
    mechanism = properties.get(_MECHANISM, "GSSAPI")
    _check_spoken(_MECHANISM, mechanism)
    enabled = _enabled_in(properties.get(_ENABLED, mechanism))
    module, options = _jaas_in(properties.get(_JAAS, ""))
    if mechanism not in _MODULES.get(module, ()):
        raise ConfigError(f"property {_JAAS}: the login module of {mechanism} is expected, not {module!r}")
    if not options.get("username") or "password" not in options:
        raise ConfigError(f"property {_JAAS}: username and password say who this controller is to brokers")
    return Sasl(mechanism, options["username"], options["password"], _admission_of(enabled, options))


_OF_AUTHORIZER: Final = (_AUTHORIZER, _SUPER_USERS, _IS_OPEN, _AUTO_CREATES)


def authorizer_for(properties: Mapping[str, str]) -> AuthorizerSettings | None:
    """None where none is named. Its settings have to be those of brokers."""
    name = properties.get(_AUTHORIZER, "")
    if not name:
        if properties:
            raise ConfigError(
                f"property {', '.join(properties)}: means something only with {_AUTHORIZER}, as of brokers"
            )
        return None
    if name not in _AUTHORIZERS:
        raise ConfigError(
            f"property {_AUTHORIZER}: {' or '.join(_AUTHORIZERS)}, whose rules are in ZooKeeper; not {name}"
        )
    users = [one.strip() for one in properties.get(_SUPER_USERS, "").split(";")]
    if wrong := [one for one in users if one and not one.partition(":")[2]]:
        raise ConfigError(f"property {_SUPER_USERS}: write it like User:ann;User:bob, not {';'.join(wrong)}")
    return AuthorizerSettings(
        frozenset(one for one in users if one),
        is_open=_boolean(_IS_OPEN, properties, default=False),
        auto_creates=_boolean(_AUTO_CREATES, properties, default=True),
    )


def _boolean(name: str, properties: Mapping[str, str], *, default: bool) -> bool:
    text = properties.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"property {name}: true or false, not {text!r}")
    return text == "true"


def broker_settings(file: Path, overrides: Sequence[str] = ()) -> tuple[BrokerConfig, Admission | None]:
    """Returns a stub broker's properties, and the clients that its SASL listeners let in (None without such settings).
    Raises ConfigError."""
    given = _properties_of(file, overrides)
    said: dict[str, str] = {name: given.pop(name) for name in (_ENABLED, _JAAS) if name in given}
    return broker_config_for(given), admission_for(said)


def admission_for(properties: Mapping[str, str]) -> Admission | None:
    """None where nothing was said."""
    if not properties:
        return None
    enabled = _enabled_in(properties.get(_ENABLED, "GSSAPI"))
    module, options = _jaas_in(properties.get(_JAAS, ""))
    if module and PLAIN not in _MODULES.get(module, ()):
        raise ConfigError(f"property {_JAAS}: the login module of {PLAIN} is expected, not {module!r}")
    return _admission_of(enabled, options)


def _enabled_in(text: str) -> tuple[str, ...]:
    enabled = tuple(one.strip() for one in text.split(","))
    for one in enabled:
        _check_spoken(_ENABLED, one)
    return enabled


def _check_spoken(name: str, mechanism: str) -> None:
    if mechanism not in (PLAIN, *SCRAM):
        spoken = ", ".join((PLAIN, *SCRAM))
        raise ConfigError(f"property {name}: {spoken} are spoken, not {mechanism} (no small library carries it)")


def _admission_of(enabled: tuple[str, ...], options: Mapping[str, str]) -> Admission:
    users = {name.removeprefix("user_"): value for name, value in options.items() if name.startswith("user_")}
    if PLAIN in enabled and not users:
        raise ConfigError(f'property {_JAAS}: whoever logs in here by {PLAIN}: user_NAME="password" for each that may')
    return Admission(enabled, users)


def _jaas_in(text: str) -> tuple[str, dict[str, str]]:
    """Returns a line of JAAS: the module, and its options."""
    module, _, rest = text.strip().rstrip(";").partition(" ")
    flag, _, rest = rest.strip().partition(" ")
    options, at = {}, 0
    while found := _OPTION.match(rest, at):
        quoted = found[2]
        options[found[1]] = found[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = found.end()
    if rest[at:].strip() or (module and flag not in ("required", "requisite", "sufficient", "optional")):
        raise ConfigError(f'property {_JAAS}: write it like MODULE required username="…" password="…";')
    return module, options


def _properties_of(file: Path | None, overrides: Sequence[str]) -> dict[str, str]:
    """With passwords only from a file that its owner alone may use."""
    over, own = given_properties(overrides), {} if file is None else read_properties(file)
    if _JAAS in over:
        raise ConfigError(f"{_JAAS} on a command line is seen by everybody here: put it into the file of --config")
    if file is not None and _JAAS in own:
        own = parse_properties(owned_text(file, "--config"))
    given = {**own, **over}
    if _KEY_PASSWORD in given:
        raise ConfigError(f"{_KEY_PASSWORD}: keys are read without one, from a file that only its owner may use")
    return given


def _check_exposure(config: DedicatedConfig) -> None:
    """Brokers and clients are told these very addresses."""
    check_exposure([config.http.host], config.secrets, is_insecure=config.is_insecure)
    for protocol, address in config.kafka.items():
        if address.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"--listen {address.host}:{address.port}: name the one address that brokers and clients reach it at"
            )
        knows_who = protocol in SASL or (protocol in TLS and config.broker.ssl_client_auth == "required")
        if not (is_loopback(address.host) or knows_who or config.is_insecure):
            raise ConfigError(
                f"--listen {address.host}:{address.port}: whoever reaches it may command the cluster; say sasl_ssl, "
                "or ssl with ssl.client.auth=required, or --insecure if only the right ones reach it"
            )
