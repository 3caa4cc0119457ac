"""The writes about topics: create, grow, delete. Parsed here, decided by the active controller.

Each is idempotent by its content: to create a topic that is there already, or to delete one that is gone, is no
mistake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from aiohttp import web

from controller.api.bodies import (
    Assignment,
    CreateTopicBody,
    Nothing,
    Page,
    PageQuery,
    TopicBody,
    answer,
    creation_for,
    decode_body,
    query_of,
    topic_body,
)
from controller.api.listing import Cursor, cursor_of
from controller.api.ports import ClusterView, NotControllerError
from controller.api.problems import refusal_for
from controller.api.routing.active import ActiveController
from controller.base.clock import wall_ms_at
from controller.base.config import BrokerConfig
from controller.core.belief.cluster import Cluster
from controller.core.changes.duties import topic_subject
from controller.core.codes import Code
from controller.core.decide.refused_writes import refused_of
from controller.core.events import DeleteTopicAsked, GrowTopicAsked
from controller.core.model import Int32
from controller.core.project.refusals import trouble_of
from controller.core.states import ReplicaStatus
from controller.loop.inbox import ChangeReply

#: how long a creation waits for this broker's metadata to have it, so that its caller can read it
TOLD_WITHIN_MS: Final = 2_000


class GrowTopicBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`count` is the new total; `assignment` names the new partitions only."""

    count: Int32
    assignment: Assignment | None = None


class DeleteQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    abandon_offline: bool = False


class DeletionBody(msgspec.Struct, frozen=True):
    """The progress of a deletion. `status` is deleting or deleted; `waits_for` says why it does not go on. `was_there`:
    False where there was no such topic when its deletion was asked for."""

    topic: str
    status: str
    abandon_offline: bool = False
    replicas: int = 0
    replicas_deleted: int = 0
    failures: int = 0
    waits_for: str | None = None
    retry_at_ms: int | None = None
    was_there: bool = True


class Writes:
    """Handlers that ask the active controller about topics."""

    def __init__(
        self, view: ClusterView, active: ActiveController, config: BrokerConfig, *, told_within_ms: int = TOLD_WITHIN_MS
    ) -> None:
        self._view = view
        self._active = active
        self._config = config
        self._told_within_ms = told_within_ms

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            self._active.route("POST", "/v1/topics", self.create_topic),
            self._active.route("DELETE", "/v1/topics/{topic}", self.delete_topic),
            self._active.route("POST", "/v1/topics/{topic}/partitions", self.grow_topic),
            self._active.route("GET", "/v1/deletions", self.deletions),
        ]

    async def create_topic(self, request: web.Request, raw: bytes) -> web.Response:
        asked = creation_for(decode_body(raw, CreateTopicBody), self._config)
        reply = await self._active.granted(asked, ChangeReply, f"/v1/topics/{asked.name}")
        wanted = (asked.partitions if asked.assignment is None else len(asked.assignment)) or 0
        factor = asked.replication_factor or max(map(len, (asked.assignment or {}).values()), default=0)
        asked_for = TopicBody(asked.name, None, wanted, factor, 0, 0, 0, 0, wanted)
        return answer(await self._described(asked_for), status=201 if reply.has_changed else 200)

    async def grow_topic(self, request: web.Request, raw: bytes) -> web.Response:
        name, body = request.match_info["topic"], decode_body(raw, GrowTopicBody)
        asked = GrowTopicAsked(name, body.count, body.assignment)
        reply = await self._active.granted(asked, ChangeReply, f"/v1/topics/{name}")
        asked_for = TopicBody(name, None, body.count, 0, 0, 0, 0, 0, body.count)
        return answer(await self._described(asked_for), status=201 if reply.has_changed else 200)

    async def delete_topic(self, request: web.Request, raw: bytes) -> web.Response:
        name, query = request.match_info["topic"], query_of(request, DeleteQuery)
        decode_body(raw or b"{}", Nothing)
        gone = Code.UNKNOWN_TOPIC_OR_PARTITION
        reply = await self._active.ask(
            DeleteTopicAsked(name, query.abandon_offline), f"/v1/topics/{name}", accept=(Code.NONE, gone)
        )
        try:
            cluster = self._active.cluster
        except NotControllerError:  # the term ended meanwhile; the marker stands, and its successor goes on
            if reply.code is gone:
                return answer(DeletionBody(name, "deleted", was_there=False))
            return answer(DeletionBody(name, "deleting", query.abandon_offline), status=202)
        if reply.code is gone and (name, None) in cluster.unreadable:
            raise refusal_for(gone, reply.detail)
        body = deletion_body(cluster, name)
        if reply.code is gone and body.status == "deleted":
            body = msgspec.structs.replace(body, was_there=False)
        return answer(body, status=202 if body.status == "deleting" else 200)

    async def deletions(self, request: web.Request, raw: bytes) -> web.Response:
        query, cluster = query_of(request, PageQuery), self._active.cluster
        after = "" if query.cursor is None else cursor_of(query.cursor).topic
        names = sorted(name for name in cluster.duties.deletions if name > after)
        page = names[: query.limit]
        next_cursor = str(Cursor(page[-1])) if len(names) > len(page) else None
        return answer(Page([deletion_body(cluster, name) for name in page], next_cursor))

    async def _described(self, asked_for: TopicBody) -> TopicBody:
        """The topic as told to this broker or, if that takes too long, as it was asked for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._told_within_ms / 1_000):
                while True:
                    topic = self._view.topic(asked_for.name)
                    if topic is not None and len(topic.partitions) >= asked_for.partitions:
                        return topic_body(topic, self._view.brokers)
                    await self._view.changes.wait()
        return asked_for


def deletion_body(cluster: Cluster, name: str) -> DeletionBody:
    deletion = cluster.duties.deletions.get(name)
    if deletion is None:
        return DeletionBody(name, "deleted")
    topic = cluster.topics.get(name)
    moved = list(deletion.replicas.values())
    refused = refused_of(cluster, topic_subject(name))
    return DeletionBody(
        topic=name,
        status="deleting",
        abandon_offline=deletion.abandon_offline,
        replicas=0 if topic is None else sum(len(partition.replicas) for partition in topic.partitions.values()),
        replicas_deleted=moved.count(ReplicaStatus.DELETION_SUCCESSFUL),
        failures=deletion.failures,
        waits_for=deletion.waits_for or (None if refused is None else trouble_of(refused)),
        retry_at_ms=None if deletion.retry_at_ms is None else wall_ms_at(deletion.retry_at_ms),
    )
