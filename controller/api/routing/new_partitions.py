"""Partitions that were never led, beside those that are in this broker's metadata.

A NewPartition is not sent to any broker: there is no leader to obey, as in Kafka. So the active controller is asked,
which believes them; in its own process they are read from belief. Without its answer the last answer is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from typing import Final
from urllib.parse import urlencode

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.bodies import PartitionBody
from controller.api.counts import PartitionState, row_never_led
from controller.api.ports import ClusterView, ControllerHandle, TopicView
from controller.api.problems import ProblemError
from controller.api.reader_turns import SharedAnswers
from controller.api.routing.active import METRICS, TOLD, ActiveController
from controller.base.bell import Bell
from controller.core.belief.cluster import Cluster
from controller.core.bitset import Bitset
from controller.core.model import Partition
from controller.core.states import PartitionStatus
from controller.wire import bodies
from controller.wire.bodies import BrokerEntry, PartitionRow
from controller.wire.client import ExchangeError

PATH: Final = "/v1/partitions"
#: a reader waits no longer for a controller that does not answer
PATIENCE_MS: Final = 1_000
PAGE_LIMIT: Final = 10_000
_STANDBY: Final = "standby"


class PartitionsAnswer(msgspec.Struct, frozen=True):
    """A page of partitions, as the active controller answers."""

    items: Sequence[PartitionBody]
    next_cursor: str | None


class CompleteView:
    """A `ClusterView`: the metadata of this broker, and partitions that were never led."""

    def __init__(self, told: ClusterView, handle: ControllerHandle) -> None:
        self._told = told
        self._handle = handle
        #: topic -> partition -> row
        self._heard: Mapping[str, Mapping[int, PartitionRow]] = {}
        self._times_heard = 0
        #: the new partitions at the last question, and how often they had changed
        self._last_seen: object = None
        self._changes = 0

    def hear(self, partitions: Iterable[PartitionBody]) -> None:
        """Take the active controller's word for which partitions were never led."""
        by_topic = groupby(sorted(partitions, key=lambda one: (one.topic, one.partition)), lambda one: one.topic)
        heard = {topic: {one.partition: _row_in(one) for one in some} for topic, some in by_topic}
        if heard != self._heard:
            self._heard = heard
            self._times_heard += 1

    @property
    def cluster_id(self) -> str:
        return self._told.cluster_id

    @property
    def own_broker_id(self) -> int:
        return self._told.own_broker_id

    @property
    def controller_id(self) -> int:
        return self._told.controller_id

    @property
    def controller_epoch(self) -> int:
        return self._told.controller_epoch

    @property
    def changes(self) -> Bell:
        return self._told.changes

    @property
    def is_told(self) -> bool:
        return self._told.is_told

    @property
    def is_led_by_kafka(self) -> bool:
        return self._told.is_led_by_kafka

    @property
    def brokers(self) -> Sequence[BrokerEntry]:
        return self._told.brokers

    @property
    def metadata_version(self) -> int:
        cluster = self._handle.cluster
        seen: object = None
        if cluster is None:
            seen = self._times_heard
        elif _believed(cluster):
            seen = cluster.controller_epoch, cluster.revision
        if seen != self._last_seen:
            self._last_seen = seen
            self._changes += 1
        return self._told.metadata_version + self._changes

    @property
    def topics_with_new(self) -> Sequence[str]:
        cluster = self._handle.cluster
        return sorted(self._heard if cluster is None else _believed(cluster))

    @property
    def topic_names(self) -> Sequence[str]:
        told, new = self._told.topic_names, self.topics_with_new
        if not new:
            return told
        return [name for name, _ in groupby(merge(told, new))]

    def topic(self, name: str) -> TopicView | None:
        told, new = self._told.topic(name), self._new_of(name)
        if told is None:
            return TopicView(name, self._id_of(name), list(new.values())) if new else None
        if not new:
            return told
        rows = {
            **new,
            **{row.partition: row for row in told.partitions},
        }  # a partition in the metadata is led
        return TopicView(name, told.topic_id, [rows[number] for number in sorted(rows)])

    def topics(self) -> Iterator[TopicView]:
        for name in self.topic_names:
            view = self.topic(name)
            if view is not None:
                yield view

    def _new_of(self, name: str) -> Mapping[int, PartitionRow]:
        cluster = self._handle.cluster
        if cluster is None:
            return self._heard.get(name, {})
        bits = _believed(cluster).get(name, 0)
        return {one: row_never_led(one, cluster.topics[name].partitions[one]) for one in Bitset(bits=bits)}

    def _id_of(self, name: str) -> str:
        """Returns the id of a topic that is not in the metadata. A standby does not know it."""
        topic = None if self._handle.cluster is None else self._handle.cluster.topics.get(name)
        return "" if topic is None else topic.topic_id or ""


def _believed(cluster: Cluster) -> Mapping[str, int]:
    """Topic -> bits of the partitions that were never led."""
    return cluster.states.partitions.get(PartitionStatus.NEW, {})


def _row_in(body: PartitionBody) -> PartitionRow:
    return row_never_led(body.partition, Partition(body.replicas, body.adding, body.removing))


class NewPartitions:
    """Asks the active controller before a standby answers: with the caller's right, once for all callers meanwhile."""

    def __init__(self, view: CompleteView, handle: ControllerHandle, active: ActiveController) -> None:
        self._view = view
        self._handle = handle
        self._active = active
        self._asked: SharedAnswers[None] = SharedAnswers(kept_s=0)

    def close(self) -> None:
        self._asked.close()

    def middleware(self) -> Middleware:
        @web.middleware
        async def learn(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            is_shown = resource is not None and (resource.canonical in TOLD or resource.canonical == METRICS)
            # a process that passes a request on took this one for the controller
            if is_shown and self._handle.phase == _STANDBY and request.headers.get(bodies.FORWARD) != "0":
                await self._asked.ask(PATH, lambda: self._handle.seat, lambda: self._learn(request))
            return await handler(request)

        return learn

    async def _learn(self, request: web.Request) -> None:
        found: list[PartitionBody] = []
        query = {"state": PartitionState.NEW.value, "limit": str(PAGE_LIMIT)}
        client = self._active.client()
        try:
            while True:
                url, headers = self._active.passing_to(request, f"{PATH}?{urlencode(query)}")
                status, answer = await client.get(url, headers, PATIENCE_MS)
                if status != 200:
                    return
                page = bodies.decode(answer, PartitionsAnswer)
                found += page.items
                if page.next_cursor is None:
                    break
                query["cursor"] = page.next_cursor
        except (ProblemError, ExchangeError, msgspec.DecodeError):
            return  # the last answer is shown, as is the last metadata
        finally:
            await client.close()
        self._view.hear(found)
