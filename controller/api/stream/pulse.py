"""The pulse: the controller's own figures for the dashboard, once a second, beside the lines of its stream.

The controller of this process takes a sample of itself each second and keeps those of the last quarter of an hour.
Counting partitions takes time, so a count is kept until its cost is paid for: never more than a twentieth of the
process. Numbers that only rise are totals since the process began: the dashboard draws their differences.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

from controller.api.bodies import ControllerBody, controller_body
from controller.api.listing import Summaries
from controller.api.ports import ClusterView, ControllerHandle
from controller.api.reader_turns import ReaderTurns
from controller.api.v1.insights import TermBody, term_body
from controller.base.clock import wall_ms
from controller.core.belief.cluster import Cluster
from controller.core.project.state_counts import (
    TABLES,
    Move,
    statuses_of,
)
from controller.core.states import Status

SAMPLE_EVERY_MS: Final = 1_000
SAMPLES_KEPT: Final = 900
RECENT_S: Final = 10
#: after a count, the next one waits for so many times its cost
PAUSE_PER_COST: Final = 20


class Totals(msgspec.Struct, frozen=True, gc=False):
    """What has come together since the process began."""

    leader_elections: int = 0
    isr_changes: int = 0
    transactions: int = 0
    events: int = 0
    event_ms: float = 0.0


class Sample(Totals, frozen=True, gc=False, kw_only=True):
    """One second of the controller, beside its totals."""

    at_ms: int
    controller_epoch: int
    offline: int
    under_replicated: int
    #: events that wait for the loop, and states that wait for brokers
    queue_length: int
    outbox_depth: int


class StateCount(msgspec.Struct, frozen=True):
    state: str
    count: int


class MoveCount(msgspec.Struct, frozen=True):
    """A move of the table: how often it was made since the process began, and in the last ten seconds."""

    source: str
    target: str
    total: int
    recent: int


class MachineBody(msgspec.Struct, frozen=True):
    """One state machine: partitions or replicas."""

    name: str
    states: Sequence[StateCount]
    moves: Sequence[MoveCount]


class PulseBody(msgspec.Struct, frozen=True):
    """One beat: `samples` since the beat before, both machines, and `terms` if they are others than then, or null."""

    controller: ControllerBody
    samples: Sequence[Sample]
    machines: Sequence[MachineBody]
    terms: Sequence[TermBody] | None
    #: by broker id: of how many partitions a broker refuses what it is told, of those that refuse any
    refused: Mapping[int, int]


class Pulse:
    """The samples of one process, and the states of its belief."""

    def __init__(self, view: ClusterView, handle: ControllerHandle, summaries: Summaries, turns: ReaderTurns) -> None:
        self._view = view
        self._handle = handle
        self._summaries = summaries
        self._turns = turns
        #: each with its number, which only rises
        self._samples: deque[tuple[int, Sample]] = deque(maxlen=SAMPLES_KEPT)
        self._number = 0
        self._terms: Sequence[TermBody] = ()
        #: the number that the sample had with which the terms became these
        self._terms_number = 0
        #: the last beat, by its receivers' position before and after, and the term
        self._newest_beat: tuple[tuple[int, int, int | None], bytes] = ((-1, -1, None), b"")
        self._encoding = asyncio.Lock()
        self._totals = Totals()
        #: of the last ten seconds, the oldest first
        self._moves: deque[Counter[Move]] = deque([Counter()], maxlen=RECENT_S)
        self._counted: Counter[Status] = Counter()
        self._count_again_at = 0.0
        self._counting = asyncio.Lock()

    async def sampling(self, app: web.Application) -> AsyncIterator[None]:
        """For `cleanup_ctx`: samples for as long as the application is served."""
        task = asyncio.create_task(self._sample_on(), name="pulse")
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def beat_after(self, number: int) -> tuple[int, bytes] | None:
        """What is new since that number of a sample, as JSON, and the number of the newest; None without a controller.
        Most receivers are equally far, and share it."""
        async with self._encoding:
            cluster, key = self._handle.cluster, (number, self._number, self._handle.controller_epoch)
            if cluster is None:
                return None
            if self._newest_beat[0] != key:
                self._newest_beat = key, msgspec.json.encode(await self._body_after(number, cluster))
            return key[1], self._newest_beat[1]

    async def _body_after(self, number: int, cluster: Cluster) -> PulseBody:
        return PulseBody(
            controller=controller_body(self._view, self._handle),
            samples=[one for at, one in self._samples if at > number],
            terms=self._terms if self._terms_number > number else None,
            machines=await self._machines(cluster),
            refused={broker_id: cluster.duties.refused_by(broker_id) for broker_id in cluster.duties.refusals},
        )

    async def _machines(self, cluster: Cluster) -> list[MachineBody]:
        counted = await self._states_of(cluster)
        totals, before = self._handle.meters.moves, self._moves[0]
        machines = []
        for name, table in TABLES.items():
            statuses = dict.fromkeys(status for move in table for status in move)
            machines.append(
                MachineBody(
                    name,
                    [StateCount(status.value, counted[status]) for status in statuses],
                    [
                        MoveCount(move[0].value, move[1].value, totals[move], totals[move] - before[move])
                        for move in table
                    ],
                )
            )
        return machines

    async def _sample_on(self) -> None:
        while True:
            pause_ms = float(SAMPLE_EVERY_MS)
            if self._handle.is_active:
                started = time.perf_counter()
                await self.take_sample(wall_ms())
                pause_ms = max(pause_ms, PAUSE_PER_COST * 1_000 * (time.perf_counter() - started))
            self._totals = self._totals_now()  # also on a standby: a term's first sample is compared with these
            self._moves.append(Counter(self._handle.meters.moves))
            await asyncio.sleep(pause_ms / 1_000)

    async def take_sample(self, at_ms: int) -> None:
        """Partitions are counted only when the metadata has changed."""
        counts, epoch = (await self._summaries.newest()).counts, self._handle.controller_epoch or 0
        term = self._handle.term
        sample = Sample(
            at_ms=at_ms,
            controller_epoch=epoch,
            offline=counts.offline,
            under_replicated=counts.under_replicated,
            queue_length=0 if term is None else term.inbox_depth,
            outbox_depth=0 if term is None else sum(status.depth for status in term.outbox_status().values()),
            **msgspec.structs.asdict(self._totals_now()),
        )
        if not self._samples or self._samples[-1][1].controller_epoch != epoch:
            before = msgspec.structs.asdict(self._totals)
            self._keep(msgspec.structs.replace(sample, at_ms=at_ms - SAMPLE_EVERY_MS, **before))
        self._keep(sample)
        terms = [] if term is None else [term_body(one) for one in term.history()]
        if terms != self._terms:
            self._terms, self._terms_number = terms, self._number

    def _keep(self, sample: Sample) -> None:
        self._number += 1
        self._samples.append((self._number, sample))

    def _totals_now(self) -> Totals:
        meters = self._handle.meters
        return Totals(
            leader_elections=meters.total(meters.leader_elections),
            isr_changes=meters.total(meters.isr_shrinks) + meters.total(meters.isr_expands),
            transactions=meters.total(meters.transactions),
            events=sum(one.count for one in meters.handled.values()),
            event_ms=round(sum(one.sum_ms for one in meters.handled.values()), 3),
        )

    async def _states_of(self, cluster: Cluster) -> Counter[Status]:
        """Counted so many partitions in a turn."""
        async with self._counting:
            if time.perf_counter() < self._count_again_at:
                return self._counted
            counted: Counter[Status] = Counter()
            started, left = time.perf_counter(), 0
            for name in list(cluster.topics):
                topic = cluster.topics.get(name)  # gone meanwhile
                for number, one in () if topic is None else list(topic.partitions.items()):
                    if left <= 0:
                        await self._turns.next()
                        left = self._turns.limits.partitions_per_turn
                    if name in cluster.topics:
                        counted.update(statuses_of(cluster, name, number, one))
                    left -= 1
            cost_s = time.perf_counter() - started
            self._counted, self._count_again_at = counted, time.perf_counter() + PAUSE_PER_COST * cost_s
            return counted
