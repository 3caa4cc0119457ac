"""Connections to Kafka's brokers: their nodes and listeners, TLS, and this process's identity, by SASL.

A node is a broker, or the controller, as real brokers are told of it: an id, and listeners by name. A connection is
opened ready for the first request, and only the two requests of the login are sent on it: PLAIN or SCRAM (RFC 5802, by
the library scramp). A password is in no message and in no representation.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from scramp import ScramClient, ScramException

from controller.core.model import Broker
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.wire.addresses import may_be_asked, split_address

PLAINTEXT: Final = 0
#: Kafka's numbers of the security protocols
PROTOCOLS: Final = {"PLAINTEXT": PLAINTEXT, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Listener(msgspec.Struct, frozen=True):
    """The address of a listener, as brokers are told of it."""

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
    """Returns a broker as registered, `listener` first."""
    found = listeners_of(broker)
    return KnownNode(broker.broker_id, tuple(sorted(found, key=lambda one: one.name != listener)), broker.rack)


def listeners_of(broker: Broker) -> list[Listener]:
    """Returns a broker's listeners as registered, without those of an unknown protocol or with a malformed address."""
    listeners = []
    for endpoint in broker.endpoints:
        name, separator, address = endpoint.partition("://")
        place = split_address(address) if separator else None
        protocol = PROTOCOLS.get(broker.listener_security_protocol_map.get(name, name))
        if place is not None and protocol is not None:
            listeners.append(Listener(name, *place, protocol))
    return listeners


HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ANSWER_MAX_BYTES: Final = 64 * 1024
#: Kafka keeps 4,096 to 16,384, and the library refuses fewer: our password could be guessed from the proof
ITERATIONS_MAX: Final = 65_536
_VERSION: Final = 1  # of both: the last of each that is not compact
_LENGTH = struct.Struct(">i")


class NotAuthenticatedError(ConnectionError):
    """A broker does not accept our identity, or does not prove its own."""


@dataclass(frozen=True)
class Admission:
    """The clients that a listener lets in: `users` by PLAIN; those of SCRAM are in ZooKeeper, where Kafka keeps
    them."""

    enabled: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Sasl:
    """This process's identity towards brokers, and the clients that it lets in."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    admission: Admission = Admission()


async def log_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sasl: Sasl) -> float | None:
    """For how many seconds the broker will believe it; None: for as long as the connection lasts."""
    exchange = _Exchange(reader, writer)
    await exchange.agree_on(sasl.mechanism)
    if sasl.mechanism == PLAIN:
        await exchange.send(f"\0{sasl.username}\0{sasl.password}".encode())
    else:
        try:
            client = ScramClient([sasl.mechanism], sasl.username, sasl.password)
            client.set_server_first(await exchange.send(client.get_client_first().encode()))
            if int(client.iterations) > ITERATIONS_MAX:
                raise NotAuthenticatedError(f"{sasl.mechanism}: the broker asks for {client.iterations} iterations")
            final = await asyncio.to_thread(client.get_client_final)  # the hashing
            client.set_server_final(await exchange.send(final.encode()))
        except ScramException as error:
            raise NotAuthenticatedError(f"{sasl.mechanism}: {error}") from None
    return exchange.lifetime_ms / 1000 if exchange.lifetime_ms else None


class _Exchange:
    """Requests and answers on one connection, before anything else travels on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent = 0
        self.lifetime_ms = 0

    async def agree_on(self, mechanism: str) -> None:
        answer = await self._ask(HANDSHAKE, Writer(flexible=False).string(mechanism).message())
        code, known = answer.i16(), answer.array(answer.string)
        if code != 0:
            raise NotAuthenticatedError(f"the broker does not take {mechanism}, but {', '.join(known) or 'nothing'}")

    async def send(self, token: bytes) -> str:
        answer = await self._ask(AUTHENTICATE, Writer(flexible=False).data(token).message())
        code, text, given = answer.i16(), answer.nullable_string(), answer.data()
        if code != 0:
            raise NotAuthenticatedError(f"the broker does not let us in: {text or f'error {code}'}")
        self.lifetime_ms = answer.i64()
        try:
            return given.decode()
        except UnicodeDecodeError:
            raise WireError("no text in an answer of SASL") from None

    async def _ask(self, key: int, body: bytes) -> Reader:
        self._sent += 1
        head = Writer(flexible=False).i16(key).i16(_VERSION).i32(self._sent).string("klamm").message()
        self._writer.write(_LENGTH.pack(len(head) + len(body)) + head + body)
        await self._writer.drain()
        size = _LENGTH.unpack(await self._reader.readexactly(4))[0]
        if not 4 <= size <= ANSWER_MAX_BYTES:
            raise WireError(f"an answer of {size} bytes")
        answer = Reader(await self._reader.readexactly(size), flexible=False)
        if (found := answer.i32()) != self._sent:
            raise WireError(f"the answer to request {found}, not {self._sent}")
        return answer


