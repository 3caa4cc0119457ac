"""`/metrics`: everything that this process can say of itself and its cluster, in Prometheus' format.

Names and meanings are Kafka's (as jmx_exporter spells them) and kafka_exporter's, then ours, so that existing
dashboards work unchanged. What the controller measures is 0 on a standby, as in Kafka. Only the active controller
exposes kafka_exporter's family, so that a sum over all brokers counts nothing twice.

The families are computed at each scrape from what this process was told and believes, and read only what costs no walk
over partitions. The exposition is made once for all who scrape at the same time, in turns of the event loop and in no
thread (one would take the interpreter from the loop); its lines about partitions are kept as long as the metadata is
the same. The module decides nothing.

A series for each partition is expensive for the database that stores it: over `Limits.partitions_per_exposition` these
families are left out, whole (a list cut short would make every alert on it a lie), and
`klamm_partition_series_left_out` is 1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from controller.api.bodies import controller_body
from controller.api.counts import GONE, Summary, is_never_led, is_preferred, is_under_replicated
from controller.api.listing import Piece, Summaries, pieces_of
from controller.api.ports import ClusterView, ControllerHandle
from controller.api.reader_turns import Answers, ReaderTurns, SharedAnswers
from controller.base.config import Limits
from controller.core.belief.cluster import Cluster
from controller.core.states import ReplicaStatus
from controller.statelog.metrics import TIMERS, Meters, Timings
from controller.wire.bodies import address_of

Labels = tuple[tuple[str, str], ...]

#: kafka_exporter's, by name: one for each topic, the others for each partition
PARTITION_GAUGES: Final[Mapping[str, str]] = {
    "kafka_topic_partitions": "Partitions of a topic",
    "kafka_topic_partition_leader": "Who leads; -1: nobody",
    "kafka_topic_partition_leader_is_preferred": "1: led by its first replica",
    "kafka_topic_partition_replicas": "Replicas",
    "kafka_topic_partition_in_sync_replica": "Replicas in sync",
    "kafka_topic_partition_under_replicated_partition": "1: fewer are in sync than assigned",
}
_OF_EACH: Final = tuple(PARTITION_GAUGES)[1:]

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_CHANNELS: Final = "kafka_controller_controllerchannelmanager_"
_REPLICAS: Final = "kafka_server_replicamanager_"


class DeletionCounts(msgspec.Struct):
    """Deletions in numbers; ineligible is what waits for something else first."""

    topics: int = 0
    topics_ineligible: int = 0
    replicas: int = 0
    replicas_ineligible: int = 0


class MinIsrCounts(msgspec.Struct):
    """Partitions that are led, with fewer in sync than min.insync.replicas, and with just as many."""

    under: int = 0
    at: int = 0


def kafka_families(
    view: ClusterView, handle: ControllerHandle, summary: Summary, deleting: DeletionCounts, min_isr: MinIsrCounts
) -> Iterator[Metric]:
    """The metrics that Kafka's controller and broker expose."""
    active = handle.cluster if handle.is_active else None
    told = summary.counts
    numbers: Mapping[str, tuple[int, str]] = {
        "activecontrollercount": (1, "1 on the active controller"),
        "offlinepartitionscount": (told.offline, "Partitions without a live leader"),
        "preferredreplicaimbalancecount": (summary.imbalanced, "Partitions not led by their first replica"),
        "controllerstate": (handle.meters.controller_state, "Kafka's number of what is being handled; 0 is idle"),
        "globaltopiccount": (summary.topics, "Topics"),
        "globalpartitioncount": (told.partitions, "Partitions"),
        "topicstodeletecount": (deleting.topics, "Topics being deleted"),
        "topicsineligibletodeletecount": (deleting.topics_ineligible, "Deletions that wait for something"),
        "replicastodeletecount": (deleting.replicas, "Replicas of topics being deleted that are not deleted yet"),
        "replicasineligibletodeletecount": (deleting.replicas_ineligible, "Replicas that cannot be deleted now"),
        "activebrokercount": (0 if active is None else len(active.brokers), "Brokers that are registered"),
        "fencedbrokercount": (0 if active is None else len(active.gone), "Brokers known that are gone"),
    }
    for name, (value, text) in numbers.items():
        yield _gauge(_CONTROLLER + name, text, 0 if active is None else value)
    holder_id = controller_body(view, handle).broker_id
    yield _gauge("kafka_server_metadataloader_currentcontrollerid", "Who holds the seat; -1: nobody", holder_id)
    depth = 0 if handle.term is None else handle.term.inbox_depth
    yield _gauge("kafka_controller_controllereventmanager_eventqueuesize", "What waits for the loop", depth)
    own_id = view.own_broker_id
    yield _gauge(_REPLICAS + "leadercount", "Partitions led by this broker", summary.leaders[own_id])
    yield _gauge(_REPLICAS + "partitioncount", "Replicas on this broker", summary.replicas[own_id])
    yield _gauge(
        _REPLICAS + "underreplicatedpartitions", "Under-replicated, led by this broker", summary.lagging[own_id]
    )
    text = "Led, with fewer in sync than min.insync.replicas"
    yield _gauge(_REPLICAS + "underminisrpartitioncount", text, min_isr.under)
    yield _gauge(_REPLICAS + "atminisrpartitioncount", "Led, with just min.insync.replicas in sync", min_isr.at)
    yield from _timer_families(handle.meters)
    yield from _outbox_families(handle)


