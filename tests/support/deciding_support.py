"""A controller in memory that really decides: the core on a model ZooKeeper, behind the real API, told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
from click.testing import CliRunner, Result

from controller.api.ports import Reply, TopicView
from controller.cli.group import klamm
from controller.core.belief.cluster import Cluster
from controller.core.decide.reassignment import due_after
from controller.core.events import Event, StopReplicaAnswered
from controller.core.model import Leadership
from controller.loop.replies import reply_for
from controller.wire.bodies import BrokerEntry, PartitionRow
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    asking,
    reserved,
    served_in_thread,
)
from tests.builders import Settled, settle, zookeeper_of


class DecidingHandle(FakeHandle):
    """Active, with a belief; it decides requests, and the work that becomes due by them, too."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(self.decide)
        self.believed = self.cluster = cluster
        self.controller_epoch = cluster.controller_epoch
        self.zookeeper = zookeeper_of(cluster)
        #: whether brokers delete replicas at once
        self.has_deleting_brokers = False

    def decide(self, event: Event) -> Reply:
        settled = self._settle(event)
        return reply_for(self.believed, event, settled.committed)

    def _settle(self, event: Event) -> Settled:
        settled = settle(self.believed, event, self.zookeeper)
        assert not settled.conflicts
        if (due := due_after(self.believed, settled.committed)) is not None:
            self._settle(due)
        if self.has_deleting_brokers:
            for answer in _answers(self.believed, settled):
                self._settle(answer)
        return settled


def _answers(cluster: Cluster, settled: Settled) -> Iterator[StopReplicaAnswered]:
    for telling in settled.tellings:
        for broker_id, stops in telling.stops.items():
            deleted = frozenset(
                (topic_id, number)
                for (_, topic_id), rows in stops.items()
                for number, stop in rows.items()
                if stop.delete
            )
            yield StopReplicaAnswered(broker_id, cluster.brokers[broker_id].epoch, deleted)


class BelievedView(View):
    """The view of a broker that was told all of the belief."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.controller_epoch = cluster.controller_epoch
        self.brokers: Sequence[BrokerEntry] = [a_broker(one) for one in sorted(cluster.live_ids)]

    @property
    def topic_names(self) -> Sequence[str]:
        return sorted(name for name in self._cluster.topics if not self._cluster.duties.is_leaving(name))

    @property
    def topics_with_new(self) -> Sequence[str]:
        return self.topic_names

    def topic(self, name: str) -> TopicView | None:
        return self._told(name) if name in self.topic_names else None

    def topics(self) -> Iterator[TopicView]:
        return iter([self._told(name) for name in self.topic_names])

    def _told(self, name: str) -> TopicView:
        topic = self._cluster.topics[name]
        rows = []
        for number, one in topic.partitions.items():
            state = one.state or Leadership(-1, -1, (), -1)
            row = PartitionRow(
                partition=number,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                version=one.version,
                replicas=one.replicas,
                adding=one.adding,
                removing=one.removing,
                offline=(),
                is_new=False,
                recovery=state.recovery,
            )
            rows.append(row)
        return TopicView(name, topic.topic_id or "", rows)


async def exchange(
    cluster: Cluster, method: str, path: str, body: object = None, *, handle: FakeHandle | None = None
) -> tuple[int, Any]:
    """One request to a process that is the active controller: the answer's status and body."""
    data = None if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    headers = {"Content-Type": "application/json"}
    used = DecidingHandle(cluster) if handle is None else handle
    async with (
        asking(BelievedView(cluster), used) as client,
        client.request(method, path, data=data, headers=headers) as response,
    ):
        return response.status, msgspec.json.decode(await response.read())


def run(*words: str, **env: str) -> Result:
    """The command, as called in a narrow terminal."""
    return CliRunner().invoke(klamm, words, env={"COLUMNS": "80", **env}, prog_name="klamm")


@contextmanager
def a_cluster_to_command(
    cluster: Cluster, handle: FakeHandle | None = None
) -> Iterator[tuple[Callable[..., Result], FakeHandle]]:
    """Yields how to call the command for this cluster, and its controller."""
    used = DecidingHandle(cluster) if handle is None else handle
    with served_in_thread((BelievedView(cluster), used, reserved())) as (url,):
        yield partial(run, KLAMM_URL=url), used
