"""A real controller in this process, for benches that stand beside it. `ours.py` has one in a process of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

from controller.base.config import LIMITS
from controller.core.belief.cluster import Cluster
from controller.core.events import Event
from controller.core.project.lines import Line
from controller.loop.inbox import Reply
from controller.seat.claim import Claim
from controller.seat.guard import TermGuard
from controller.statelog.metrics import Meters
from controller.tell.dialects.http import HttpDialect
from controller.tell.outbox import Outboxes
from controller.term.daemon import Daemon
from controller.term.parts import OnAnswer, TermParts
from controller.wire.client import HttpClient
from controller.zookeeper.port import SessionLostError
from tests.bench.world import World


class NoJournal:
    """The state-change log is written in a thread of its own; its cost to the loop is in `accept`, which is here."""

    def accept(self, lines: Sequence[Line]) -> None:
        return None


class Inside:
    """The daemon, and the outboxes of its term once there is one."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.outboxes: Outboxes | None = None

    @property
    def cluster(self) -> Cluster | None:
        """As believed, once it is loaded."""
        term = self.daemon.term
        return term.cluster if term is not None and term.is_loaded else None

    async def ask(self, request: Event) -> Reply:
        """As the API does."""
        assert self.daemon.term is not None
        return await self.daemon.term.ask(request)


@asynccontextmanager
async def a_controller(world: World, meters: Meters) -> AsyncIterator[Inside]:
    clients: list[HttpClient] = []

    def open_outboxes(
        claim: Claim,
        guard: TermGuard,
        group: asyncio.TaskGroup,
        on_fenced: Callable[[str], None],
        on_answer: OnAnswer,
    ) -> Outboxes:
        client = HttpClient(guard.check)
        clients.append(client)
        inside.outboxes = Outboxes(
            group, HttpDialect(client), claim.broker_id, claim.controller_epoch, on_answer=on_answer,
            on_fenced=lambda: on_fenced("fenced"), entropy=Random(1),
        )  # fmt: skip
        return inside.outboxes

    zk = await world.client()
    parts = TermParts(
        cluster_id="bench", open_outboxes=open_outboxes, journal=NoJournal(), limits=LIMITS,
        wall_ms=lambda: time.time_ns() // 1_000_000, entropy=Random(1), meters=meters,
    )  # fmt: skip
    inside = Inside(Daemon(zk, 0, parts))
    running = asyncio.create_task(_run_until_lost(inside.daemon))
    try:
        yield inside
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for client in clients:
            await client.close()
        await zk.close()


async def _run_until_lost(daemon: Daemon) -> None:
    try:
        await daemon.run()
    except SessionLostError:
        return