def _timer_families(meters: Meters) -> Iterator[Metric]:
    for number, what in TIMERS.items():
        name = f"kafka_controller_controllerstats_{what}rateandtimems"
        yield timing_family(name, "Handling such events, in milliseconds", {(): meters.handled[number]})
    queued = "kafka_controller_controllereventmanager_eventqueuetimems"
    yield timing_family(queued, "How long the oldest of each turn had waited for it", {(): meters.queued})
    latency = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
    yield timing_family(latency, "From a request to ZooKeeper's answer", {(): meters.zookeeper_answers})
    moves = CounterMetricFamily(
        "klamm_state_moves", "Moves of partitions and replicas in the two state machines", labels=["source", "target"]
    )
    for (source, target), count in sorted(meters.moves.items(), key=lambda one: [side.value for side in one[0]]):
        moves.add_metric([source.value, target.value], count)
    yield moves


def timing_family(name: str, text: str, timings: Mapping[Labels, Timings]) -> Metric:
    """As jmx_exporter's usual rules make it of Kafka's timers: quantiles of late, and how many there were at all."""
    family = Metric(name, text, "summary")
    for labels, one in timings.items():
        for quantile, value in one.quantiles().items():
            family.add_sample(name, {**dict(labels), "quantile": f"{quantile:g}"}, value)
        family.add_sample(f"{name}_count", dict(labels), one.count)
    return family


def _outbox_families(handle: ControllerHandle) -> Iterator[Metric]:
    size = GaugeMetricFamily(_CHANNELS + "queuesize", "States that wait for a broker", labels=["broker_id"])
    age = GaugeMetricFamily(
        "klamm_outbox_age_seconds",
        "For how long the first of the states that wait for a broker has waited",
        labels=["broker_id"],
    )
    statuses = {} if handle.term is None else handle.term.outbox_status()
    for broker_id, status in sorted(statuses.items()):
        size.add_metric([str(broker_id)], status.depth)
        age.add_metric([str(broker_id)], status.age_ms / 1_000)
    total = sum(status.depth for status in statuses.values())
    yield _gauge(_CHANNELS + "totalqueuesize", "States that wait for brokers", total)
    yield from (size, age)
    waits: Mapping[Labels, Timings] = {
        (("broker_id", str(broker_id)),): status.waits for broker_id, status in sorted(statuses.items())
    }
    yield timing_family(_CHANNELS + "requestrateandqueuetimems", "Until a request to a broker left", waits)


