"""How brokers are reached: which of their listeners, by TLS or not, and who we say we are there.

It opens connections, ready for the first request, and sends nothing on them but what logs in.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, NamedTuple

import msgspec

from controller.core.model import Broker
from controller.kafka.protocol.nodes import PROTOCOLS, Listener, listeners_of
from controller.kafka.protocol.sasl import PLAIN, Sasl, log_in
from controller.wire.addresses import may_be_asked

SASL: Final = frozenset({PROTOCOLS["SASL_PLAINTEXT"], PROTOCOLS["SASL_SSL"]})
TLS: Final = frozenset({PROTOCOLS["SSL"], PROTOCOLS["SASL_SSL"]})
#: what has to be set before a listener of that protocol can be spoken to
WANTED: Final = {
    "PLAINTEXT": "",
    "SSL": "ssl.truststore.location",
    "SASL_PLAINTEXT": "sasl.jaas.config",
    "SASL_SSL": "ssl.truststore.location and sasl.jaas.config",
}


class Opened(NamedTuple):
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
            spoken.discard(PROTOCOLS["SASL_PLAINTEXT"])  # whoever registers such a broker would be told the password
        return frozenset(spoken)

    def listener_of(self, broker: Broker) -> Listener | None:
        """Where a broker is spoken to; None: it has no listener that can be."""
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

    async def open(self, address: Listener) -> Opened:
        """Raises an OSError, or what reading raises."""
        tls = self.tls if address.protocol in TLS else None
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        if not may_be_asked(peer := str(writer.get_extra_info("peername", ("",))[0])):
            writer.transport.abort()
            raise ConnectionRefusedError(f"{address.host} is {peer}: no broker can be there")
        if address.protocol not in SASL or self.sasl is None:
            return Opened(reader, writer, None)
        is_done = False
        try:
            opened = Opened(reader, writer, await log_in(reader, writer, self.sasl))
            is_done = True
            return opened
        finally:
            if not is_done:
                writer.transport.abort()


PLAIN_ACCESS: Final = Access()
