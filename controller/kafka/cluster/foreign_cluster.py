"""The cluster as a dedicated controller shows it: its belief, or ZooKeeper's content while a Kafka broker has the seat.

This process receives no metadata. As the active controller it shows its belief. A standby believes nothing. While one
of Kafka's own brokers decides, it reads ZooKeeper when a caller asks, for at most a twentieth of the time. It only
reads, and arms no watch. A topic whose deletion began is not shown, because brokers are told that it is gone: it is
listed among the deletions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from controller.api.counts import row_never_led
from controller.api.ports import ControllerHandle, TopicView
from controller.base.bell import Bell
from controller.core import formats
from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause
from controller.core.changes.cluster import BrokerLive, Committed
from controller.core.model import Broker, Partition
from controller.core.project.requests import known_brokers
from controller.core.project.znodes import CONTROLLER_EPOCH, broker_path, controller_path
from controller.core.states import PartitionStatus
from controller.kafka.cluster.presence import ControllerZnode
from controller.loop.reader import Loaded, Reader
from controller.tell.dialects.http import row_for
from controller.wire import bodies
from controller.wire.bodies import BrokerEntry, PartitionRow
from controller.zookeeper.port import ZooKeeper, ZooKeeperError, granted

log = structlog.get_logger()

LOOK_EVERY_S: Final = 1.0
#: after a read, the next one waits for that many times as long as it took
REST_PER_LOOK: Final = 19


class SeatHolder(msgspec.Struct, frozen=True):
    """Of the seat as it was last seen taken. `entry`: where its API is, if it is one of ours."""

    seat: tuple[int, int]
    controller_epoch: int
    entry: BrokerEntry | None

    @property
    def is_kafka(self) -> bool:
        return self.entry is None


class ClusterSnapshot(msgspec.Struct, frozen=True):
    """The cluster at one look. `number` rises whenever something in it is different."""

    seat: tuple[int, int]
    cluster: Cluster
    foreign_brokers: dict[int, Broker]
    fingerprint: int
    number: int


class ForeignCluster:
    """A `controller.api.routing.active.Peers`. `session`: the present one, if any; `rest_for`: how long to look no more
    after a look that took so long, in seconds."""

    def __init__(
        self,
        handle: ControllerHandle,
        session: Callable[[], ZooKeeper | None],
        rest_for: Callable[[float], float] = lambda took_s: max(LOOK_EVERY_S, REST_PER_LOOK * took_s),
    ) -> None:
        self._rest_for = rest_for
        self._handle = handle
        self._session = session
        self._holder: SeatHolder | None = None
        self._sight: ClusterSnapshot | None = None
        self._looking = asyncio.Lock()
        self._look_again_at = 0.0
        self._numbers = 0

    @property
    def holder(self) -> SeatHolder | None:
        """The present holder of the seat, if it was read, and is not this process."""
        holder = self._holder
        is_ours = self._handle.controller_epoch is not None  # from the claim on
        return None if holder is None or holder.seat != self._handle.seat or is_ours else holder

    @property
    def is_led_by_kafka(self) -> bool:
        return self.holder is not None and self.holder.is_kafka

    @property
    def sight(self) -> ClusterSnapshot | None:
        """The last reading of a cluster that this holder leads."""
        sight, holder = self._sight, self.holder
        return None if sight is None or holder is None or sight.seat != holder.seat else sight

    def entries(self) -> Sequence[BrokerEntry]:
        holder = self.holder
        return () if holder is None or holder.entry is None else (holder.entry,)

    async def learn(self) -> None:
        """Reads the present holder of the seat. A holder that is neither one of ours nor a registered Kafka broker
        counts as none."""
        seat, zk = self._handle.seat, self._session()
        if seat is None or zk is None or (self._holder is not None and self._holder.seat == seat):
            return
        try:
            paths = [CONTROLLER_EPOCH, controller_path(seat[0]), broker_path(seat[0])]
            nodes = await zk.get_many(paths)
            epoch, own, registered = (granted(path, node) for path, node in zip(paths, nodes, strict=True))
            if epoch is None:
                return
            controller_epoch = formats.decode_epoch(epoch.data)
            if own is not None and own.stat.ephemeral_owner == seat[1]:
                endpoints = formats.decode(own.data, ControllerZnode).endpoints
                entry = BrokerEntry(seat[0], own.stat.czxid, "live", None, endpoints)
                self._holder = SeatHolder(seat, controller_epoch, entry)
            elif registered is not None and registered.stat.ephemeral_owner == seat[1]:
                broker = formats.decode_broker(registered.data, seat[0], registered.stat.czxid)
                if not bodies.speaks_http(broker.endpoints):
                    self._holder = SeatHolder(seat, controller_epoch, None)
        except (ZooKeeperError, formats.FormatError) as error:
            log.warning("holder.unread", broker_id=seat[0], reason=str(error))  # asked again with the next request

    async def look(self) -> None:
        """At the cluster of the Kafka broker that holds the seat, unless that was done just now."""
        async with self._looking:
            holder, zk = self.holder, self._session()
            if holder is None or not holder.is_kafka or zk is None:
                self._sight = None
                return
            begun = time.monotonic()
            if self.sight is not None and begun < self._look_again_at:
                return
            reader = Reader(zk, lambda broker: not bodies.speaks_http(broker.endpoints), watch=False)
            try:
                loaded = await reader.load()
            except ZooKeeperError as error:
                # the reading before stays, and health reports the failure
                log.warning("cluster.unread", reason=str(error))
                return
            self._sight = await self._seen(holder, loaded, reader.foreign_brokers)
            over = time.monotonic()
            self._look_again_at = over + self._rest_for(over - begun)

    async def _seen(self, holder: SeatHolder, loaded: Loaded, foreign_brokers: dict[int, Broker]) -> ClusterSnapshot:
        fingerprint, before = _fingerprint_of(loaded, foreign_brokers), self.sight
        if before is not None and before.fingerprint == fingerprint:
            return before
        cluster = Cluster(controller_id=holder.seat[0], controller_epoch=holder.controller_epoch)
        duties = loaded.duties()
        duties.drains = {}  # they are ours, and Kafka's controller keeps none of them
        for _ in cluster.loading(loaded.topics, loaded.states, duties):
            await asyncio.sleep(0)
        cluster.apply(Committed(BrokerLive(broker, "registered", Cause.FOUND)) for broker in loaded.brokers.values())
        self._numbers += 1
        return ClusterSnapshot(holder.seat, cluster, foreign_brokers, fingerprint, self._numbers)


def _fingerprint_of(loaded: Loaded, foreign_brokers: dict[int, Broker]) -> int:
    """Of all that is shown: znodes by their versions, registrations as they are."""
    return hash(
        (
            tuple((fact.name, fact.czxid, fact.version) for fact in loaded.topics),
            tuple((fact.topic, fact.partition, fact.version, fact.mtime_ms) for fact in loaded.states),
            tuple(sorted((one.broker_id, one.epoch, one.rack or "", one.endpoints) for one in loaded.brokers.values())),
            tuple(sorted(foreign_brokers)),
            tuple(sorted((broker_id, znode.broker_epoch) for broker_id, znode in loaded.admin.noted.items())),
        )
    )


class BeliefView:
    """A `controller.api.ports.ClusterView`."""

    def __init__(self, handle: ControllerHandle, foreign_cluster: ForeignCluster, cluster_id: str, own_id: int) -> None:
        self._handle = handle
        self._foreign_cluster = foreign_cluster
        self.cluster_id = cluster_id
        self.own_broker_id = own_id

    @property
    def is_led_by_kafka(self) -> bool:
        return self._foreign_cluster.is_led_by_kafka

    @property
    def _cluster(self) -> Cluster | None:
        sight = self._foreign_cluster.sight
        return self._handle.cluster if sight is None else sight.cluster

    @property
    def _foreign_brokers(self) -> Mapping[int, Broker]:
        sight = self._foreign_cluster.sight
        if sight is not None:
            return sight.foreign_brokers
        return {} if self._handle.term is None else self._handle.term.foreign_brokers

    @property
    def controller_id(self) -> int:
        if self._handle.cluster is not None:
            return self.own_broker_id
        return -1 if self._handle.seat is None else self._handle.seat[0]

    @property
    def controller_epoch(self) -> int:
        epoch, holder = self._handle.controller_epoch, self._foreign_cluster.holder
        if epoch is None and holder is not None:
            return holder.controller_epoch
        return -1 if epoch is None else epoch

    @property
    def metadata_version(self) -> int:
        """Rises with every change: a change writes a line, or appears in the next reading."""
        sight = self._foreign_cluster.sight
        if sight is not None:
            return (self.controller_epoch << 40) + sight.number
        term = self._handle.term
        if term is None or self._handle.cluster is None:  # while it loads there is nothing to count
            return -1
        recent_lines = term.recent_lines
        return (recent_lines.controller_epoch << 40) + recent_lines.number

    @property
    def changes(self) -> Bell:
        return Bell() if self._handle.term is None else self._handle.term.believed

    @property
    def is_told(self) -> bool:
        return True  # this process needs no metadata

    @property
    def brokers(self) -> Sequence[BrokerEntry]:
        cluster = self._cluster
        if cluster is None:
            return ()
        known = [
            BrokerEntry(one.broker.broker_id, one.broker.epoch, one.state, one.broker.rack, one.broker.endpoints)
            for one in known_brokers(cluster)
        ]
        foreign_brokers = [
            BrokerEntry(one.broker_id, one.epoch, "left out", one.rack, one.endpoints)
            for one in self._foreign_brokers.values()
        ]
        ids = {one.id for one in foreign_brokers}
        return sorted([*foreign_brokers, *(one for one in known if one.id not in ids)], key=lambda one: one.id)

    @property
    def topic_names(self) -> Sequence[str]:
        cluster = self._cluster
        return () if cluster is None else sorted(_shown(cluster, cluster.topics))

    @property
    def topics_with_new(self) -> Sequence[str]:
        cluster = self._cluster
        return (
            () if cluster is None else sorted(_shown(cluster, cluster.states.partitions.get(PartitionStatus.NEW, ())))
        )

    def topic(self, name: str) -> TopicView | None:
        cluster = self._cluster
        known = None if cluster is None else cluster.topics.get(name)
        if known is None or cluster is None or cluster.duties.is_leaving(name):
            return None
        rows = [_row(number, one, cluster.live_ids) for number, one in known.partitions.items()]
        return TopicView(name, known.topic_id or "", rows)

    def topics(self) -> Iterator[TopicView]:
        for name in self.topic_names:
            view = self.topic(name)
            if view is not None:
                yield view


def _shown(cluster: Cluster, names: Iterable[str]) -> Iterable[str]:
    return (name for name in names if not cluster.duties.is_leaving(name))


def _row(number: int, partition: Partition, live_ids: frozenset[int]) -> PartitionRow:
    state = partition.state
    if state is None:
        return row_never_led(number, partition)
    return row_for(
        number, partition, state, tuple(one for one in partition.replicas if one not in live_ids), is_new=False
    )
