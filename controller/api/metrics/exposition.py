"""`/metrics`: everything this process can say of itself and its cluster, in Prometheus' words.

Made once for all who scrape at the same time, in turns of the event loop and in no thread (one would take the
interpreter from the loop); what it says of partitions is kept as long as the metadata is the same. It decides nothing.

A series for each partition costs whoever stores it: over `Limits.partitions_per_exposition` these families are left
out, whole (a list cut short would make every alert on it a lie), and `klamm_partition_series_left_out` is 1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from controller.api.counts import Summary
from controller.api.listing import Summaries, pieces_of
from controller.api.metrics.families import (
    Deleting,
    MinIsr,
    PartitionSeries,
    broker_families,
    kafka_families,
    klamm_families,
)
from controller.api.ports import ClusterView, ControllerHandle
from controller.api.shared import Answers, Shared
from controller.api.turns import Turns
from controller.base.config import Limits
from controller.core.belief.cluster import Cluster
from controller.core.states import ReplicaStatus
from controller.statelog.metrics import Meters

LAG_MEASURED_EVERY_MS: Final = 250


class Exposition(Collector):
    """Families that are complete: what a scrape is made of."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


Encode = Callable[[Collector], bytes]


class Metrics:
    """The handler of `/metrics`."""

    def __init__(
        self, view: ClusterView, handle: ControllerHandle, summaries: Summaries, answers: Answers, turns: Turns
    ) -> None:
        self._view = view
        self._handle = handle
        self._partitions_max = turns.limits.partitions_per_exposition
        self._summaries = summaries
        self._answers = answers
        self._turns = turns
        self._series: Shared[bytes] = Shared()

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/metrics", self.metrics)]

    def close(self) -> None:
        self._series.close()

    async def metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # what is measured has no version: who asks within a moment is shown the same of it
        make = partial(self._exposition, encode)
        return await self._answers.told(("metrics", content_type), make, content_type)

    async def _exposition(self, encode: Encode) -> bytes:
        """Families encoded as many at a time as one turn may; each series of a partition is encoded already."""
        view, handle, turns = self._view, self._handle, self._turns
        summary = await self._summaries.newest()
        deleting, min_isr = Deleting(), MinIsr()
        if (cluster := handle.cluster) is not None and handle.is_active:
            deleting = await deleting_in(cluster, turns)
            min_isr = await min_isr_in(cluster, summary, turns)
        is_left_out = summary.counts.partitions > self._partitions_max
        end = encode(Exposition(()))
        pieces: list[bytes] = []
        await turns.next()
        for some in _by_samples(self._families(summary, deleting, min_isr, is_left_out), turns.limits):
            pieces.append(encode(Exposition(some)).removesuffix(end))
            await turns.next()
        if handle.is_active and not is_left_out:
            pieces.append(await self._series.ask("series", lambda: view.metadata_version, self._each_partition))
        return b"".join((*pieces, end))

    def _families(self, summary: Summary, deleting: Deleting, min_isr: MinIsr, is_left_out: bool) -> Iterator[Metric]:
        view, handle = self._view, self._handle
        yield from handle.meters.registry.collect()
        yield from kafka_families(view, handle, summary, deleting, min_isr)
        yield from klamm_families(view, handle, summary)
        yield GaugeMetricFamily(
            "klamm_partition_series_left_out",
            f"1: the cluster has more than {self._partitions_max} partitions, so none has series of its own",
            int(is_left_out),
        )
        if handle.is_active:
            yield from broker_families(view)

    async def _each_partition(self) -> bytes:
        """Made at most once per version of the metadata."""
        series = PartitionSeries()
        async for piece in pieces_of(self._view, self._view.topic_names, self._turns):
            series.add(piece)
        return series.whole()


def _by_samples(families: Iterator[Metric], limits: Limits) -> Iterator[Sequence[Metric]]:
    """As many at a time as have the samples that a turn may walk; no family is cut."""
    some: list[Metric] = []
    count = 0
    for family in families:
        some.append(family)
        count += len(family.samples)
        if count >= limits.partitions_per_turn:
            yield some
            some, count = [], 0
    yield some


async def min_isr_in(cluster: Cluster, summary: Summary, turns: Turns) -> MinIsr:
    """Of the whole cluster, counted by the controller: brokers are not told of configuration."""
    found = MinIsr()
    await turns.next()
    for number, (topic, sizes) in enumerate(summary.isr_sizes.items(), start=1):
        wanted = cluster.duties.min_isr_of(topic)
        found.under += sum(count for size, count in sizes.items() if size < wanted)
        found.at += sizes[wanted]
        if number % turns.limits.partitions_per_turn == 0:
            await turns.next()
    return found


async def deleting_in(cluster: Cluster, turns: Turns) -> Deleting:
    """Counted topic by topic; what is deleted meanwhile is not counted."""
    found = Deleting()
    left = 0
    for name in list(cluster.duties.deletions):
        if left <= 0:
            await turns.next()
            left = turns.limits.partitions_per_turn
        deletion, topic = cluster.duties.deletions.get(name), cluster.topics.get(name)
        if deletion is None or topic is None:
            continue
        moved = list(deletion.replicas.values())
        found.topics += 1
        found.topics_ineligible += deletion.waits_for is not None
        found.replicas += sum(len(one.replicas) for one in topic.partitions.values())
        found.replicas -= moved.count(ReplicaStatus.DELETION_SUCCESSFUL)
        found.replicas_ineligible += moved.count(ReplicaStatus.DELETION_INELIGIBLE)
        left -= max(1, len(topic.partitions))
    return found


def lag_meter(meters: Meters) -> Callable[[web.Application], AsyncIterator[None]]:
    """For `cleanup_ctx`: measures how late the event loop is for as long as the application is served."""

    async def measure() -> None:
        while True:
            due = time.perf_counter() + LAG_MEASURED_EVERY_MS / 1_000
            await asyncio.sleep(LAG_MEASURED_EVERY_MS / 1_000)
            meters.loop_lag_seconds.observe(max(0.0, time.perf_counter() - due))

    async def measuring(app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(measure(), name="event loop lag")
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    return measuring
