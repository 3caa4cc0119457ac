"""The application that every broker process serves: its routes, and the dashboard's files.

The broker stub adds the RPCs that it takes. The dashboard's files, at `/` and `/dashboard/…`, come under a policy that
lets the page send requests to the brokers alone. It asks other brokers only whether they live, to go to one of them
when the broker that served it falls silent.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.listing import Summaries
from controller.api.metrics import Metrics, lag_meter
from controller.api.middleware.access import Gate, audit_for, guard_for, nobody
from controller.api.middleware.quota import Quotas, delivery_for
from controller.api.ports import ClusterView, ControllerHandle
from controller.api.problems import problems
from controller.api.reader_turns import Answers, ReaderTurns, is_working
from controller.api.routing.active import ActiveController, Forwarding, Peers, standby_for
from controller.api.routing.health import Health
from controller.api.routing.new_partitions import CompleteView, NewPartitions
from controller.api.serve.openapi import Docs
from controller.api.stream.events import Events
from controller.api.stream.pulse import Pulse
from controller.api.v1.brokers import Drains, Membership
from controller.api.v1.configs import Configs
from controller.api.v1.insights import Insights
from controller.api.v1.lab import Lab
from controller.api.v1.matrix import Matrix
from controller.api.v1.partition_requests import PartitionRequests
from controller.api.v1.reads import Reads
from controller.api.v1.records import LogsView, Records
from controller.api.v1.reports import Reports
from controller.api.v1.rpc import Rpcs
from controller.api.v1.writes import Writes
from controller.base.config import LIMITS, BrokerConfig, Limits
from controller.dashboard import asset
from controller.security.secrets import NO_SECRETS, Secrets
from controller.security.tls import client_context_for
from controller.wire.bodies import CONTROLLER_EPOCH, address_of
from controller.wire.signing import Incarnation, Signer

HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'"
#: a registered text goes into a header only if it is plainly an address
ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.-]{1,253}:[0-9]{1,5}")
ADDRESSES_MAX: Final = 100


class Page:
    """Handlers of files only."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/", self.index), web.get("/dashboard/{name}", self.file)]

    async def index(self, request: web.Request) -> web.Response:
        return self._file("index.html")

    async def file(self, request: web.Request) -> web.Response:
        return self._file(request.match_info["name"])

    def _file(self, name: str) -> web.Response:
        found = asset(name)
        if found is None:
            raise web.HTTPNotFound
        body, content_type = found
        policy = policy_for(address_of(broker.endpoints) or "" for broker in self._view.brokers)
        headers = {**HEADERS, "Content-Security-Policy": policy}
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)


def policy_for(addresses: Iterable[str]) -> str:
    """Returns the Content-Security-Policy: everything from here, and these may be asked."""
    plain = [address for address in addresses if ADDRESS.fullmatch(address)]
    return " ".join([POLICY, *plain[:ADDRESSES_MAX]])


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
    """Returns the application: the admin API, probes and RPCs to the controller. `listeners` are the allowed values of
    Host, such as `127.0.0.1:8081`. `config` are the properties of this process, to be shown. `own` is this process's
    incarnation for signatures, and `signer` signs forwarded requests. `peers` are given where it is no broker, `logs`
    where it keeps records. More routes can be added to the application; they are guarded and explained alike."""
    whole_view = CompleteView(view, handle) if peers is None else None
    view = whole_view or view
    guard, turns = guard_for(listeners, Gate(secrets, own, limits)), ReaderTurns(lambda: is_working(handle), limits)
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
        Reads(view, handle, health, summaries, answers, turns),
        Records(logs, answers),
        metrics,
        Docs(),
        Writes(view, active, config),
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
            # an answer of the active controller names its own
            response.headers.setdefault(CONTROLLER_EPOCH, str(controller_epoch))
        return response

    return stamp
