"""Scenes of the museum that happen between two requests of one reader."""

from __future__ import annotations

import msgspec

from controller.core.events import BrokersSeen
from controller.core.project.znodes import BROKER_IDS
from controller.loop.reader import Reader
from tests.fakes.client import FakeClient
from tests.support.harness import a_server


async def test_m41_a_broker_that_leaves_between_two_readings_is_not_alive() -> None:
    server = await a_server()
    zk, leaving = await server.connect(), await server.connect()
    registration = msgspec.json.encode({"version": 4, "host": "h", "port": 9092, "endpoints": ["HTTP://h:9092"]})
    await leaving.create(f"{BROKER_IDS}/1", registration, ephemeral=True)

    async def leave(client: FakeClient, name: str) -> None:
        if client is zk and name == "get_many":  # its name was listed, its data is asked for now
            server.on_request = None
            await leaving.delete(f"{BROKER_IDS}/1", -1)

    server.on_request = leave
    reader = Reader(zk)
    (seen,) = await reader.see({BROKER_IDS})
    assert isinstance(seen, BrokersSeen)
    assert seen.brokers == {}
