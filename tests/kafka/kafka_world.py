"""The controller's server in Kafka's protocol on a socket, and clients that speak by another codec."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from controller.base.config import LIMITS
from controller.kafka.protocol.codec import WireError, Writer
from controller.kafka.server.admin_apis import HOSTED, AdminApis, TopicApis
from controller.kafka.server.broker_apis import BrokerApis
from controller.kafka.server.listener import API_VERSIONS, Api, KafkaServer
from tests.kafka import kafka_support as kio
from tests.loop.admin_site import Site, a_site, leading
from tests.support.harness import Node

HOST = "127.0.0.1"
SECOND = timedelta(seconds=1)


class Client:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.sent = 0

    async def raw(self, frame: bytes) -> bytes | None:
        """The answer's frame; None when the connection is closed instead."""
        self.writer.write(struct.pack(">i", len(frame)) + frame)
        try:
            size = struct.unpack(">i", await self.reader.readexactly(4))[0]
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ask(self, name: str, version: int, request: str, **fields: Any) -> Any:
        """By the other codec, both ways."""
        kind = getattr(kio.schema(name, version, "request"), request)
        response = getattr(kio.schema(name, version, "response"), request.replace("Request", "Response"))
        self.sent += 1
        header_version = kind.__header_schema__.__version__
        header = kio.request_header(kind.__api_key__, version, self.sent, "admin", header_version)
        answer = await self.raw(header + kio.written(kind(**fields)))
        assert answer is not None, "the connection was closed"
        assert struct.unpack(">i", answer[:4])[0] == self.sent
        return kio.read(response, answer[4 + response.__header_schema__.__version__ :])  # version 1 ends with no tags


def a_broker_of(
    versions: Mapping[int, tuple[int, int]], answer: bytes = b""
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """For `asyncio.start_server`: says that it serves these versions, and answers one thing to anything else."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            said = Writer(flexible=False).i32(0).i16(0)
            said.array(versions.items(), lambda one: said.i16(one[0]).i16(one[1][0]).i16(one[1][1]))
            told = said.message() if struct.unpack_from(">h", frame)[0] == API_VERSIONS else answer
            writer.write(struct.pack(">i", len(told)) + told)
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the caller has given up, as on a machine that has much else to do
        finally:
            writer.close()

    return serve


async def a_frozen_broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """For `asyncio.start_server`: takes connections and never answers."""
    await reader.read()  # until the caller has given up
    writer.close()


class World:
    """A controller that leads brokers 1 to 3, and its server."""

    def __init__(self, site: Site, node: Node, server: KafkaServer, port: int) -> None:
        self.site = site
        self.server = server
        self.passed_on = b"passed on"
        self.node = node
        self.port = port
        self.clients: list[Client] = []

    async def client(self) -> Client:
        self.clients.append(Client(*await asyncio.open_connection(HOST, self.port)))
        return self.clients[-1]


@asynccontextmanager
async def a_world(**limits: int) -> AsyncIterator[World]:
    site = await a_site()
    async with leading(site, is_dedicated=True) as node:
        bounds = msgspec.structs.replace(LIMITS, **limits)
        own = {
            **BrokerApis(node.handle, bounds.partitions_per_rpc).table(),
            **AdminApis(node.handle).table(),  # type: ignore[arg-type]
            **TopicApis(node.handle, partitions=4, factor=2).table(),  # type: ignore[arg-type]
            **HOSTED,
            API_VERSIONS: Api(0, 3, 3),
        }

        async def foreign() -> Mapping[int, Api]:
            return {3: Api(0, 12, 0)}

        async def echo(frame: bytes) -> bytes:
            if struct.unpack_from(">h", frame)[0] != 3:
                raise WireError("not served")
            return frame[4:8] + world.passed_on

        server = KafkaServer(own, foreign, echo, bounds)
        world = World(site, node, server, await server.start(HOST, 0))
        try:
            yield world
        finally:
            for client in world.clients:
                client.writer.close()
            await server.close()


async def create(
    client: Client,
    name: str,
    assignment: Mapping[int, tuple[int, ...]],
    version: int = 7,
    *,
    is_trial: bool = False,
    counts: tuple[int, int] = (-1, -1),
    configs: Mapping[str, str | None] = {"retention.ms": "60000"},
) -> Any:
    m = kio.schema("create_topics", version, "request")
    topic = m.CreatableTopic(
        name=name,
        num_partitions=counts[0],
        replication_factor=counts[1],
        assignments=tuple(
            m.CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in assignment.items()
        ),
        configs=tuple(m.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    fields = {"topics": (topic,), "timeout": SECOND, "validate_only": is_trial}
    return (await client.ask("create_topics", version, "CreateTopicsRequest", **fields)).topics[0]