def klamm_families(view: ClusterView, handle: ControllerHandle, summary: Summary) -> Iterator[Metric]:
    """The metrics that only Klamm exposes."""
    cluster = handle.cluster if handle.is_active else None
    believed = {} if cluster is None else _believed(cluster)
    term = handle.term
    depth = 0 if term is None else term.inbox_depth
    told = summary.counts
    health = {
        "klamm_controller_epoch": (view.controller_epoch, "Of the controller that told this broker last"),
        "klamm_controller_is_kafka": (
            int(view.is_led_by_kafka),
            "1 while one of Kafka's own brokers is the controller",
        ),
        "klamm_registered": (int(handle.is_registered), "1 while this process stands in the cluster"),
        "klamm_under_replicated_partitions": (told.under_replicated, "In the whole cluster, as told to this broker"),
        "klamm_new_partitions": (told.new, "Partitions that were never led: neither online nor offline"),
        "klamm_parked_subjects": (believed.get("parked", 0), "Topics and brokers left out after a bug"),
        "klamm_refused_subjects": (
            believed.get("refused", 0),
            "Topics, brokers and nodes that ZooKeeper refuses writes for",
        ),
        "klamm_unreadable_znodes": (
            believed.get("unreadable", 0) + (0 if term is None else len(term.unread)),
            "Znodes that are malformed, or may not be read",
        ),
        "klamm_topics_without_id": (believed.get("searched", 0), "Topics of whose id brokers are asked"),
        "klamm_reassigning_partitions": (believed.get("reassigning", 0), "Partitions being reassigned"),
        "klamm_draining_brokers": (believed.get("draining", 0), "Brokers being drained, or drained"),
        "klamm_inbox_depth": (
            depth,
            "Dirty paths, facts and requests that wait for the loop",
        ),
    }
    for name, (value, text) in health.items():
        yield _gauge(name, text, value)
    refused = GaugeMetricFamily(
        "klamm_refused_partitions", "Partitions of which a broker refuses what it is told", labels=["broker_id"]
    )
    for broker_id in sorted(cluster.brokers) if cluster is not None else ():
        refused.add_metric([str(broker_id)], cluster.duties.refused_by(broker_id) if cluster is not None else 0)
    yield refused
    disputed = GaugeMetricFamily(
        "klamm_disputed_topic_id",
        "1 for each topic of whose id there is a dispute: nobody is told of it",
        labels=["topic"],
    )
    for name in sorted(cluster.duties.ids.disputes) if cluster is not None else ():
        disputed.add_metric([name], 1)
    yield disputed
    yield CounterMetricFamily(
        "klamm_log_lines_lost", "Lines of the state-change log that could not be written", handle.lines_lost
    )
    phases = GaugeMetricFamily(
        "klamm_failover_phase_seconds",
        "The last failover: from seeing the seat vacant to the end of each phase",
        labels=["phase"],
    )
    terms = () if term is None else term.history()
    for phase, at_ms in (terms[-1].phases if terms else {}).items():
        phases.add_metric([phase], at_ms / 1_000)
    yield phases


def _believed(cluster: Cluster) -> dict[str, int]:
    return {
        "parked": len(cluster.parked),
        "refused": len({one.subject for one in cluster.refused.values()}),
        "unreadable": len(cluster.unreadable),
        "searched": len(cluster.duties.ids.open),
        "reassigning": len(cluster.reassigning),
        "draining": len(cluster.duties.drains),
    }


def broker_families(view: ClusterView) -> Iterator[Metric]:
    """The part of kafka_exporter's family about brokers."""
    live = [broker for broker in view.brokers if broker.state != GONE]
    yield _gauge("kafka_brokers", "Brokers that are live", len(live))
    info = GaugeMetricFamily("kafka_broker_info", "1 for each live broker", labels=["id", "address"])
    for broker in live:
        info.add_metric([str(broker.id), address_of(broker.endpoints) or ""], 1)
    yield info


