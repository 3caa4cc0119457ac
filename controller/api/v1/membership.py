"""Forgetting a broker that is gone for good. Whether that can be is the core's to say."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from aiohttp import web

from controller.api.bodies import answer, number_in_path
from controller.api.routing.active import ActiveController
from controller.core.events import ForgetBrokerAsked


class ForgottenBody(msgspec.Struct, frozen=True):
    """The broker that is known no more."""

    broker_id: int


class Membership:
    """The handler of `DELETE /v1/brokers/{id}`."""

    def __init__(self, active: ActiveController) -> None:
        self._active = active

    def routes(self) -> Sequence[web.RouteDef]:
        return [self._active.route("DELETE", "/v1/brokers/{id}", self.forget)]

    async def forget(self, request: web.Request, raw: bytes) -> web.Response:
        broker_id = number_in_path(request, "id")
        await self._active.ask(ForgetBrokerAsked(broker_id), request.path)
        return answer(ForgottenBody(broker_id))
