"""The reads: cluster, controller, brokers, topics, partitions and probes, from this broker's metadata. Only health is
asked of the controller.

Probes walk over nothing, and wait for no reader.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

import msgspec
from aiohttp import web

from controller.api.bodies import (
    Page,
    PageQuery,
    PartitionsQuery,
    answer,
    broker_body,
    cluster_body,
    controller_body,
    listener_asked,
    query_of,
)
from controller.api.counts import RED, UNKNOWN, Verdict
from controller.api.listing import Summaries, partitions_page, topic_bodies, topics_page
from controller.api.ports import ClusterView, ControllerHandle
from controller.api.problems import ProblemError, refusal_for
from controller.api.reader_turns import Answers, ReaderTurns
from controller.api.routing.health import Health
from controller.core.belief.cluster import Cluster
from controller.core.codes import Code


class Reads:
    """Handlers that change nothing."""

    def __init__(
        self,
        view: ClusterView,
        handle: ControllerHandle,
        health: Health,
        summaries: Summaries,
        answers: Answers,
        turns: ReaderTurns,
    ) -> None:
        self._view = view
        self._handle = handle
        self._health = health
        self._summaries = summaries
        self._answers = answers
        self._turns = turns

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.get("/livez", self.livez),
            web.get("/readyz", self.readyz),
            web.get("/healthz/cluster", self.health),
            web.get("/v1/cluster", self.cluster),
            web.get("/v1/controller", self.controller),
            web.get("/v1/brokers", self.brokers),
            web.get("/v1/brokers/{id}", self.broker),
            web.get("/v1/topics", self.topics),
            web.get("/v1/topics/{topic}", self.topic),
            web.get("/v1/topics/{topic}/partitions", self.topic_partitions),
            web.get("/v1/partitions", self.partitions),
        ]

    async def livez(self, request: web.Request) -> web.Response:
        return answer(Verdict("live", []))

    async def readyz(self, request: web.Request) -> web.Response:
        own_id = self._view.own_broker_id
        if not self._handle.is_registered:
            return answer(Verdict("not ready", [f"broker {own_id} is cut off from ZooKeeper"]), status=503)
        if self._view.is_told:
            return answer(Verdict("ready", []))
        return answer(Verdict("not ready", [f"no controller has told broker {own_id} of the cluster yet"]), status=503)

    async def health(self, request: web.Request) -> web.Response:
        verdict = await self._health.verdict(request, await self._summaries.newest())
        return answer(verdict, status=503 if verdict.status in (RED, UNKNOWN) else 200)

    async def cluster(self, request: web.Request) -> web.Response:
        summary = await self._summaries.newest()
        return answer(cluster_body(self._view, self._handle, summary, await self._health.verdict(request, summary)))

    async def controller(self, request: web.Request) -> web.Response:
        return answer(controller_body(self._view, self._handle))

    async def brokers(self, request: web.Request) -> web.Response:
        summary, listener = await self._summaries.newest(), listener_asked(request, self._view)
        return answer(Page([broker_body(broker, summary, listener, self._believed) for broker in self._view.brokers]))

    async def broker(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        summary = await self._summaries.newest()
        for broker in self._view.brokers:
            if str(broker.id) == wanted:
                return answer(broker_body(broker, summary, listener_asked(request, self._view), self._believed))
        raise refusal_for(Code.BROKER_ID_NOT_REGISTERED, f"there is no broker {wanted}")

    async def topics(self, request: web.Request) -> web.Response:
        query = query_of(request, PageQuery)
        return await self._answers.told(("topics", query), partial(topics_page, self._view, query, self._turns))

    async def topic(self, request: web.Request) -> web.Response:
        name = self._existing(request)
        return await self._answers.told(("topic", name), partial(self._described, name))

    async def topic_partitions(self, request: web.Request) -> web.Response:
        page = query_of(request, PageQuery)
        return await self._partitions(PartitionsQuery(page.limit, page.cursor, topic=self._existing(request)))

    async def partitions(self, request: web.Request) -> web.Response:
        return await self._partitions(query_of(request, PartitionsQuery))

    @property
    def _believed(self) -> Cluster | None:
        return self._handle.cluster if self._handle.is_active else None

    async def _partitions(self, query: PartitionsQuery) -> web.Response:
        return await self._answers.told(("partitions", query), partial(partitions_page, self._view, query, self._turns))

    async def _described(self, name: str) -> bytes:
        async for body in topic_bodies(self._view, [name], self._turns):
            return msgspec.json.encode(body)
        raise _missing(name)  # gone meanwhile

    def _existing(self, request: web.Request) -> str:
        name, names = request.match_info["topic"], self._view.topic_names
        at = bisect_left(names, name)
        if at == len(names) or names[at] != name:
            raise _missing(name)
        return name


def _missing(name: str) -> ProblemError:
    return refusal_for(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
