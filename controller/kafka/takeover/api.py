"""Taking the seat and giving it back, over HTTP: `klamm takeover` and `klamm handback` ask here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from aiohttp import web

from controller.api.bodies import Nothing, answer, decode_body, read_body
from controller.api.ports import NotControllerError
from controller.api.problems import ProblemError, unavailable
from controller.core.codes import Code
from controller.kafka.takeover.preflight import Preflight
from controller.seat.claim import SeatTroubleError
from controller.term.handle import Handle

BODY_MAX_BYTES = 10_000


class TakeoverBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False


class TakenBody(msgspec.Struct, frozen=True):
    """`controller_epoch`: ours, when it was taken."""

    taken: bool
    controller_epoch: int | None
    check: Preflight | None


class TakeoverApi:
    """Of the controller in this process; nothing here is forwarded."""

    def __init__(self, handle: Handle, check: Callable[[], Awaitable[Preflight]]) -> None:
        self._handle = handle
        self._check = check

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.post("/v1/takeover", self.take_over), web.post("/v1/handback", self.hand_back)]

    async def take_over(self, request: web.Request) -> web.Response:
        body = decode_body(await read_body(request, BODY_MAX_BYTES) or b"{}", TakeoverBody)
        try:
            if self._handle.controller_epoch is not None:
                return answer(TakenBody(True, self._handle.controller_epoch, None))
            found = await self._check()
            if found.reasons and not body.dry_run:
                raise ProblemError(409, Code.POLICY_VIOLATION.name, "; ".join(found.reasons))
            epoch = None if body.dry_run else await self._handle.take_over()
        except (NotControllerError, SeatTroubleError) as error:
            raise unavailable(Code.NOT_CONTROLLER.name, str(error)) from None
        return answer(TakenBody(epoch is not None, epoch, found))

    async def hand_back(self, request: web.Request) -> web.Response:
        decode_body(await read_body(request, BODY_MAX_BYTES) or b"{}", Nothing)
        cluster = self._handle.cluster
        if cluster is not None and not cluster.brokers:
            raise ProblemError(409, Code.BROKER_NOT_AVAILABLE.name, "no broker is live that could be the controller")
        try:
            await self._handle.hand_back()
        except NotControllerError as error:
            raise ProblemError(409, Code.NOT_CONTROLLER.name, f"{error}: there is nothing to give back") from None
        return answer({"handed_back": True})
