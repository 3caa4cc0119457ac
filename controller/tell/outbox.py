"""Telling brokers: one ordered sender per broker incarnation, one request in flight each.

It owns the senders, their retries and the sharing of bytes; `backlog.py` keeps the states that each has still to send.
So a lost answer loses nothing, no older state follows a newer one, and a slow broker costs references and no other
broker's time. It decides nothing and knows no protocol.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from controller.base.config import LIMITS, Limits
from controller.core.codes import Code
from controller.core.events import LeaderAndIsrAnswered
from controller.core.model import Broker, TopicIdPartition
from controller.core.project.requests import Telling
from controller.statelog.metrics import Timings
from controller.tell.acknowledgements import (
    BrokerAnswered,
    RefusalLedger,
    event_for,
    note_refusals,
)
from controller.tell.backlog import Backlog, Bundle
from controller.tell.dialects import (
    Dialect,
    Envelope,
    NotAcknowledgedError,
    Request,
    Unwanted,
    Wanted,
)
from controller.tell.merge_queue import by_host, split
from controller.wire.bodies import UPDATE_METADATA

log = structlog.get_logger()

OnAnswer = Callable[[BrokerAnswered], None]

_T = TypeVar("_T")
_DOUBLINGS_MAX: Final = 16


class OutboxStatus(msgspec.Struct, frozen=True):
    """For metrics: how many states wait, how long the first of them has waited, and the last acknowledgement."""

    broker_epoch: int
    depth: int
    age_ms: int
    acknowledged_event_id: str | None
    #: for how long the first of them had waited whenever a request left
    waits: Timings = msgspec.field(default_factory=Timings)


class _StaleControllerError(Exception):
    """The broker obeys a newer controller; of that one the epoch, or -1 when it does not say."""

    def __init__(self, controller_epoch: int) -> None:
        super().__init__(controller_epoch)
        self.controller_epoch = controller_epoch


class _StaleIncarnationError(Exception):
    """The broker is not the incarnation addressed."""


class _Outbox:
    """One incarnation: its backlog, since when, and how far it is."""

    def __init__(self, broker: Broker, backlog: Backlog, event_id: str, now: float, before: _Outbox | None) -> None:
        """`before`: of the same incarnation, which is told everything again."""
        self.broker = broker
        self.backlog = backlog
        self.event_id = event_id
        self.acknowledged_event_id: str | None = None
        self.has_failed_dirs: bool = before is not None and before.has_failed_dirs
        self.ledger: RefusalLedger = RefusalLedger(None if before is None else before.ledger)
        self.waiting_since = now
        self.waits = Timings()
        self.has_backlog = asyncio.Event()
        self.has_backlog.set()
        self.settled = asyncio.Event()

    def queue(self, event_id: str, now: float) -> None:
        self.event_id = event_id
        if not self.has_backlog.is_set():
            self.waiting_since = now
            self.has_backlog.set()
            self.settled.clear()

    def settle(self) -> None:
        self.acknowledged_event_id = self.event_id
        self.has_backlog.clear()
        self.settled.set()


class Outboxes:
    """All brokers' outboxes, for one term. `accept` is synchronous; the rest happens in tasks of the term's group."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        dialect: Dialect,
        controller_id: int,
        controller_epoch: int,
        *,
        on_answer: OnAnswer,
        on_fenced: Callable[[], None],
        on_epoch: Callable[[int], None] = lambda _: None,
        entropy: random.Random,
        limits: Limits = LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks = tasks
        self._dialect = dialect
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._on_answer = on_answer
        self._on_fenced = on_fenced
        self._on_epoch = on_epoch
        self._entropy = entropy
        self._limits = limits
        self._clock = clock
        #: shared by all requests as of the latest telling
        self._view = Request(path="", brokers=(), live_ids=frozenset())
        self._outboxes: dict[int, _Outbox] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._is_fenced = False
        self._work = asyncio.Lock()

    def accept(self, telling: Telling, event_id: str) -> None:
        """Queue this for the brokers that it concerns. Once another controller is active, nothing is told."""
        if self._is_fenced:
            return
        self._view = Request(
            path="", brokers=telling.brokers, live_ids=telling.live_ids, failed_dirs=telling.failed_dirs, row_cache={}
        )
        for broker_id, epoch in telling.gone:
            if broker_id in self._outboxes and self._outboxes[broker_id].broker.epoch == epoch:
                self._end(broker_id)
        if telling.brokers_changed:
            self._renew_endpoints(telling)
        new: defaultdict[int, set[TopicIdPartition]] = defaultdict(set)
        for topic_id, number, broker_id in telling.new_replicas:
            new[broker_id].add((topic_id, number))
        brokers = self._bundle(UPDATE_METADATA, {}, is_shared=True) if telling.brokers_changed else None
        metadata = self._metadata_of(telling)
        for broker_id, outbox in self._outboxes.items():
            if outbox.backlog.add(telling, brokers, metadata, new[broker_id]):
                outbox.queue(event_id, self._clock())
        if telling.joined:
            self._welcome(telling, event_id, new)

    @property
    def is_settled(self) -> bool:
        """Whether everything accepted was acknowledged by every broker that lives."""
        return all(outbox.settled.is_set() for outbox in self._outboxes.values())

    async def settled(self) -> None:
        """Return when each broker has acknowledged everything accepted before this call, or is gone."""
        for outbox in list(self._outboxes.values()):
            await outbox.settled.wait()

    def status(self) -> dict[int, OutboxStatus]:
        """By broker id."""
        now = self._clock()
        return {
            broker_id: OutboxStatus(
                broker_epoch=outbox.broker.epoch,
                depth=outbox.backlog.depth,
                age_ms=round((now - outbox.waiting_since) * 1000) if outbox.has_backlog.is_set() else 0,
                acknowledged_event_id=outbox.acknowledged_event_id,
                waits=outbox.waits,
            )
            for broker_id, outbox in self._outboxes.items()
        }

    def _renew_endpoints(self, telling: Telling) -> None:
        for known in telling.brokers:
            outbox = self._outboxes.get(known.broker.broker_id)
            if outbox is not None and outbox.broker.epoch == known.broker.epoch:
                outbox.broker = known.broker

    def _metadata_of(self, telling: Telling) -> Bundle | None:
        rows: Wanted = telling.metadata
        if telling.removed:
            rows = {**rows, **{key: dict.fromkeys(numbers) for key, numbers in telling.removed.items()}}
        return self._bundle(UPDATE_METADATA, rows, is_shared=True) if rows else None

    def _welcome(self, telling: Telling, event_id: str, new: defaultdict[int, set[TopicIdPartition]]) -> None:
        everything = telling.everything
        assert everything is not None, "a broker that joins is told everything"
        full = self._bundle(UPDATE_METADATA, everything, full=True, is_shared=True)
        own = by_host(everything, {broker.broker_id for broker in telling.joined})
        for broker in telling.joined:
            broker_id = broker.broker_id
            before = self._outboxes.get(broker_id)
            if before is not None:
                self._end(broker_id)
            backlog = Backlog(broker_id, everything, own[broker_id], full, new[broker_id])
            backlog.stop(telling.stops.get(broker_id, {}))
            backlog.ask(telling.questions.get(broker_id, {}))
            outbox = self._outboxes[broker_id] = _Outbox(
                broker,
                backlog,
                event_id,
                self._clock(),
                before if before and before.broker.epoch == broker.epoch else None,
            )
            self._senders[broker_id] = self._tasks.create_task(self._send(outbox), name=f"tell broker {broker_id}")

    def _bundle(
        self,
        path: str,
        rows: Wanted,
        *,
        stops: Unwanted | None = None,
        names: Sequence[str] = (),
        full: bool = False,
        new: frozenset[TopicIdPartition] = frozenset(),
        is_shared: bool = False,
    ) -> Bundle:
        """Requests as of the latest telling. Without rows there is one: about the brokers alone, `stops` or `names`."""
        pieces = list(split(rows, self._limits.partitions_per_rpc)) or [{}]
        requests = [
            replace(
                self._view,
                path=path,
                tells_brokers=path == UPDATE_METADATA and number == 1 and (full or not rows),
                rows=piece,
                stops=stops or {},
                names=names,
                new=new,
                full=full,
                part=number if full else 1,
                parts=len(pieces) if full else 1,
            )
            for number, piece in enumerate(pieces, start=1)
        ]
        return Bundle(requests, is_shared=is_shared)

    async def _send(self, outbox: _Outbox) -> None:
        try:
            await self._keep_telling(outbox)
        except _StaleIncarnationError:
            log.warning("incarnation.refused", broker_id=outbox.broker.broker_id, broker_epoch=outbox.broker.epoch)
            self._end(outbox.broker.broker_id)
        except _StaleControllerError as error:
            obeyed = error.controller_epoch
            log.warning(
                "controller.deposed", broker_id=outbox.broker.broker_id, epoch=self._controller_epoch, obeyed=obeyed
            )
            self._on_epoch(obeyed)
            self._is_fenced = True
            for broker_id in list(self._outboxes):
                self._end(broker_id)
            self._on_fenced()

    async def _keep_telling(self, outbox: _Outbox) -> None:
        """Nothing is given up while the incarnation lives."""
        failures = 0
        while True:
            await outbox.has_backlog.wait()
            if outbox.backlog.is_nothing:
                outbox.settle()
                if self.is_settled:
                    self._view = replace(self._view, row_cache={})
                continue
            try:
                await self._tell_next(outbox, outbox.event_id)
            except NotAcknowledgedError as error:
                failures += 1
                if failures == 1:
                    log.warning("telling.delayed", broker_id=outbox.broker.broker_id, reason=str(error))
                await asyncio.sleep(self._pause_s(failures))
                continue
            if failures:
                log.info("telling.resumed", broker_id=outbox.broker.broker_id, failures=failures)
            failures = 0

    async def _tell_next(self, outbox: _Outbox, event_id: str) -> None:
        limit = self._limits.partitions_per_rpc
        bundle, indexes = await self._work_on(partial(outbox.backlog.next, self._bundle, limit))
        outbox.waits.add((self._clock() - outbox.waiting_since) * 1_000)
        for index in indexes:
            body = bundle.body(index)
            if body is None:
                body = await self._work_on(partial(bundle.encode, index, self._dialect))
            await self._exchange(outbox, bundle, index, body, event_id)
            outbox.backlog.acknowledge(bundle, index)

    async def _exchange(self, outbox: _Outbox, bundle: Bundle, index: int, body: bytes, event_id: str) -> None:
        broker, request = outbox.broker, bundle.requests[index]
        envelope = Envelope(self._controller_id, self._controller_epoch, event_id)
        answer = await self._dialect.send(broker, request, body, envelope)
        if answer.error_code == Code.STALE_CONTROLLER_EPOCH:
            raise _StaleControllerError(answer.controller_epoch)
        if answer.error_code == Code.STALE_BROKER_EPOCH:
            raise _StaleIncarnationError
        note_refusals(broker, request.path, answer)
        # belief may not have heard yet of a failure that the answer before this one reported
        is_suspect = outbox.has_failed_dirs or broker.broker_id in self._view.failed_dirs
        event = event_for(broker, bundle.answered(index), answer, is_suspect=is_suspect)
        if event is not None:
            outbox.has_failed_dirs |= isinstance(event, LeaderAndIsrAnswered) and bool(event.failed)
            self._on_answer(event)
        refusals = outbox.ledger.event_for(broker, request, bundle.answered(index), answer)
        if refusals is not None:
            self._on_answer(refusals)

    async def _work_on(self, piece: Callable[[], _T]) -> _T:
        """One piece of long work in each turn of the event loop, however many outboxes are busy."""
        async with self._work:
            result = piece()
            await asyncio.sleep(0)
            return result

    def _pause_s(self, failures: int) -> float:
        longest_ms = self._limits.rpc_retry_min_ms << min(failures - 1, _DOUBLINGS_MAX)
        return min(longest_ms, self._limits.rpc_retry_max_ms) * self._entropy.uniform(0.5, 1) / 1000

    def _end(self, broker_id: int) -> None:
        """Tell this incarnation nothing more, not even the request under way."""
        self._outboxes.pop(broker_id).settled.set()
        sender = self._senders.pop(broker_id)
        if sender is not asyncio.current_task():
            sender.cancel()
