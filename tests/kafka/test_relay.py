"""Requests passed on to brokers, while some of them stand still: a socket that takes connections and never answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import cast

import msgspec
import pytest

from controller.api.ports import ControllerHandle
from controller.base.config import LIMITS
from controller.core.belief.cluster import Cluster
from controller.core.model import Broker
from controller.kafka.protocol.access import PLAIN_ACCESS, Access, Listener, OpenConnection
from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.listener import API_VERSIONS, Api, KafkaServer
from controller.kafka.server.relay import EVERYWHERE, Relay
from tests.kafka import kafka_support as kio
from tests.kafka.kafka_world import (
    HOST,
    Client,
    a_broker_of,
    a_frozen_broker,
)
from tests.waiting import DEADLINE_S

OWN, FOREIGN = 56, 3
ANSWER = b"\0\0\0\7answered by a broker"


class Belief:
    """A handle that knows brokers."""

    def __init__(self, *ports: int) -> None:
        self.cluster = Cluster(controller_id=9, controller_epoch=1)
        for number, port in enumerate(ports):
            endpoint = f"PLAINTEXT://{HOST}:{port}"
            self.cluster.brokers[number] = Broker(number, 1, None, -1, (endpoint,), None, {})


alive = a_broker_of({FOREIGN: (0, 12)}, ANSWER)


async def own(version: int, reader: Reader, writer: Writer) -> None:
    writer.raw(b"own")


async def ended(task: asyncio.Task[None]) -> None:
    """Cancelled, and its connections are closed."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def a_relay(*brokers: object, access: Access = PLAIN_ACCESS, **limits: int) -> AsyncIterator[Client]:
    """A client of a server of ours that passes on to brokers of these kinds."""
    async with AsyncExitStack() as stack:
        ports = []
        for kind in brokers:
            server = await asyncio.start_server(kind, HOST, 0)  # type: ignore[arg-type]
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            ports.append(server.sockets[0].getsockname()[1])
        bounds = msgspec.structs.replace(LIMITS, **limits)
        relay = Relay(cast(ControllerHandle, Belief(*ports)), bounds, Random(1), access)
        keeping = asyncio.create_task(relay.keep_versions())
        stack.push_async_callback(ended, keeping)
        table = {OWN: Api(0, 0, 9, own), API_VERSIONS: Api(0, 3, 3)}
        server = KafkaServer(table, relay.versions, relay.pass_on, bounds)
        port = await server.start(HOST, 0)
        stack.push_async_callback(server.close)
        client = Client(*await asyncio.open_connection(HOST, port))
        stack.callback(client.writer.close)
        yield client


async def test_a_request_that_the_controller_answers_waits_for_no_broker() -> None:
    async with a_relay(a_frozen_broker, kafka_connect_ms=3_600_000, rpc_timeout_ms=3_600_000) as client:
        async with asyncio.timeout(DEADLINE_S):
            assert await client.raw(kio.request_header(OWN, 0, 7, "c", 1)) == b"\0\0\0\7own"


@pytest.mark.parametrize("brokers", [(a_frozen_broker,), ()], ids=["frozen", "none known"])
async def test_a_client_always_reads_that_metadata_is_served_or_it_would_end(brokers: tuple[object, ...]) -> None:
    async with a_relay(*brokers, kafka_connect_ms=20, rpc_timeout_ms=3_600_000) as client:
        listed = await versions_in(client)
        assert listed == {key: (0, api.last) for key, api in EVERYWHERE.items()} | {OWN: (0, 0), API_VERSIONS: (0, 3)}
        assert FOREIGN in listed


async def versions_in(client: Client) -> dict[int, tuple[int, int]]:
    async with asyncio.timeout(DEADLINE_S):
        answer = await client.ask("api_versions", 0, "ApiVersionsRequest")
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


@pytest.mark.parametrize("brokers", [(a_frozen_broker, alive), (alive, a_frozen_broker)])
async def test_the_versions_come_from_the_broker_that_answers(brokers: tuple[object, ...]) -> None:
    async with a_relay(*brokers, kafka_connect_ms=200) as client:
        async with asyncio.timeout(DEADLINE_S):
            while (await versions_in(client))[FOREIGN] != (0, 12):
                pass


class Obstructed(Access, frozen=True):
    """The first connection comes to nothing: by an error, or not at all."""

    trouble: list[OSError | None] = []

    async def open(self, address: Listener) -> OpenConnection:
        if self.trouble:
            error = self.trouble.pop()
            if error is not None:
                raise error
            await asyncio.Event().wait()
        return await super().open(address)


@pytest.mark.parametrize("trouble", [None, OSError(113, "no route to host"), ConnectionResetError()], ids=str)
async def test_a_broker_that_cannot_be_connected_to_is_passed_over(trouble: OSError | None) -> None:
    obstructed = Obstructed()
    async with a_relay(alive, alive, access=obstructed, kafka_connect_ms=2_000) as client:
        await client.ask("api_versions", 0, "ApiVersionsRequest")
        obstructed.trouble.append(trouble)
        assert await client.raw(kio.request_header(FOREIGN, 0, 7, "c", 1)) == ANSWER
        assert not obstructed.trouble


NEWER_ONLY = 60
newer = a_broker_of({FOREIGN: (0, 12), NEWER_ONLY: (0, 0)}, b"\0\0\0\7by the newer one")
older = a_broker_of({FOREIGN: (2, 9)}, b"\0\0\0\7by the older one")


@pytest.mark.parametrize("brokers", [(newer, older), (older, newer)])
async def test_the_advertised_versions_are_those_of_every_broker(brokers: tuple[object, ...]) -> None:
    async with a_relay(*brokers) as client:
        listed = await versions_in(client)
    assert listed == {FOREIGN: (2, 9), OWN: (0, 0), API_VERSIONS: (0, 3)}


@pytest.mark.parametrize("version", [0, 12])
async def test_a_request_goes_to_a_broker_that_serves_its_version(version: int) -> None:
    """A client may have asked for the served versions before the older broker came."""
    async with a_relay(newer, older, newer, older) as client:
        await versions_in(client)
        for _ in range(20):
            request = kio.request_header(FOREIGN, version, 7, "c", 1)
            assert await client.raw(request) == b"\0\0\0\7by the newer one"


@pytest.mark.parametrize(("key", "version"), [(FOREIGN, 13), (NEWER_ONLY, 1), (11, 0)])
async def test_a_request_that_no_broker_serves_is_refused(key: int, version: int) -> None:
    async with a_relay(newer, older) as client:
        await versions_in(client)
        assert await client.raw(kio.request_header(key, version, 7, "c", 1)) is None
