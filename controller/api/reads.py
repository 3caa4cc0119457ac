"""The reads: cluster, controller, brokers, topics, partitions and probes, all from what this broker was told."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from controller.api.bodies import (
    Page,
    PageQuery,
    PartitionsQuery,
    answer,
    broker_body,
    cluster_body,
    controller_body,
    health_of,
    listener_asked,
    query_of,
    topic_body,
)
from controller.api.counts import Verdict
from controller.api.listing import Summaries, partitions_page, topics_page
from controller.api.problems import refusal_for
from controller.api.view import ClusterView, ControllerDoor, TopicView
from controller.core.codes import Code


class Reads:
    """Handlers that change nothing and ask nobody."""

    def __init__(self, view: ClusterView, door: ControllerDoor, summaries: Summaries) -> None:
        self._view = view
        self._door = door
        self._summaries = summaries

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
        if not self._door.is_registered:
            return answer(Verdict("not ready", [f"broker {own_id} is cut off from ZooKeeper"]), status=503)
        if self._view.is_told:
            return answer(Verdict("ready", []))
        return answer(Verdict("not ready", [f"no controller has told broker {own_id} of the cluster yet"]), status=503)

    async def health(self, request: web.Request) -> web.Response:
        verdict = health_of(self._view, self._door, await self._summaries.newest())
        return answer(verdict, status=503 if verdict.status == "red" else 200)

    async def cluster(self, request: web.Request) -> web.Response:
        return answer(cluster_body(self._view, self._door, await self._summaries.newest()))

    async def controller(self, request: web.Request) -> web.Response:
        return answer(controller_body(self._view, self._door))

    async def brokers(self, request: web.Request) -> web.Response:
        summary, listener = await self._summaries.newest(), listener_asked(request, self._view)
        return answer(Page([broker_body(broker, summary, listener) for broker in self._view.brokers]))

    async def broker(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        summary = await self._summaries.newest()
        for broker in self._view.brokers:
            if str(broker.id) == wanted:
                return answer(broker_body(broker, summary, listener_asked(request, self._view)))
        raise refusal_for(Code.BROKER_ID_NOT_REGISTERED, f"there is no broker {wanted}")

    async def topics(self, request: web.Request) -> web.Response:
        return answer(await topics_page(self._view, query_of(request, PageQuery)))

    async def topic(self, request: web.Request) -> web.Response:
        return answer(topic_body(self._existing(request), self._view.brokers))

    async def topic_partitions(self, request: web.Request) -> web.Response:
        page = query_of(request, PageQuery)
        query = PartitionsQuery(page.limit, page.cursor, topic=self._existing(request).topic)
        return answer(await partitions_page(self._view, query))

    async def partitions(self, request: web.Request) -> web.Response:
        return answer(await partitions_page(self._view, query_of(request, PartitionsQuery)))

    def _existing(self, request: web.Request) -> TopicView:
        name = request.match_info["topic"]
        topic = self._view.topic(name)
        if topic is None:
            raise refusal_for(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return topic
