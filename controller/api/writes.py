"""The writes of the admin API: parsed here, decided by the active controller. Each is idempotent by its content."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from controller.api.active import ActiveController
from controller.api.bodies import CreateTopicBody, TopicBody, answer, creation_for, decode_body, read_body, topic_body
from controller.api.problems import refusal_for, unknown_outcome
from controller.api.view import ClusterView, ControllerDoor, NotControllerError
from controller.config import Limits
from controller.core.codes import Code
from controller.core.events import CreateTopicAsked

#: what the core's reply says in `detail` when what was asked for is there already
EXISTS: Final = "exists"
#: how long a creation waits for this broker to be told of it, so that who created can read
TOLD_WITHIN_MS: Final = 2_000
TOLD_POLL_MS: Final = 10


class Writes:
    """Handlers that ask the controller of this process or, when that is not the active one, pass the request on."""

    def __init__(
        self,
        view: ClusterView,
        door: ControllerDoor,
        active: ActiveController,
        limits: Limits,
        *,
        told_within_ms: int = TOLD_WITHIN_MS,
    ) -> None:
        self._view = view
        self._door = door
        self._active = active
        self._limits = limits
        self._told_within_ms = told_within_ms

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.post("/v1/topics", self.create_topic)]

    async def create_topic(self, request: web.Request) -> web.Response:
        raw = await read_body(request, self._limits.api_body_max_bytes)
        asked = creation_for(decode_body(raw, CreateTopicBody))
        try:
            reply = await self._door.ask(asked)
        except NotControllerError:
            return await self._active.pass_on(request, raw)
        if reply.is_unknown:
            raise unknown_outcome(f"whether {asked.name} was created is not known; GET /v1/topics/{asked.name} says it")
        if reply.code is not Code.NONE:
            raise refusal_for(reply.code, reply.detail)
        return answer(await self._described(asked), status=200 if reply.detail == EXISTS else 201)

    async def _described(self, asked: CreateTopicAsked) -> TopicBody:
        """The topic as told to this broker or, if that takes too long, as it was asked for."""
        wanted = asked.partitions if asked.assignment is None else len(asked.assignment)
        for _ in range(self._told_within_ms // TOLD_POLL_MS):
            topic = self._view.topic(asked.name)
            if topic is not None and len(topic.partitions) >= (wanted or 0):
                return topic_body(topic, self._view.brokers)
            await asyncio.sleep(TOLD_POLL_MS / 1_000)
        factor = asked.replication_factor or max(map(len, (asked.assignment or {}).values()), default=0)
        return TopicBody(asked.name, None, wanted or 0, factor, 0, wanted or 0, 0, 0)
