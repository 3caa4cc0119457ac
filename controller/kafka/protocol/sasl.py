"""Who we are to a broker whose listener asks: SASL as a client, by PLAIN or SCRAM (RFC 5802, by the library scramp).

It owns the two requests that log a connection in. A password is in no message and in no representation.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scramp import ScramClient, ScramException

from controller.kafka.protocol.codec import Reader, WireError, Writer

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
    """A broker does not take us for whom we say we are, or does not prove who it is."""


@dataclass(frozen=True)
class Admission:
    """Whom a listener lets in: `users` by PLAIN; those of SCRAM are in ZooKeeper, where Kafka keeps them."""

    enabled: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Sasl:
    """Who we are to brokers, and whom we let in."""

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
