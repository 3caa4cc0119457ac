"""A controller on the fake ZooKeeper: real daemon, term, loop and store; recorded tellings and lines; a moved clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import msgspec

from controller.api.ports import Reply, term_of
from controller.base.config import Limits
from controller.core.events import Event
from controller.core.project.lines import Line
from controller.core.project.requests import Telling
from controller.core.project.znodes import CLUSTER_ID
from controller.seat.claim import Claim
from controller.seat.guard import TermGuard
from controller.statelog.journal import Journal
from controller.tell.outbox import OutboxStatus
from controller.term.controller import Handle
from controller.term.daemon import Daemon
from controller.term.parts import OnAnswer, TermParts
from controller.term.term import Term
from controller.zookeeper.layout import TOP_LEVEL_PATHS
from controller.zookeeper.port import SessionLostError
from tests.fakes.client import FakeClient
from tests.fakes.zookeeper import FakeZooKeeper
from tests.support.znodes import generic

#: as a running cluster has them: nothing of it has to be made
TOP_PATHS = (*TOP_LEVEL_PATHS, CLUSTER_ID)


class Heard:
    """The tellings and lines of a controller: stands where the outboxes and the journal stand."""

    def __init__(self) -> None:
        self.tellings: list[tuple[str, Telling]] = []
        self.lines: list[Line] = []
        self.guards: list[TermGuard] = []

    def open_outboxes(
        self,
        claim: Claim,
        guard: TermGuard,
        group: asyncio.TaskGroup,
        on_fenced: Callable[[str], None],
        on_answer: OnAnswer,
    ) -> Heard:
        self.guards.append(guard)
        self.on_answer = on_answer
        return self

    async def settled(self) -> None:
        """No broker has to be waited for here: each telling is heard."""

    def status(self) -> dict[int, OutboxStatus]:
        return {}

    def accept(self, told: Telling | Sequence[Line], event_id: str | None = None) -> None:
        if isinstance(told, Telling):
            self.tellings.append((event_id or "", told))
        else:
            self.lines.extend(told)


class Node:
    """One controller process: its session, its daemon, and its tellings."""

    def __init__(self, server: FakeZooKeeper, zk: FakeClient, broker_id: int, limits: Limits, **given: Any) -> None:
        self.server = server
        self.zk = zk
        self.broker_id = broker_id
        self.heard = Heard()
        parts = TermParts(
            cluster_id="test",
            open_outboxes=self.heard.open_outboxes,
            journal=self.heard,
            limits=limits,
            wall_ms=lambda: server.now_ms,
            entropy=Random(7),
            clock=server.clock,
            sleep=server.clock.sleep,
        )
        self._parts = msgspec.structs.replace(parts, **given)
        self.handle = Handle(cast(Journal, self.heard), self._parts.meters)
        self.daemon = self.daemon_on(zk)

    @property
    def held(self) -> Term:
        """The term held now."""
        term = self.handle.term
        assert term is not None, "a standby"
        return term

    async def ask(self, request: Event) -> Reply:
        """As the API does."""
        return await term_of(self.handle).ask(request)

    def retool(self, **given: Any) -> None:
        """Other tools, before it runs."""
        self._parts = msgspec.structs.replace(self._parts, **given)
        self.daemon = self.daemon_on(self.zk)

    def daemon_on(self, zk: FakeClient) -> Daemon:
        """As each session of a process has its own; the process's memory is the same."""
        daemon = Daemon(zk, self.broker_id, self._parts)
        self.handle.open_to(daemon)
        return daemon

    async def run(self) -> None:
        """Until the session is lost, which is a normal end here."""
        try:
            await self.daemon.run()
        except SessionLostError:
            return


def broker_json(broker_id: int) -> bytes:
    port = 8080 + broker_id
    return json.dumps(
        {
            "version": 5, "host": "127.0.0.1", "port": port, "endpoints": [f"HTTP://127.0.0.1:{port}"], "jmx_port": -1,
            "listener_security_protocol_map": {"HTTP": "PLAINTEXT"}, "features": {}, "timestamp": "0",
        }
    ).encode()  # fmt: skip


async def a_server(**kwargs: int) -> FakeZooKeeper:
    """An empty Kafka layout."""
    server = FakeZooKeeper()
    maker = await server.connect()
    for path in TOP_PATHS:
        await maker.create(path, b"")
    await maker.close()
    return server


async def a_broker(server: FakeZooKeeper, broker_id: int) -> FakeClient:
    """A registered broker: its session is the client returned."""
    zk = await server.connect()
    await zk.create(f"/brokers/ids/{broker_id}", broker_json(broker_id), ephemeral=True)
    return zk


@asynccontextmanager
async def a_controller(
    server: FakeZooKeeper,
    broker_id: int = 1,
    *,
    zk: FakeClient | None = None,
    limits: Limits | None = None,
    **given: Any,
) -> AsyncIterator[Node]:
    """A running daemon; ends with the scope. `given` are other tools than usual."""
    node = Node(server, zk or await server.connect(), broker_id, limits or Limits(), **given)
    task = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object], turns: int = 5_000) -> None:
    """Let the event loop run until the condition holds; nothing here depends on real time."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


async def settled(turns: int = 200) -> None:
    """Let everything that can run, run."""
    for _ in range(turns):
        await asyncio.sleep(0)


def state_of(server: FakeZooKeeper, topic: str, partition: int) -> dict[str, object] | None:
    """A state znode's JSON."""
    data = server.read(f"/brokers/topics/{topic}/partitions/{partition}/state")
    return None if data is None else generic(data)


def topic_json(*replicas: list[int], topic_id: str | None = "AAAAAAAAAAAAAAAAAAAAAg") -> bytes:
    znode: dict[str, object] = {"version": 3, "partitions": {str(n): one for n, one in enumerate(replicas)}}
    if topic_id is not None:
        znode |= {"topic_id": topic_id, "adding_replicas": {}, "removing_replicas": {}}
    return json.dumps(znode).encode()
