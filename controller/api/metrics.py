"""`/metrics`: everything this process can say of itself and its cluster, in Prometheus' words.

Computed at the scrape and kept from one to the next as long as the metadata is the same. Walks over partitions give the
event loop back every few milliseconds; turning numbers into text happens in a thread. It decides nothing.

A series for each partition costs whoever stores it: over `Limits.partitions_per_exposition` these families are left
out, whole (a list cut short would make every alert on it a lie), and `klamm_partition_series_left_out` is 1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from controller.api.families import (
    Deleting,
    PartitionFamilies,
    broker_families,
    kafka_families,
    klamm_families,
)
from controller.api.listing import SLICE_MS, Summaries, topics_of
from controller.api.view import ClusterView, ControllerDoor
from controller.config import Limits
from controller.core.cluster import Cluster
from controller.core.states import ReplicaStatus
from controller.metrics import Meters

LAG_MEASURED_EVERY_MS: Final = 250


class Exposition(Collector):
    """Families that are complete: what a scrape is made of."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class Metrics:
    """The handler of `/metrics`."""

    def __init__(self, view: ClusterView, door: ControllerDoor, summaries: Summaries, limits: Limits) -> None:
        self._view = view
        self._door = door
        self._partitions_max = limits.partitions_per_exposition
        self._summaries = summaries
        self._listed: tuple[int, Sequence[Metric]] | None = None
        self._listing = asyncio.Lock()

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/metrics", self.metrics)]

    async def metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        exposition = Exposition(await self._families())
        body = await asyncio.to_thread(encode, exposition)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _families(self) -> list[Metric]:
        view, door = self._view, self._door
        summary = await self._summaries.newest()
        deleting = Deleting() if door.cluster is None or not door.is_active else await deleting_in(door.cluster)
        is_left_out = summary.counts.partitions > self._partitions_max
        families = [
            *door.meters.registry.collect(),
            *kafka_families(view, door, summary, deleting),
            *klamm_families(view, door, summary),
            GaugeMetricFamily(
                "klamm_partition_series_left_out",
                f"1: the cluster has more than {self._partitions_max} partitions, so none has series of its own",
                int(is_left_out),
            ),
        ]
        if door.is_active:
            families += broker_families(view)
            if not is_left_out:
                families += await self._each_partition()
        return families

    async def _each_partition(self) -> Sequence[Metric]:
        """Listed at most once per version of the metadata."""
        async with self._listing:
            version = self._view.metadata_version
            if self._listed is None or self._listed[0] != version:
                families = PartitionFamilies()
                async for topic in topics_of(self._view, self._view.topic_names):
                    families.add(topic)
                self._listed = version, families.all()
            return self._listed[1]


async def deleting_in(cluster: Cluster) -> Deleting:
    """Counted topic by topic; what is deleted meanwhile is not counted."""
    found = Deleting()
    pause_at = time.perf_counter() + SLICE_MS / 1_000
    for name in list(cluster.duties.deletions):
        deletion, topic = cluster.duties.deletions.get(name), cluster.topics.get(name)
        if deletion is None or topic is None:
            continue
        moved = list(deletion.replicas.values())
        found.topics += 1
        found.topics_ineligible += deletion.waits_for is not None
        found.replicas += sum(len(one.replicas) for one in topic.partitions.values())
        found.replicas -= moved.count(ReplicaStatus.DELETION_SUCCESSFUL)
        found.replicas_ineligible += moved.count(ReplicaStatus.DELETION_INELIGIBLE)
        if time.perf_counter() >= pause_at:
            await asyncio.sleep(0)
            pause_at = time.perf_counter() + SLICE_MS / 1_000
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
