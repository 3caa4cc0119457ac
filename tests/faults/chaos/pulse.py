"""Measures whether the event loops of processes stood still (L12), or events waited long in their inboxes (L11), by the
processes' own meters, and records other explanations, also for a seat that is lost: how long brokers and ZooKeeper's
servers wait for a processor.

A process is late because of its own work, because a fault held it, or because other processes had the processors. The
kernel reports the last of these for each process, and this process's own lateness shows it too. The module inflicts
nothing and judges nothing.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from controller.wire.client import ExchangeError
from tests.faults.chaos.target_cluster import Field, elapse, is_stopped
from tests.faults.checker.history import Lag, LateWhat, Starved
from tests.integration.cluster import Broker, now_ms

LOOK_EVERY_S: Final = 3.0
BLINK_S: Final = 0.1
#: how often it is asked who waits for a processor, and the shortest wait that is recorded
BLINKS_PER_COUNT: Final = 5
WAITED_MS_MIN: Final = 20
TIMEOUT_MS: Final = 2_000
_MEASURES: Final[dict[LateWhat, bytes]] = {"loop": b"klamm_event_loop_lag_seconds", "inbox": b"klamm_turn_wait_seconds"}
_BUCKET: Final = rb'^%b_bucket\{le="(1\.0|\+Inf)"\} (\S+)$'


class _Seen(NamedTuple):
    """A process as it was when it last answered."""

    pid: int
    at_ms: int
    late_counts: dict[LateWhat, int]
    waited_ms: int
    #: how late we have been ourselves, in all
    own_late_ms: float
    was_held: bool


class Pulse:
    """Looks at every process now and then."""

    def __init__(self, field: Field) -> None:
        self.lags: list[Lag] = []
        self.starved: list[Starved] = []
        #: how many answers these are drawn from
        self.looks = 0
        self._field = field
        self._seen: dict[int, _Seen] = {}
        self._held_pids: set[int] = set()
        self._own_late_ms = 0.0
        #: when it was counted last, and by process and thread how long it had waited by then
        self._counted_ms = now_ms()
        self._waits: dict[int, dict[str, int]] = {}

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            async with asyncio.TaskGroup() as group:
                for broker in self._field.cluster.running:
                    group.create_task(self._look_at(broker))
            for number in range(round(LOOK_EVERY_S / BLINK_S)):
                await self._blink()
                if number % BLINKS_PER_COUNT == 0:
                    self._count_waits()

    async def _blink(self) -> None:
        """Record the processes that are stopped, and how late this process itself is."""
        due = time.monotonic() + BLINK_S
        await elapse(BLINK_S)
        self._own_late_ms += (time.monotonic() - due) * 1_000
        pids = [broker.row.pid for broker in self._field.cluster.brokers.values()]
        self._held_pids |= {pid for pid in pids if pid is not None and is_stopped(pid)}

    def _count_waits(self) -> None:
        """Record who waited for a processor since the last count: of a broker the thread of its event loop, of a server
        of ZooKeeper whichever of its threads waited longest."""
        since_ms, self._counted_ms = self._counted_ms, now_ms()
        brokers = {one.row.pid: one.broker_id for one in self._field.cluster.running}
        before, self._waits = self._waits, {}
        for pid in (*brokers, *(server.pid for server in self._field.servers)):
            if pid is None:
                continue
            waits = self._waits[pid] = waits_of(pid, whole=pid not in brokers)
            known = before.get(pid, {})
            longest = max((waited - known.get(thread, 0) for thread, waited in waits.items()), default=0)
            if longest >= WAITED_MS_MIN:
                self.starved.append(Starved(since_ms, self._counted_ms, longest, brokers.get(pid)))

    async def _look_at(self, broker: Broker) -> None:
        pid = broker.row.pid
        was_held = pid in self._held_pids
        asked_ms, late_counts = now_ms(), await self._late_counts_of(broker)
        if pid is None or late_counts is None or pid != broker.row.pid:
            return
        self.looks += 1
        self._held_pids.discard(pid)
        before = self._seen.get(broker.broker_id)
        if before is None or before.pid != pid:
            since_ms = 0 if before is None else before.at_ms
            before = _Seen(pid, since_ms, dict.fromkeys(late_counts, 0), 0, self._own_late_ms, was_held)
        waited_ms = waited_ms_of(pid)
        now = self._seen[broker.broker_id] = _Seen(pid, asked_ms, late_counts, waited_ms, self._own_late_ms, was_held)
        is_held = was_held or before.was_held
        starved_ms = max(now.waited_ms - before.waited_ms, round(now.own_late_ms - before.own_late_ms))
        for what, count in late_counts.items():
            if late := count - before.late_counts[what]:
                self.lags.append(Lag(now_ms(), broker.broker_id, late, is_held, starved_ms, what, before.at_ms))

    async def _late_counts_of(self, broker: Broker) -> dict[LateWhat, int] | None:
        try:
            _, page = await self._field.cluster.http.get(f"{broker.url}/metrics", {}, TIMEOUT_MS)
        except (ExchangeError, TimeoutError):
            return None
        return late_in(page)


def late_in(page: bytes) -> dict[LateWhat, int] | None:
    """How often each was late by more than a second; None when the page does not say."""
    late: dict[LateWhat, int] = {}
    for what, name in _MEASURES.items():
        counts = {le: float(count) for le, count in re.findall(_BUCKET % re.escape(name), page, re.MULTILINE)}
        if len(counts) != 2:
            return None
        late[what] = round(counts[b"+Inf"] - counts[b"1.0"])
    return late


def waited_ms_of(pid: int) -> int:
    """For how long the process's first thread, that of its event loop, was ready to run and did not."""
    return waits_of(pid, whole=False).get(str(pid), 0)


def waits_of(pid: int, *, whole: bool) -> dict[str, int]:
    """For how long each thread of a process, or its first, was ready to run and did not, in milliseconds."""
    waits: dict[str, int] = {}
    tasks = Path(f"/proc/{pid}/task")
    try:
        for thread in sorted(one.name for one in tasks.iterdir()) if whole else [str(pid)]:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                waits[thread] = int((tasks / thread / "schedstat").read_text().split()[1]) // 1_000_000
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return waits
