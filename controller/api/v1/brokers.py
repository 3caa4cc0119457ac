"""Requests about brokers: drains, which move leaderships away from a broker, and forgetting a broker that is gone for
good.

Drains are shown from belief. The core decides whether a broker can be forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from aiohttp import web

from controller.api.bodies import Nothing, PartitionName, answer, decode_body, number_in_path
from controller.api.problems import refusal_for
from controller.api.routing.active import ActiveController
from controller.core.belief.cluster import Cluster
from controller.core.codes import Code
from controller.core.decide.drains import remaining
from controller.core.events import DrainAsked, ForgetBrokerAsked, UndrainAsked
from controller.loop.inbox import ChangeReply

PATH: Final = "/v1/brokers/{broker}/drain"
#: so many are named, however many there are
REMAINING_SHOWN_MAX: Final = 1_000


class DrainBody(msgspec.Struct, frozen=True):
    """How far a drain is: `leaders` partitions are still led there; `remaining` are those with other replicas, of which
    none can lead now."""

    broker_id: int
    draining: bool
    is_shutdown: bool
    leaders: int
    remaining_count: int
    remaining: Sequence[PartitionName]


class Drains:
    """Handlers of a broker's drain."""

    def __init__(self, active: ActiveController) -> None:
        self._active = active

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            self._active.route("GET", PATH, self.progress),
            self._active.route("POST", PATH, self.drain),
            self._active.route("DELETE", PATH, self.undrain),
        ]

    async def progress(self, request: web.Request, raw: bytes) -> web.Response:
        cluster, broker_id = self._active.cluster, number_in_path(request, "broker")
        if broker_id not in cluster.brokers:
            raise refusal_for(Code.BROKER_ID_NOT_REGISTERED, f"there is no live broker {broker_id}")
        return answer(drain_body(cluster, broker_id))

    async def drain(self, request: web.Request, raw: bytes) -> web.Response:
        broker_id = number_in_path(request, "broker")
        decode_body(raw or b"{}", Nothing)
        absent = Code.BROKER_NOT_AVAILABLE  # to the broker itself; an operator that names it names it wrongly
        reply = await self._active.ask(DrainAsked(broker_id), request.path, accept=(Code.NONE, absent))
        if reply.code is absent:
            raise refusal_for(Code.BROKER_ID_NOT_REGISTERED, reply.detail)
        return answer(drain_body(self._active.cluster, broker_id))

    async def undrain(self, request: web.Request, raw: bytes) -> web.Response:
        broker_id = number_in_path(request, "broker")
        decode_body(raw or b"{}", Nothing)
        await self._active.ask(UndrainAsked(broker_id), request.path)
        return answer(drain_body(self._active.cluster, broker_id))


def drain_body(cluster: Cluster, broker_id: int) -> DrainBody:
    drain = cluster.duties.drains.get(broker_id)
    left = remaining(cluster, broker_id)
    led = sum(
        (state := cluster.topics[topic].partitions[number].state) is not None and state.leader == broker_id
        for topic, numbers in cluster.hosted.get(broker_id, {}).items()
        if not cluster.duties.is_leaving(topic)
        for number in numbers
    )
    return DrainBody(
        broker_id=broker_id,
        draining=drain is not None,
        is_shutdown=drain is not None and drain.is_shutdown,
        leaders=led,
        remaining_count=len(left),
        remaining=[PartitionName(*one) for one in left[:REMAINING_SHOWN_MAX]],
    )


class ForgottenBody(msgspec.Struct, frozen=True):
    """The broker that is known no more. `was_known`: False where it was not known before either."""

    broker_id: int
    was_known: bool = True


class Membership:
    """The handler of `DELETE /v1/brokers/{id}`."""

    def __init__(self, active: ActiveController) -> None:
        self._active = active

    def routes(self) -> Sequence[web.RouteDef]:
        return [self._active.route("DELETE", "/v1/brokers/{id}", self.forget)]

    async def forget(self, request: web.Request, raw: bytes) -> web.Response:
        broker_id = number_in_path(request, "id")
        reply = await self._active.granted(ForgetBrokerAsked(broker_id), ChangeReply, request.path)
        return answer(ForgottenBody(broker_id, was_known=reply.has_changed))
