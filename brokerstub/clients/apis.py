"""All that a broker's listener for clients serves, in one table, and the server that serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from brokerstub.broker import Broker
from brokerstub.clients.cluster import ClusterApis
from brokerstub.clients.offsets import OffsetApis
from brokerstub.clients.producer_ids import ProducerIdApis, ProducerIdBlocks
from brokerstub.clients.reading import ReadingApis
from brokerstub.clients.trouble import ClientTrouble
from brokerstub.clients.writing import WritingApis
from brokerstub.listeners import listeners_in
from brokerstub.logs import Logs
from controller.api.ports import ControllerHandle
from controller.base.config import LIMITS, BrokerConfig
from controller.kafka.protocol.codec import WireError
from controller.kafka.server.admin_apis import AdminApis
from controller.kafka.server.hosted import HOSTED
from controller.kafka.server.listener import API_VERSIONS, Api, KafkaServer, Login
from controller.kafka.server.topic_apis import TopicApis
from controller.security.tls import server_context_for


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
