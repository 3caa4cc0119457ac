"""The application that every broker process serves. The broker stub adds the RPCs that it takes to the same one."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web
from aiohttp.typedefs import Handler

from controller.api.active import ActiveController
from controller.api.problems import problems
from controller.api.reads import Reads
from controller.api.rpc import Rpcs
from controller.api.security import guard_for
from controller.api.view import ClusterView, ControllerDoor
from controller.api.writes import Writes
from controller.config import LIMITS, Limits
from controller.wire import CONTROLLER_EPOCH


def build_app(
    view: ClusterView, door: ControllerDoor, *, listeners: Sequence[str], limits: Limits = LIMITS
) -> web.Application:
    """The admin API, the probes and the RPCs to the controller. `listeners` are the allowed values of Host, such as
    `127.0.0.1:8081`. It is not frozen: more routes can be added, and are guarded and explained like these."""

    @web.middleware
    async def stamp(request: web.Request, handler: Handler) -> web.StreamResponse:
        controller_epoch = view.controller_epoch
        response = await handler(request)
        if request.method in ("GET", "HEAD"):
            response.headers[CONTROLLER_EPOCH] = str(controller_epoch)
        return response

    app = web.Application(
        middlewares=[stamp, problems, guard_for(listeners)], client_max_size=limits.rpc_body_max_bytes
    )
    app.add_routes(Reads(view, door).routes())
    app.add_routes(Writes(view, door, ActiveController(view, door, limits), limits).routes())
    app.add_routes(Rpcs(door, limits).routes())
    return app
