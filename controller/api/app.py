"""The application that every broker process serves. The broker stub adds the RPCs that it takes to the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.access import Gate, nobody
from controller.api.active import ActiveController, Peers
from controller.api.audit import audit_for
from controller.api.configs import Configs
from controller.api.courier import Courier
from controller.api.drains import Drains
from controller.api.events import Events
from controller.api.insights import Insights
from controller.api.lab import Lab
from controller.api.listing import Summaries
from controller.api.matrix import Matrix
from controller.api.membership import Membership
from controller.api.metrics import Metrics, lag_meter
from controller.api.openapi import Docs
from controller.api.page import Page
from controller.api.partition_requests import PartitionRequests
from controller.api.problems import problems
from controller.api.pulse import Pulse
from controller.api.quota import Quotas
from controller.api.reads import Reads
from controller.api.reports import Reports
from controller.api.rpc import Rpcs
from controller.api.security import guard_for
from controller.api.standby import standby_for
from controller.api.view import ClusterView, ControllerDoor
from controller.api.writes import Writes
from controller.config import LIMITS, BrokerConfig, Limits
from controller.secrets import NO_SECRETS, Secrets
from controller.signing import Incarnation, Signer
from controller.tls import client_context_for
from controller.wire import CONTROLLER_EPOCH


def build_app(
    view: ClusterView,
    door: ControllerDoor,
    *,
    listeners: Sequence[str],
    config: BrokerConfig,
    secrets: Secrets = NO_SECRETS,
    own: Callable[[], Incarnation] = nobody,
    signer: Signer | None = None,
    limits: Limits = LIMITS,
    peers: Peers | None = None,
) -> web.Application:
    """The admin API, probes and RPCs to the controller. `listeners` are the allowed values of Host, such as
    `127.0.0.1:8081`; `config` are the properties of this process, to be shown; `own` is who we are now, to those who
    sign, and `signer` signs what we pass on. `peers` are given where it is no broker. More routes can be added to the
    application, and are guarded and explained like these."""
    guard = guard_for(listeners, Gate(secrets, own, limits))
    app = web.Application(
        middlewares=[_stamp_for(view), audit_for(), problems, guard, Quotas(limits).middleware()],
        client_max_size=limits.rpc_body_max_bytes,
    )
    app.cleanup_ctx.append(lag_meter(door.meters))
    tls = client_context_for(config)
    courier = Courier(signer or Signer(), own, config.routes, config.inter_broker_listener_name, tls)
    active, summaries = ActiveController(view, door, limits, courier, peers), Summaries(view)
    app.middlewares.extend([] if peers is None else [standby_for(active, door, peers)])
    pulse = Pulse(view, door, summaries)
    app.cleanup_ctx.append(pulse.sampling)
    events = Events(view, door, active, pulse, limits)
    app.on_shutdown.append(events.close)
    for handlers in (
        Page(view),
        events,
        Matrix(view, limits),
        Lab(config, secrets, limits),
        Reports(config),
        Reads(view, door, summaries),
        Metrics(view, door, summaries, limits),
        Docs(),
        Writes(view, active),
        PartitionRequests(active),
        Drains(active),
        Membership(active),
        Configs(view, active, config),
        Insights(active),
        Rpcs(door, limits),
    ):
        app.add_routes(handlers.routes())
    return app


def _stamp_for(view: ClusterView) -> Middleware:
    """Every answer to a read names the controller epoch that it rests on."""

    @web.middleware
    async def stamp(request: web.Request, handler: Handler) -> web.StreamResponse:
        controller_epoch = view.controller_epoch
        response = await handler(request)
        if request.method in ("GET", "HEAD"):
            response.headers.setdefault(CONTROLLER_EPOCH, str(controller_epoch))  # what is led names its own
        return response

    return stamp
