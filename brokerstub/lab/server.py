"""The lab's HTTP side: `/lab/v1/…`, orders to the brokers, and the lab's processes.

Owns the paths and the parsing of orders. It must never decide anything itself or listen beyond loopback. The API
decides access and the shape of errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from brokerstub.lab.bodies import Done, Order, Processes, ProcessRow, Trouble, TroubleOrder
from brokerstub.lab.settings import HOST, LabError
from controller.api.bodies import read_body
from controller.api.middleware.access import Gate, audit_for, guard_for, nobody
from controller.api.middleware.connections import BoundedListener, Connections
from controller.api.problems import ProblemError, invalid, problems, refusal_for
from controller.base.config import LIMITS, Limits
from controller.core.codes import Code
from controller.security.secrets import Secrets
from controller.wire import bodies

BODY_MAX_BYTES = 4 * 1024
FREEZE_MAX_MS = 3_600_000
TROUBLE_MAX_MS = 600_000
SHUTDOWN_TIMEOUT_MS = 1_000

log = structlog.get_logger()


class FaultTarget(Protocol):
    """A broker of a lab. Each order says whether it changed anything, and raises LabError when it cannot be."""

    @property
    def row(self) -> ProcessRow: ...
    async def kill(self) -> bool: ...
    async def stop(self) -> bool: ...
    async def start(self) -> bool: ...
    def freeze(self, for_ms: int | None = None) -> bool: ...
    def thaw(self) -> bool: ...
    def cut(self, peer: int | None = None, *, one_way: bool = False) -> bool: ...
    def heal(self, peer: int | None = None) -> bool: ...
    def break_disk(self, index: int | None = None) -> bool: ...
    def mend_disk(self, index: int | None = None) -> bool: ...
    def hold(self, topic: str, partition: int) -> bool: ...
    def release(self, topic: str, partition: int) -> bool: ...


class LabControl(Protocol):
    """A lab."""

    @property
    def secrets(self) -> Secrets: ...
    @property
    def brokers(self) -> Mapping[int, FaultTarget]: ...
    def rows(self) -> Sequence[ProcessRow]:
        """Returns the supervisor, ZooKeeper, the brokers."""

    async def trouble(self, order: TroubleOrder) -> Trouble:
        """For Kafka's clients. Raises LabError where it cannot be had."""

    def end(self) -> None:
        """Once is enough."""


VERBS: dict[str, Callable[[FaultTarget, Order], Awaitable[bool] | bool]] = {
    "kill": lambda broker, _: broker.kill(),
    "stop": lambda broker, _: broker.stop(),
    "start": lambda broker, _: broker.start(),
    "freeze": lambda broker, order: broker.freeze(order.for_ms),
    "thaw": lambda broker, _: broker.thaw(),
    "cut": lambda broker, order: broker.cut(order.peer, one_way=order.one_way),
    "heal": lambda broker, order: broker.heal(order.peer),
    "break-disk": lambda broker, order: broker.break_disk(order.dir),
    "mend-disk": lambda broker, order: broker.mend_disk(order.dir),
    "hold": lambda broker, order: broker.hold(*_partition_of(order)),
    "release": lambda broker, order: broker.release(*_partition_of(order)),
}


def build_app(supervisor: LabControl, port: int, limits: Limits = LIMITS) -> web.Application:
    """Returns the application; `port` is where it will listen, which a request's Host must name."""

    async def on_ps(_: web.Request) -> web.Response:
        return _answer(Processes(list(supervisor.rows())))

    async def on_down(_: web.Request) -> web.Response:
        supervisor.end()
        return _answer(Processes(list(supervisor.rows())), 202)

    async def on_trouble(request: web.Request) -> web.Response:
        order = _trouble_of(await read_body(request, BODY_MAX_BYTES, limits.body_timeout_ms))
        try:
            return _answer(await supervisor.trouble(order))
        except LabError as error:
            raise ProblemError(409, error.code, str(error)) from None

    def on_verb(verb: str) -> Handler:
        async def handler(request: web.Request) -> web.Response:
            order = _order_of(await read_body(request, BODY_MAX_BYTES, limits.body_timeout_ms), verb)
            broker = supervisor.brokers.get(order.broker)
            if broker is None:
                detail = f"there is no broker {order.broker}: the lab has 1 to {len(supervisor.brokers)}"
                raise refusal_for(Code.BROKER_ID_NOT_REGISTERED, detail)
            if order.peer is not None and (order.peer not in supervisor.brokers or order.peer == order.broker):
                raise invalid(f"peer is another broker of the lab, from 1 to {len(supervisor.brokers)}")
            try:
                result = VERBS[verb](broker, order)
                has_changed = result if isinstance(result, bool) else await result
            except LabError as error:
                raise ProblemError(409, error.code, str(error)) from None
            log.info("order.obeyed", verb=verb, broker_id=order.broker, changed=has_changed)
            return _answer(Done(has_changed, broker.row))

        return handler

    guard = guard_for([f"{HOST}:{port}"], Gate(supervisor.secrets, nobody, limits))
    app = web.Application(middlewares=[audit_for(), problems, guard])
    app.router.add_get("/lab/v1/ps", on_ps)
    app.router.add_post("/lab/v1/down", on_down)
    app.router.add_post("/lab/v1/trouble", on_trouble)
    for verb in VERBS:
        app.router.add_post(f"/lab/v1/{verb}", on_verb(verb))
    return app


async def serve(supervisor: LabControl, port: int, started: AsyncExitStack, limits: Limits = LIMITS) -> None:
    """Serve until `started` unwinds."""
    app = build_app(supervisor, port, limits)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_MS / 1000)
    await runner.setup()
    started.push_async_callback(runner.cleanup)
    try:
        await BoundedListener(runner, Connections(limits), HOST, port).start()
    except OSError as error:
        raise LabError(
            f"port {port} on {HOST}, for the lab's supervisor, cannot be had ({error.strerror}): stop what listens "
            "there, or choose other ports (--port-base)",
            "PORT_IN_USE",
        ) from None


def _answer(body: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _order_of(body: bytes, verb: str) -> Order:
    try:
        order = bodies.decode(body, Order)
    except msgspec.DecodeError as error:
        raise invalid(str(error)) from None
    if order.for_ms is not None and not (verb == "freeze" and 1 <= order.for_ms <= FREEZE_MAX_MS):
        raise invalid(f"for_ms belongs to freeze, and is from 1 to {FREEZE_MAX_MS}")
    if order.dir is not None and verb not in ("break-disk", "mend-disk"):
        raise invalid("dir belongs to break-disk and mend-disk")
    if order.peer is not None and verb not in ("cut", "heal"):
        raise invalid("peer belongs to cut and heal")
    if order.one_way and (verb != "cut" or order.peer is None):
        raise invalid("one_way belongs to cut with a peer")
    if (order.topic is not None or order.partition is not None) != (verb in ("hold", "release")):
        raise invalid("topic and partition belong to hold and release, and these need both")
    return order


def _trouble_of(body: bytes) -> TroubleOrder:
    try:
        order = bodies.decode(body or b"{}", TroubleOrder)
    except msgspec.DecodeError as error:
        raise invalid(str(error)) from None
    if order.for_ms is not None and not 0 <= order.for_ms <= TROUBLE_MAX_MS:
        raise invalid(f"for_ms is from 0 to {TROUBLE_MAX_MS}")
    return order


def _partition_of(order: Order) -> tuple[str, int]:
    if order.topic is None or order.partition is None:
        raise invalid("topic and partition belong to hold and release, and these need both")
    return order.topic, order.partition
