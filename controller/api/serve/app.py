"""The application that every broker process serves. The broker stub adds the RPCs that it takes to the same one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.listing import Summaries
from controller.api.metrics.exposition import Metrics, lag_meter
from controller.api.middleware.access import Gate, nobody
from controller.api.middleware.audit import audit_for
from controller.api.middleware.delivery import delivery_for
from controller.api.middleware.origin import guard_for
from controller.api.middleware.quota import Quotas
from controller.api.ports import ClusterView, ControllerHandle
from controller.api.problems import problems
from controller.api.routing.active import ActiveController, Peers
from controller.api.routing.forwarding import Forwarding
from controller.api.routing.health import Health
from controller.api.routing.new_partitions import NewPartitions, WholeView
from controller.api.routing.standby import standby_for
from controller.api.serve.openapi import Docs
from controller.api.serve.page import Page
from controller.api.shared import Answers
from controller.api.stream.events import Events
from controller.api.stream.pulse import Pulse
from controller.api.turns import Turns, is_working
from controller.api.v1.aggregates import Aggregated
from controller.api.v1.configs import Configs
from controller.api.v1.drains import Drains
from controller.api.v1.insights import Insights
from controller.api.v1.lab import Lab
from controller.api.v1.matrix import Matrix
from controller.api.v1.membership import Membership
from controller.api.v1.partition_requests import PartitionRequests
from controller.api.v1.reads import Reads
from controller.api.v1.records import LogsView, Records
from controller.api.v1.reports import Reports
from controller.api.v1.rpc import Rpcs
from controller.api.v1.writes import Writes
from controller.base.config import LIMITS, BrokerConfig, Limits
from controller.security.secrets import NO_SECRETS, Secrets
from controller.security.tls import client_context_for
from controller.wire.bodies import CONTROLLER_EPOCH
from controller.wire.signing import Incarnation, Signer


def build_app(
    view: ClusterView,
    handle: ControllerHandle,
    *,
    listeners: Sequence[str],
    config: BrokerConfig,
    secrets: Secrets = NO_SECRETS,
    own: Callable[[], Incarnation] = nobody,
    signer: Signer | None = None,
    limits: Limits = LIMITS,
    peers: Peers | None = None,
    logs: LogsView | None = None,
) -> web.Application:
    """The admin API, probes and RPCs to the controller. `listeners` are the allowed values of Host, such as
    `127.0.0.1:8081`; `config` are the properties of this process, to be shown; `own` is who we are now, to those who
    sign, and `signer` signs what we pass on. `peers` are given where it is no broker,
    `logs` where it keeps records. More routes can be added to the application; they are guarded and explained alike."""
    whole_view = WholeView(view, handle) if peers is None else None
    view = whole_view or view
    guard, turns = guard_for(listeners, Gate(secrets, own, limits)), Turns(lambda: is_working(handle), limits)
    quota = Quotas(limits, turns).middleware()
    app = web.Application(
        middlewares=[delivery_for(turns), _stamp_for(view), audit_for(), problems, guard, quota],
        client_max_size=limits.rpc_body_max_bytes,
    )
    app.cleanup_ctx.append(lag_meter(handle.meters))
    tls = client_context_for(config)
    forwarding = Forwarding(signer or Signer(), own, config.routes, config.inter_broker_listener_name, tls)
    active, summaries = ActiveController(view, handle, limits, forwarding, peers), Summaries(view, turns)
    answers, health = Answers(view, limits), Health(view, handle, active)
    new_partitions = None if whole_view is None else NewPartitions(whole_view, handle, active)
    app.middlewares.extend([] if peers is None else [standby_for(active, handle, peers)])
    app.middlewares.extend([] if new_partitions is None else [new_partitions.middleware()])
    pulse = Pulse(view, handle, summaries, turns)
    app.cleanup_ctx.append(pulse.sampling)
    events = Events(view, handle, active, pulse, summaries, limits)
    metrics = Metrics(view, handle, summaries, answers, turns)
    app.on_shutdown.append(events.close)
    shared = (summaries, answers, metrics, health, *(() if new_partitions is None else (new_partitions,)))
    app.on_cleanup.append(_closing(*shared))
    for handlers in (
        Page(view),
        events,
        Matrix(view, answers, turns),
        Lab(config, secrets, limits),
        Reports(config),
        Aggregated(config),
        Reads(view, handle, health, summaries, answers, turns),
        Records(logs, answers),
        metrics,
        Docs(),
        Writes(view, active),
        PartitionRequests(active),
        Drains(active),
        Membership(active),
        Configs(view, active, config),
        Insights(active, answers, turns),
        Rpcs(handle, limits),
    ):
        app.add_routes(handlers.routes())
    return app


def _closing(
    *shared: Summaries | Answers | Metrics | Health | NewPartitions,
) -> Callable[[web.Application], Awaitable[None]]:
    async def close(app: web.Application) -> None:
        for one in shared:
            one.close()

    return close


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
