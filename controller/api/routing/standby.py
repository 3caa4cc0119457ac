"""A standby that nobody tells of the cluster: what brokers answer by themselves, it has the active controller answer.

Where that is one of Kafka's own brokers nobody can be asked, and ZooKeeper is looked at before the answer. It passes on
and answers nothing; who holds the seat, and where that listens, is for others to know.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.ports import ControllerHandle
from controller.api.routing.active import ActiveController, Peers

#: as the routes have them; of health each process asks for itself
TOLD: Final = frozenset(
    {
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

METRICS: Final = "/metrics"


def standby_for(active: ActiveController, handle: ControllerHandle, peers: Peers) -> Middleware:
    @web.middleware
    async def standby(request: web.Request, handler: Handler) -> web.StreamResponse:
        if handle.is_active:
            return await handler(request)
        await peers.learn()
        resource = request.match_info.route.resource
        path = "" if resource is None or request.method not in ("GET", "HEAD") else resource.canonical
        if peers.is_led_by_kafka:
            if path in TOLD or path == METRICS:
                await peers.look()
        elif path in TOLD:
            return await active.pass_on(request, b"")
        return await handler(request)

    return standby