SASL: Final = frozenset({PROTOCOLS["SASL_PLAINTEXT"], PROTOCOLS["SASL_SSL"]})
TLS: Final = frozenset({PROTOCOLS["SSL"], PROTOCOLS["SASL_SSL"]})
#: the property that a listener of that protocol needs
WANTED: Final = {
    "PLAINTEXT": "",
    "SSL": "ssl.truststore.location",
    "SASL_PLAINTEXT": "sasl.jaas.config",
    "SASL_SSL": "ssl.truststore.location and sasl.jaas.config",
}


class OpenConnection(NamedTuple):
    """`for_s`: a broker that wants a login from time to time closes the connection after this."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    for_s: float | None


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """`listener`: the name of the one to speak to, if not the first whose protocol is spoken."""

    listener: str | None = None
    tls: ssl.SSLContext | None = None
    sasl: Sasl | None = None

    @property
    def protocols(self) -> frozenset[int]:
        """Those that are spoken."""
        spoken = {
            number
            for number in PROTOCOLS.values()
            if (number not in TLS or self.tls is not None) and (number not in SASL or self.sasl is not None)
        }
        if self.tls is not None and self.sasl is not None and self.sasl.mechanism == PLAIN:
            # any process that registers such a broker would receive the password
            spoken.discard(PROTOCOLS["SASL_PLAINTEXT"])
        return frozenset(spoken)

    def listener_of(self, broker: Broker) -> Listener | None:
        """Returns where a broker is spoken to; None: it has no listener that can be."""
        spoken = self.protocols
        fit = [one for one in listeners_of(broker) if one.protocol in spoken]
        return next((one for one in fit if self.listener in (None, one.name)), None)

    def trouble_with(self, broker: Broker) -> str:
        """Why there is no `listener_of` it."""
        named = [one for one in listeners_of(broker) if self.listener in (None, one.name)]
        if not named:
            return f"no listener named {self.listener}" if self.listener else "no listener of Kafka's protocol"
        name = next(name for name, number in PROTOCOLS.items() if number == named[0].protocol)
        if named[0].protocol == PROTOCOLS["SASL_PLAINTEXT"] and self.sasl is not None:
            return (
                "a listener of SASL_PLAINTEXT, to which no password of PLAIN is told where TLS is set up: use SASL_SSL"
            )
        return f"a listener of {name}, which takes {WANTED[name]} (--config)"

    async def open(self, address: Listener) -> OpenConnection:
        """Opens a connection. Raises an OSError, or the errors of reading."""
        tls = self.tls if address.protocol in TLS else None
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        if not may_be_asked(peer := str(writer.get_extra_info("peername", ("",))[0])):
            writer.transport.abort()
            raise ConnectionRefusedError(f"{address.host} is {peer}: no broker can be there")
        if address.protocol not in SASL or self.sasl is None:
            return OpenConnection(reader, writer, None)
        is_done = False
        try:
            opened = OpenConnection(reader, writer, await log_in(reader, writer, self.sasl))
            is_done = True
            return opened
        finally:
            if not is_done:
                writer.transport.abort()


PLAIN_ACCESS: Final = Access()
