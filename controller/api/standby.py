"""A standby that nobody tells of the cluster: what brokers answer by themselves, it has the active controller answer.

It passes on and answers nothing; who holds the seat, and where that listens, is for others to know.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.active import ActiveController, Peers
from controller.api.view import ControllerDoor

#: as the routes have them
TOLD: Final = frozenset(
    {
        "/healthz/cluster",
        "/v1/cluster",
        "/v1/brokers",
        "/v1/brokers/{id}",
        "/v1/topics",
        "/v1/topics/{topic}",
        "/v1/topics/{topic}/partitions",
        "/v1/partitions",
        "/v1/matrix",
    }
)


def standby_for(active: ActiveController, door: ControllerDoor, peers: Peers) -> Middleware:
    @web.middleware
    async def standby(request: web.Request, handler: Handler) -> web.StreamResponse:
        if door.is_active:
            return await handler(request)
        await peers.learn()
        resource = request.match_info.route.resource
        if request.method in ("GET", "HEAD") and resource is not None and resource.canonical in TOLD:
            return await active.pass_on(request, b"")
        return await handler(request)

    return standby
