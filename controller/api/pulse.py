"""`/v1/controller/pulse` and `/v1/controller/states`: what the dashboard's charts and state machines are drawn from.

The controller of this process takes a sample of itself each second and keeps those of the last quarter of an hour.
Counting partitions takes time, so what is counted is kept until the count is paid for: never more than a twentieth of
the process. Numbers that only rise are totals since the process began: whoever draws them takes differences.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
from aiohttp import web

from controller.api.active import ActiveController
from controller.api.bodies import Page, answer, query_of
from controller.api.listing import SLICE_MS, Summaries
from controller.api.view import ControllerDoor
from controller.clock import wall_ms
from controller.core.cluster import Cluster
from controller.core.moves import TABLES, Move, Status, statuses_of

SAMPLE_EVERY_MS: Final = 1_000
SAMPLES_KEPT: Final = 900
RECENT_S: Final = 10
#: what a count has cost is waited for so many times over, before the next one
PAUSE_PER_COST: Final = 20


class PulseQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after`: only samples later than this (`at_ms` of one that was had)."""

    after: int = 0


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
    #: what waits for the loop, and states owed to brokers
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


class Pulse:
    """The samples of one process, and the states of what it believes."""

    def __init__(self, door: ControllerDoor, summaries: Summaries, active: ActiveController) -> None:
        self._door = door
        self._summaries = summaries
        self._active = active
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_KEPT)
        self._totals = Totals()
        #: of the last ten seconds, the oldest first
        self._moves: deque[Counter[Move]] = deque([Counter()], maxlen=RECENT_S)
        self._counted: Counter[Status] = Counter()
        self._count_again_at = 0.0
        self._counting = asyncio.Lock()

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            self._active.route("GET", "/v1/controller/pulse", self.pulse),
            self._active.route("GET", "/v1/controller/states", self.states),
        ]

    async def sampling(self, app: web.Application) -> AsyncIterator[None]:
        """For `cleanup_ctx`: samples for as long as the application is served."""
        task = asyncio.create_task(self._sample_on(), name="pulse")
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def pulse(self, request: web.Request, raw: bytes) -> web.Response:
        query, _ = query_of(request, PulseQuery), self._active.cluster
        return answer(Page([one for one in self._samples if one.at_ms > query.after]))

    async def states(self, request: web.Request, raw: bytes) -> web.Response:
        counted = await self._states_of(self._active.cluster)
        totals, before = self._door.meters.moves, self._moves[0]
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
        return answer(Page(machines))

    async def _sample_on(self) -> None:
        while True:
            pause_ms = float(SAMPLE_EVERY_MS)
            if self._door.is_active:
                started = time.perf_counter()
                await self.take_sample(wall_ms())
                pause_ms = max(pause_ms, PAUSE_PER_COST * 1_000 * (time.perf_counter() - started))
            self._totals = self._totals_now()  # also on a standby: a term's first sample is compared with these
            self._moves.append(Counter(self._door.meters.moves))
            await asyncio.sleep(pause_ms / 1_000)

    async def take_sample(self, at_ms: int) -> None:
        """Partitions are counted only when the metadata has changed."""
        counts, epoch = (await self._summaries.newest()).counts, self._door.controller_epoch or 0
        sample = Sample(
            at_ms=at_ms,
            controller_epoch=epoch,
            offline=counts.offline,
            under_replicated=counts.under_replicated,
            queue_length=self._door.inbox_depth,
            outbox_depth=sum(status.depth for status in self._door.outboxes().values()),
            **msgspec.structs.asdict(self._totals_now()),
        )
        if not self._samples or self._samples[-1].controller_epoch != epoch:
            before = msgspec.structs.asdict(self._totals)
            self._samples.append(msgspec.structs.replace(sample, at_ms=at_ms - SAMPLE_EVERY_MS, **before))
        self._samples.append(sample)

    def _totals_now(self) -> Totals:
        meters = self._door.meters
        return Totals(
            leader_elections=meters.total(meters.leader_elections),
            isr_changes=meters.total(meters.isr_shrinks) + meters.total(meters.isr_expands),
            transactions=meters.total(meters.transactions),
            events=sum(one.count for one in meters.handled.values()),
            event_ms=round(sum(one.sum_ms for one in meters.handled.values()), 3),
        )

    async def _states_of(self, cluster: Cluster) -> Counter[Status]:
        """Counted topic by topic, giving the loop back every few milliseconds."""
        async with self._counting:
            if time.perf_counter() < self._count_again_at:
                return self._counted
            counted: Counter[Status] = Counter()
            started = pause_at = time.perf_counter()
            for name in list(cluster.topics):
                topic = cluster.topics.get(name)  # gone meanwhile
                for number, one in () if topic is None else topic.partitions.items():
                    counted.update(statuses_of(cluster, name, number, one))
                if time.perf_counter() >= pause_at + SLICE_MS / 1_000:
                    await asyncio.sleep(0)
                    pause_at = time.perf_counter()
            cost_s = time.perf_counter() - started
            self._counted, self._count_again_at = counted, time.perf_counter() + PAUSE_PER_COST * cost_s
            return counted
