"""What every term of a process is given: the properties it acts by, and the parts that reach outside.

Values and types, and how a part ends with its term.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Protocol

import msgspec

from controller.base.bell import Bell
from controller.base.config import Limits
from controller.core.model import Broker
from controller.loop.loop import Recorder, Teller
from controller.seat.claim import Claim, KnownEpochs
from controller.seat.guard import TermGuard
from controller.statelog.metrics import Meters
from controller.tell.acknowledgements import BrokerAnswered
from controller.tell.outbox import OutboxStatus
from controller.zookeeper.port import ZooKeeper


class Outboxes(Teller, Protocol):
    """The outboxes, as a term knows them."""

    async def settled(self) -> None: ...
    def status(self) -> dict[int, OutboxStatus]: ...


OnAnswer = Callable[[BrokerAnswered], None]
#: opens a term's outboxes: claim, guard, tasks, what to call when a broker names a later controller, and with answers
OpenOutboxes = Callable[[Claim, TermGuard, asyncio.TaskGroup, Callable[[str], None], OnAnswer], Outboxes]


class TermParts(msgspec.Struct):
    """What every term of this process is given."""

    cluster_id: str
    open_outboxes: OpenOutboxes
    journal: Recorder
    limits: Limits
    #: for lines and znodes that people read; nothing is measured by it
    wall_ms: Callable[[], int]
    entropy: Random
    #: whether this process can speak to a broker, as it is registered
    is_ours: Callable[[Broker], bool] = lambda _: True
    #: whether brokers that it cannot speak to have the better right to the cluster
    yields_to_strangers: bool = False
    #: a controller that is no broker: it leaves a seat alone that was handed back
    is_dedicated: bool = False
    #: why it must not have the seat of this cluster, whoever offers it; asked before it claims
    vetoes_against: Callable[[ZooKeeper], Awaitable[Sequence[str]]] | None = None
    #: it takes the seat from a broker that got it while none of ours had it; None: once it has seen one of ours have it
    is_preferred: bool | None = False
    has_seen_ours: bool = False
    unclean_default: bool = False
    delete_enabled: bool = True
    #: the automatic preferred election: None when it is off
    balance_interval_s: float | None = None
    imbalance_percentage: int = 10
    meters: Meters = msgspec.field(default_factory=Meters)
    #: what this process knows of controller epochs, for as long as it lives
    epochs: KnownEpochs = msgspec.field(default_factory=KnownEpochs)
    #: told whenever somebody else may have the seat, or this process
    seat_changes: Bell = msgspec.field(default_factory=Bell)
    #: by which all durations are measured, and the session's end; tests move it
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def close_at_end(close: Callable[[], Awaitable[None]]) -> None:
    """A task of a term's group: what it closes lives as long as the group."""
    try:
        await asyncio.Event().wait()
    finally:
        await close()
