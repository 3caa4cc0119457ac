"""The data of the dashboard's charts and state machines, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import aiohttp

from controller.api.listing import Summaries
from controller.api.reader_turns import ReaderTurns
from controller.api.stream.pulse import Pulse
from controller.core.events import CreateTopicAsked
from controller.core.states import PARTITION_MOVES, REPLICA_MOVES, PartitionStatus
from controller.statelog.journal import RecentLines
from controller.statelog.metrics import KEPT, Meters, Timings
from controller.tell.outbox import OutboxStatus
from controller.term.term import TermRecord
from tests.api.api_support import (
    FakeHandle,
    View,
    a_row,
    a_topic,
    asking,
)
from tests.builders import a_cluster
from tests.loop.admin_site import a_site, belief, leading
from tests.support.deciding_support import BelievedView, DecidingHandle
from tests.support.harness import until
from tests.waiting import DEADLINE_S


async def beats_of(client: aiohttp.ClientSession) -> AsyncGenerator[dict[str, Any]]:
    """Yields the pulses between the lines of the stream, one by one, until the term is over."""
    async with client.get("/v1/events?pulse=true") as response:
        assert response.status == 200
        kind = ""
        async for raw in response.content:
            name, _, value = raw.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data" and kind == "pulse":
                yield json.loads(value)


async def a_beat(handle: FakeHandle, view: View) -> dict[str, Any]:
    async with asking(view, handle) as client, aclosing(beats_of(client)) as beats:
        return await asyncio.wait_for(anext(beats), DEADLINE_S)


async def test_a_beat_is_of_the_term_that_there_is_though_no_sample_was_taken_in_it_yet() -> None:
    handle, view = FakeHandle(), View()
    handle.cluster = a_cluster(live=(1,))
    pulse = Pulse(view, handle, Summaries(view, ReaderTurns()), ReaderTurns())
    epochs = []
    for handle.controller_epoch in (4, 6):
        beat = await pulse.beat_after(0)
        assert beat is not None
        epochs.append(json.loads(beat[1])["controller"]["controller_epoch"])
    assert epochs == [4, 6]


async def test_the_controller_takes_samples_and_tells_those_that_are_new() -> None:
    handle = FakeHandle()
    handle.cluster = a_cluster(orders=[[1, 2]])
    handle.inbox_depth = 5
    handle.owed = {1: OutboxStatus(101, 3, 40, None), 2: OutboxStatus(102, 4, 40, None)}
    handle.meters.leader_elections.inc(7)
    handle.meters.isr_shrinks.inc(2)
    handle.meters.isr_expands.inc()
    handle.meters.handled[2].add(12.5)
    view = View(a_topic("orders", a_row(0, -1, [3], [3, 1]), a_row(1, 1, [1], [2, 1])))
    handle.recent_lines, handle.terms = RecentLines(4), [TermRecord(4, 1, 1_000, None, None, {"claimed": 2.5})]
    async with asking(view, handle) as client, aclosing(beats_of(client)) as beats, asyncio.timeout(DEADLINE_S):
        beat = await anext(beats)
        assert beat["controller"] == {
            "broker_id": 1, "controller_epoch": 4, "since": "2023-11-14T22:13:20.123Z", "age_ms": 90_061_000,
            "phase": "active", "kind": "klamm",
        }  # fmt: skip
        assert [(term["controller_epoch"], term["phases"]) for term in beat["terms"]] == [(4, {"claimed": 2.5})]
        before, sample = beat["samples"]  # a term's first is compared with the process's counters before it
        assert (before["leader_elections"], before["event_ms"]) == (0, 0.0)
        assert sample["at_ms"] - before["at_ms"] == 1_000
        assert {key: sample[key] for key in sample if key != "at_ms"} == {
            "controller_epoch": 4,
            "offline": 1,
            "under_replicated": 1,
            "queue_length": 5,
            "outbox_depth": 7,
            "leader_elections": 7,
            "isr_changes": 3,
            "transactions": 0,
            "events": 1,
            "event_ms": 12.5,
        }
        while not (second := await anext(beats))["samples"]:
            pass
        assert [one["at_ms"] > sample["at_ms"] for one in second["samples"]] == [True]
        assert second["terms"] is None  # unchanged
        handle.terms = [TermRecord(4, 1, 1_000, None, None, {"claimed": 2.5, "acknowledged": 40.0})]
        while (third := await anext(beats))["terms"] is None:
            pass
        assert third["terms"][0]["phases"]["acknowledged"] == 40.0


async def test_both_machines_are_told_with_every_state_and_every_legal_move() -> None:
    cluster = a_cluster(orders=[[1, 2], [4]], live=(1, 2, 3))
    handle = DecidingHandle(cluster)
    handle.recent_lines = RecentLines(cluster.controller_epoch)
    partitions, replicas = (await a_beat(handle, BelievedView(cluster)))["machines"]
    counts = {one["state"]: one["count"] for one in partitions["states"] + replicas["states"]}
    assert {state: count for state, count in counts.items() if count} == {
        "OnlinePartition": 1,
        "OfflinePartition": 1,
        "OnlineReplica": 2,
        "OfflineReplica": 1,
    }
    for machine, table in ((partitions, PARTITION_MOVES), (replicas, REPLICA_MOVES)):
        assert {(one["source"], one["target"]) for one in machine["moves"]} == {
            (source.value, target.value) for source, target in table
        }


async def test_moves_and_times_are_counted_by_a_controller_that_decides() -> None:
    site, meters = await a_site(), Meters()
    async with leading(site, meters=meters) as node:
        await node.ask(CreateTopicAsked("orders", partitions=2, replication_factor=2))
        await until(lambda: belief(node).topics["orders"].partitions[1].state is not None)
        await until(lambda: meters.controller_state == 0)
    made = {(source.value, target.value): count for (source, target), count in meters.moves.items()}
    assert made["NonExistentPartition", "NewPartition"] == made["NewPartition", "OnlinePartition"] == 2
    assert made["NewReplica", "OnlineReplica"] == 4
    assert meters.handled[1].count >= 1  # the term's start
    assert meters.handled[3].count >= 1  # the creation
    assert meters.queued.count >= 1


def test_quantiles_are_of_the_newest_and_the_count_of_all() -> None:
    timings = Timings()
    assert set(timings.quantiles().values()) == {0.0}
    for took_ms in [1_000_000.0] * 10 + [float(number) for number in range(KEPT)]:
        timings.add(took_ms)
    assert (timings.count, timings.quantiles()[0.5], timings.quantiles()[0.999]) == (KEPT + 10, KEPT // 2, KEPT - 2)


async def test_moves_of_the_last_seconds_are_told_beside_the_total() -> None:
    handle = DecidingHandle(a_cluster(orders=[[1, 2]]))
    handle.recent_lines = RecentLines(handle.believed.controller_epoch)
    handle.meters.moves[PartitionStatus.ONLINE, PartitionStatus.OFFLINE] += 3
    partitions, _ = (await a_beat(handle, BelievedView(handle.believed)))["machines"]
    [moved] = [one for one in partitions["moves"] if one["total"]]
    assert moved == {"source": "OnlinePartition", "target": "OfflinePartition", "total": 3, "recent": 3}
