"""The way to the active controller when it is another process: a redirect, or one hop on the caller's behalf."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from controller.api.bodies import http_address_of
from controller.api.problems import moved_to, unavailable, unknown_outcome
from controller.api.view import ClusterView, ControllerDoor
from controller.config import Limits
from controller.core.codes import Code
from controller.http import HttpClient, NoAnswerError, UnreachableError

FORWARD: Final = "Klamm-Forward"


class ActiveController:
    """Who holds `/controller` now, by address. It never forwards what was forwarded."""

    def __init__(self, view: ClusterView, door: ControllerDoor, limits: Limits) -> None:
        self._view = view
        self._door = door
        self._limits = limits

    def address(self) -> str:
        """Of the process that holds the seat, if it is another one; otherwise nobody can be asked now."""
        seat = self._door.seat
        if seat is not None and seat[0] != self._view.own_broker_id:
            found = next((broker for broker in self._view.brokers if broker.id == seat[0]), None)
            address = None if found is None else http_address_of(found)
            if address is not None:
                return address
        raise unavailable(Code.NOT_CONTROLLER.name, "there is no active controller now; nothing was changed, try again")

    async def pass_on(self, request: web.Request, body: bytes) -> web.Response:
        """What a standby does with a request for the active controller."""
        location = f"{self.address()}{request.rel_url.raw_path_qs}"
        if request.headers.get(FORWARD) != "1":
            raise moved_to(location)
        client = HttpClient()
        try:
            status, answer = await client.post(
                location, body, {"Content-Type": "application/json"}, self._limits.request_deadline_ms
            )
        except UnreachableError:
            raise unavailable(
                Code.NOT_CONTROLLER.name, "the controller cannot be reached; nothing was changed"
            ) from None
        except NoAnswerError:
            raise unknown_outcome(f"the controller did not answer; GET {request.path} shows what there is") from None
        finally:
            await client.close()
        if status == 307:
            raise unavailable(Code.NOT_CONTROLLER.name, "the controller has just moved; nothing was changed, try again")
        return web.Response(
            body=answer,
            status=status,
            content_type="application/problem+json" if status >= 400 else "application/json",
            headers={"Retry-After": "1"} if status == 503 else None,
        )
