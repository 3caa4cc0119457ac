"""All that a broker's listener for clients serves, in one table; the server that serves it; and the trouble it
inflicts.

For authors of clients, answers can be late, not come at all, or be lost after the work was done. A fault of the lab
(`faults.py`) says which, and until when. Nothing is decided by chance. ApiVersions is always answered: a client that
connects finds a Kafka broker, and then hears nothing from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from brokerstub.broker import Broker
from brokerstub.clients.cluster import ClusterApis
from brokerstub.clients.reading import OffsetApis, ReadingApis
from brokerstub.clients.writing import PRODUCE, ProducerIdApis, ProducerIdBlocks, WritingApis
from brokerstub.faults import ClientFaults
from brokerstub.listeners import listeners_in
from brokerstub.logs import Logs
from controller.api.ports import ControllerHandle
from controller.base.bell import Bell
from controller.base.config import LIMITS, BrokerConfig
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.kafka.server.admin_apis import HOSTED, AdminApis, TopicApis
from controller.kafka.server.listener import API_VERSIONS, Api, Handler, KafkaServer, Login
from controller.security.tls import server_context_for


class AnswerLostError(ConnectionError):
    """The work was done; the client does not learn of it."""


class ClientTrouble:
    """Of one broker."""

    def __init__(self) -> None:
        self._faults = ClientFaults()
        self._answers_left = 0
        self._changed = Bell()

    def suffer(self, faults: ClientFaults) -> None:
        """From now on."""
        if faults != self._faults:
            self._faults, self._answers_left = faults, faults.lost_answers
            self._changed.ring()

    def table(self, apis: Mapping[int, Api]) -> dict[int, Api]:
        """Returns the same APIs, each with its trouble."""
        return {key: self._troubled(key, api) for key, api in apis.items()}

    def _troubled(self, key: int, api: Api) -> Api:
        handler = api.handler
        return api if handler is None else Api(api.first, api.last, api.flexible_since, self._handler(key, handler))

    def _handler(self, key: int, handler: Handler) -> Handler:
        async def troubled(version: int, reader: Reader, writer: Writer) -> None:
            if self._faults.slow_ms:
                await asyncio.sleep(self._faults.slow_ms / 1_000)
            while self._faults.is_silent:
                await self._changed.wait()
            await handler(version, reader, writer)
            if key == PRODUCE and self._answers_left:
                self._answers_left -= 1
                raise AnswerLostError("the answer to Produce is lost")

        return troubled


def table(
    config: BrokerConfig,
    broker: Broker,
    logs: Logs,
    handle: ControllerHandle,
    blocks: ProducerIdBlocks,
    listener: str,
    *,
    is_guarded: bool = False,
) -> dict[int, Api]:
    """By API. `listener`: the name under which other brokers are shown. `is_guarded`: changes of the cluster need a
    token, which Kafka's protocol has no place for; they go by HTTP then."""
    changes = {
        **AdminApis(handle).table(),
        **TopicApis(handle, partitions=config.num_partitions, factor=config.default_replication_factor).table(),
    }
    return {
        **WritingApis(logs).table(),
        **ReadingApis(logs).table(),
        **OffsetApis(logs).table(),
        **ProducerIdApis(blocks).table(),
        **ClusterApis(config, broker.metadata, logs, handle, listener).table(),
        **({} if is_guarded else changes),
        **HOSTED,
        API_VERSIONS: Api(0, 3, 3),
    }


class ClientListeners:
    """`start` once, then `close`. `logins` makes the login of each connection to a SASL listener."""

    def __init__(
        self,
        config: BrokerConfig,
        broker: Broker,
        logs: Logs,
        handle: ControllerHandle,
        *,
        is_guarded: bool,
        logins: Callable[[], Login] | None = None,
    ) -> None:
        self._logins = logins
        self._is_guarded = is_guarded
        self._config = config
        self._broker = broker
        self._logs = logs
        self._handle = handle
        self._servers: list[KafkaServer] = []
        self.ports: dict[str, int] = {}
        self.trouble = ClientTrouble()
        broker.on_client_faults = self.trouble.suffer

    async def start(self, blocks: ProducerIdBlocks) -> None:
        for one in listeners_in(self._config.listeners):
            if one.speaks_kafka:
                apis = table(
                    self._config, self._broker, self._logs, self._handle, blocks, one.name, is_guarded=self._is_guarded
                )
                server = KafkaServer(self.trouble.table(apis), _nothing_else, _not_served, LIMITS)
                self._servers.append(server)
                tls = server_context_for(self._config) if one.has_tls else None
                login = self._logins if one.has_sasl else None
                self.ports[one.name] = await server.start(one.host, one.port, tls=tls, login=login)

    async def close(self) -> None:
        for server in self._servers:
            await server.close()


async def _nothing_else() -> Mapping[int, Api]:
    return {}


async def _not_served(frame: bytes) -> bytes:
    raise WireError(f"API {int.from_bytes(frame[:2], 'big')} is not served")
