"""The parts that every term of a process is given: the properties it acts by, and the ways to the outside.

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
#: opens a term's outboxes: claim, guard, tasks, and the callbacks for a later controller's name and for answers
OpenOutboxes = Callable[[Claim, TermGuard, asyncio.TaskGroup, Callable[[str], None], OnAnswer], Outboxes]


class TermParts(msgspec.Struct):
    """The parts that every term of this process is given."""

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
    yields_to_foreign_brokers: bool = False
    #: a controller that is no broker: it leaves a seat alone that was handed back
    is_dedicated: bool = False
    #: the reasons why the broker must not have the seat of this cluster, even when it is offered; asked before it
    #: claims
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
    #: the controller epochs that this process knows, for as long as it lives
    epochs: KnownEpochs = msgspec.field(default_factory=KnownEpochs)
    #: called whenever another process may have taken the seat, or this one
    seat_changes: Bell = msgspec.field(default_factory=Bell)
    #: by which all durations are measured, and the session's end; tests move it
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def close_at_end(close: Callable[[], Awaitable[None]]) -> None:
    """A task of a term's group: the object that it closes lives as long as the group."""
    try:
        await asyncio.Event().wait()
    finally:
        await close()
