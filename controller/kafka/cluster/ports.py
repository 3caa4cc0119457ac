"""The cluster as the controller of this process believes it, for the API: it is told nothing by anybody.

A standby believes nothing. While one of Kafka's own brokers decides it shows what ZooKeeper says (`ForeignCluster`).
A topic whose deletion began is not shown, as brokers are told that it is gone: it is among the deletions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from controller.api.counts import row_never_led
from controller.api.ports import ControllerHandle, TopicView
from controller.base.bell import Bell
from controller.core.belief.cluster import Cluster
from controller.core.model import Broker, Partition
from controller.core.project.requests import known_brokers
from controller.core.states import PartitionStatus
from controller.kafka.cluster.foreign_cluster import ForeignCluster
from controller.tell.dialects.http import row_for
from controller.wire.bodies import BrokerEntry, PartitionRow


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
    def _strangers(self) -> Mapping[int, Broker]:
        sight = self._foreign_cluster.sight
        if sight is not None:
            return sight.strangers
        return {} if self._handle.term is None else self._handle.term.strangers

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
        """Whatever changes writes a line, or is seen at another look."""
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
        return True  # nobody has to

    @property
    def brokers(self) -> Sequence[BrokerEntry]:
        cluster = self._cluster
        if cluster is None:
            return ()
        known = [
            BrokerEntry(one.broker.broker_id, one.broker.epoch, one.state, one.broker.rack, one.broker.endpoints)
            for one in known_brokers(cluster)
        ]
        strangers = [
            BrokerEntry(one.broker_id, one.epoch, "left out", one.rack, one.endpoints)
            for one in self._strangers.values()
        ]
        ids = {one.id for one in strangers}
        return sorted([*strangers, *(one for one in known if one.id not in ids)], key=lambda one: one.id)

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
