"""Brokers and the controller as real brokers are told of them: ids, and listeners by name. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from controller.core.model import Broker
from controller.wire.addresses import split_address

PLAINTEXT: Final = 0
#: Kafka's numbers of the security protocols
PROTOCOLS: Final = {"PLAINTEXT": PLAINTEXT, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Listener(msgspec.Struct, frozen=True):
    """Where somebody listens, as brokers are told of it."""

    name: str
    host: str
    port: int
    protocol: int = PLAINTEXT


class KnownNode(msgspec.Struct, frozen=True):
    """A live broker or the controller itself, as brokers are told of it."""

    node_id: int
    listeners: tuple[Listener, ...]
    rack: str | None = None


def broker_node(broker: Broker, listener: str) -> KnownNode:
    """A broker as registered, `listener` first."""
    found = listeners_of(broker)
    return KnownNode(broker.broker_id, tuple(sorted(found, key=lambda one: one.name != listener)), broker.rack)


def listeners_of(broker: Broker) -> list[Listener]:
    """As registered; a listener whose protocol nobody knows, or at an address that is none, is left out."""
    listeners = []
    for endpoint in broker.endpoints:
        name, separator, address = endpoint.partition("://")
        place = split_address(address) if separator else None
        protocol = PROTOCOLS.get(broker.listener_security_protocol_map.get(name, name))
        if place is not None and protocol is not None:
            listeners.append(Listener(name, *place, protocol))
    return listeners