class PartitionSeries:
    """Of kafka_exporter's family what concerns partitions: a series for each, filled piece by piece. These are the
    bytes of both of Prometheus' formats, which gauges have in common: made here, they cost a tenth."""

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {name: [] for name in PARTITION_GAUGES}

    def add(self, piece: Piece) -> None:
        topic = _escaped(piece.topic.topic)
        lines: dict[str, list[str]] = {name: [] for name in PARTITION_GAUGES}
        if piece.is_last:
            count = len(piece.topic.partitions)
            lines["kafka_topic_partitions"].append(f'kafka_topic_partitions{{topic="{topic}"}} {count}.0\n')
        for row in piece.rows:
            if is_never_led(row):
                continue  # as no broker of Kafka's knows of it
            values = (
                row.leader,
                int(is_preferred(row)),
                len(row.replicas),
                len(row.isr),
                int(is_under_replicated(row)),
            )
            for name, value in zip(_OF_EACH, values, strict=True):
                lines[name].append(f'{name}{{partition="{row.partition}",topic="{topic}"}} {value}.0\n')
        for name, some in lines.items():
            self._lines[name].append("".join(some).encode())

    def whole(self) -> bytes:
        pieces: list[bytes] = []
        for name, text in PARTITION_GAUGES.items():
            pieces += [f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode(), *self._lines[name]]
        return b"".join(pieces)


def _escaped(value: str) -> str:
    """As both formats write the value of a label."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value)


LAG_MEASURED_EVERY_MS: Final = 250


class Exposition(Collector):
    """A collector of complete families: the content of a scrape."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


Encode = Callable[[Collector], bytes]


class Metrics:
    """The handler of `/metrics`."""

    def __init__(
        self, view: ClusterView, handle: ControllerHandle, summaries: Summaries, answers: Answers, turns: ReaderTurns
    ) -> None:
        self._view = view
        self._handle = handle
        self._partitions_max = turns.limits.partitions_per_exposition
        self._summaries = summaries
        self._answers = answers
        self._turns = turns
        self._series: SharedAnswers[bytes] = SharedAnswers()

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/metrics", self.metrics)]

    def close(self) -> None:
        self._series.close()

    async def metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # measurements have no version: scrapes within a moment get the same ones
        make = partial(self._exposition, encode)
        return await self._answers.told(("metrics", content_type), make, content_type)

    async def _exposition(self, encode: Encode) -> bytes:
        """Families encoded as many at a time as one turn may; each series of a partition is encoded already."""
        view, handle, turns = self._view, self._handle, self._turns
        summary = await self._summaries.newest()
        deleting, min_isr = DeletionCounts(), MinIsrCounts()
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

    def _families(
        self, summary: Summary, deleting: DeletionCounts, min_isr: MinIsrCounts, is_left_out: bool
    ) -> Iterator[Metric]:
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


async def min_isr_in(cluster: Cluster, summary: Summary, turns: ReaderTurns) -> MinIsrCounts:
    """Of the whole cluster, counted by the controller: brokers are not told of configuration."""
    found = MinIsrCounts()
    await turns.next()
    for number, (topic, sizes) in enumerate(summary.isr_sizes.items(), start=1):
        wanted = cluster.duties.min_isr_of(topic)
        found.under += sum(count for size, count in sizes.items() if size < wanted)
        found.at += sizes[wanted]
        if number % turns.limits.partitions_per_turn == 0:
            await turns.next()
    return found


async def deleting_in(cluster: Cluster, turns: ReaderTurns) -> DeletionCounts:
    """Counted topic by topic. A deletion that ends meanwhile is not counted."""
    found = DeletionCounts()
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
