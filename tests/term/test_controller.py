"""The controller of a process, as a broker and a dedicated controller build it: on the fake ZooKeeper, session after
session, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec

from controller.base.config import BrokerConfig
from controller.core.model import Broker
from controller.tell.dialects import Dialect, Envelope, NotAcknowledgedError, Request
from controller.term.controller import Controller
from controller.term.parts import TermParts
from controller.wire.bodies import Answer
from controller.zookeeper.client import ZooKeeperClient
from tests.fakes.client import FakeClient
from tests.fakes.zookeeper import FakeZooKeeper
from tests.support.harness import a_server, until


class Silence:
    """A dialect by which no broker can be reached."""

    def __init__(self) -> None:
        self.is_closed = False

    def open(self, check: Callable[[], None]) -> tuple[Dialect, Callable[[], Awaitable[None]]]:
        check()
        return self, self.close

    def encode(self, request: Request) -> bytes:
        return b""

    async def send(self, broker: Broker, request: Request, body: bytes, envelope: Envelope) -> Answer:
        raise NotAcknowledgedError("silence")

    async def close(self) -> None:
        self.is_closed = True


def built(folder: Path, silence: Silence) -> Controller:
    return Controller(
        folder, BrokerConfig(broker_id=1, log_dirs=str(folder), zookeeper_connect="127.0.0.1:2181"), silence.open
    )


def parts_on(server: FakeZooKeeper, controller: Controller) -> TermParts:
    """As a process has them, by the fake's clock."""
    parts = controller.parts_for("test", is_ours=lambda _: True)
    return msgspec.structs.replace(parts, clock=server.clock, sleep=server.clock.sleep)


@asynccontextmanager
async def on_a_session(controller: Controller, parts: TermParts, zk: FakeClient) -> AsyncIterator[None]:
    zk.measure = lambda took_s: took_s(0.002)  # type: ignore[attr-defined]  # one answer, after 2 ms
    with controller.on_session(cast(ZooKeeperClient, zk), 1, parts) as daemon:
        running = asyncio.create_task(daemon.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_each_session_gets_a_daemon_and_the_processs_known_epochs_outlast_it(tmp_path: Path) -> None:
    server, silence = await a_server(), Silence()
    controller = built(tmp_path, silence)
    parts = parts_on(server, controller)
    for epoch in (1, 2):
        zk = await server.connect()
        async with on_a_session(controller, parts, zk):
            await until(lambda: controller.handle.is_active)
            assert controller.handle.controller_epoch == epoch
        assert not controller.handle.is_active
        assert not controller.handle.is_registered
        assert silence.is_closed, "the outbox that a term opened ends with it"
        await zk.close()
    await controller.close()


async def test_the_answers_of_each_session_are_measured(tmp_path: Path) -> None:
    server = await a_server()
    controller = built(tmp_path, Silence())
    async with on_a_session(controller, parts_on(server, controller), await server.connect()):
        assert controller.meters.zookeeper_answers.count == 1
    await controller.close()


async def test_a_farewell_is_written_into_the_term_and_the_seat_is_free_at_once(tmp_path: Path) -> None:
    server = await a_server()
    controller = built(tmp_path, Silence())
    zk = await server.connect()
    async with on_a_session(controller, parts_on(server, controller), zk):
        await until(lambda: controller.handle.is_active)
        await controller.say_farewell()
        assert b'"shut down"' in (server.read("/klamm/terms/1") or b"")
    await controller.give_up_seat(zk)
    assert server.read("/controller") is None
    await controller.close()
