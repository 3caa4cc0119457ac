"""The broker's RPCs over HTTP: reads headers and bodies, hands them to the `Broker`, answers and logs.

What cannot be parsed is refused with 4xx and changes nothing; everything else gets an answer with Kafka's codes, or a
503 while this process is not the incarnation that is meant. It decides nothing about partitions.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec
from aiohttp import hdrs, web

from brokerstub.broker import Broker
from brokerstub.heads import Heads, NotReadyError
from brokerstub.registration import endpoint_parts
from controller import wire
from controller.api.app import build_app
from controller.api.bodies import read_body
from controller.api.connections import Connections, Site
from controller.api.problems import ProblemError, invalid, unavailable
from controller.api.view import ControllerDoor
from controller.config import LIMITS, BrokerConfig
from controller.core.codes import Code
from controller.core.lines import Line
from controller.secrets import Secrets
from controller.signing import Signer
from controller.tls import server_context_for
from controller.wire import Answer, FetchRequest, StatesRequest, StopReplicaRequest, UndecodedStatesRequest, scheme_of

#: a broker that is just registering will know within this
RETRY_AFTER_MS: Final = 1_000
#: of a number in a header: 64 bits
DIGITS_MAX: Final = 19

Record = Callable[[Sequence[Line]], None]
Request = TypeVar("Request")


async def serve(
    config: BrokerConfig, server: BrokerServer, door: ControllerDoor, secrets: Secrets, signer: Signer
) -> web.AppRunner:
    """Listen on every listener: the broker's RPCs and the API in one application."""
    listeners = [endpoint_parts(part.strip()) for part in config.listeners.split(",")]
    advertised = [endpoint_parts(part.strip()) for part in (config.advertised_listeners or "").split(",") if part]
    hosts = [f"{name}:{port}" for _, host, port in (*listeners, *advertised) for name in (host, "localhost")]
    broker = server.broker
    app = build_app(
        broker.metadata,
        door,
        listeners=hosts,
        config=config,
        secrets=secrets,
        own=lambda: broker.incarnation,
        signer=signer,
    )
    server.add_routes(app)
    runner, connections = web.AppRunner(app, access_log=None), Connections()
    await runner.setup()
    for name, host, port in listeners:
        tls = server_context_for(config) if scheme_of(name) == "https" else None
        await Site(runner, connections, host, port, tls).start()
    return runner


class BrokerServer:
    """The handlers of one broker's RPCs."""

    def __init__(self, broker: Broker, record: Record, wall_clock_ms: Callable[[], int]) -> None:
        self.broker = broker
        self._record = record
        self._wall_clock_ms = wall_clock_ms

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post(wire.LEADER_AND_ISR, self.on_leader_and_isr)
        app.router.add_post(wire.UPDATE_METADATA, self.on_update_metadata)
        app.router.add_post(wire.STOP_REPLICA, self.on_stop_replica)
        app.router.add_post(wire.FETCH, self.on_fetch)

    async def on_leader_and_isr(self, request: web.Request) -> web.Response:
        return await self._obey(request, StatesRequest, self.broker.on_leader_and_isr, _about_rows)

    async def on_update_metadata(self, request: web.Request) -> web.Response:
        return await self._obey(request, UndecodedStatesRequest, self.broker.on_update_metadata, _about_topics)

    async def on_stop_replica(self, request: web.Request) -> web.Response:
        return await self._obey(request, StopReplicaRequest, self.broker.on_stop_replica, _about_stops)

    async def on_fetch(self, request: web.Request) -> web.Response:
        follower_id, follower_epoch = _sender_of(request)
        body = await _body_of(request, FetchRequest)
        try:
            return _json(self.broker.on_fetch(follower_id, follower_epoch, body))
        except NotReadyError as error:
            raise _not_ready(error) from error

    async def _obey(
        self,
        request: web.Request,
        kind: type[Request],
        handler: Callable[[Heads, Request], Awaitable[Answer]],
        about: Callable[[Request], str],
    ) -> web.Response:
        """One request of a controller, from its bytes to its line in the log."""
        start = time.perf_counter()
        heads = _heads_of(request)
        body = await _body_of(request, kind)
        try:
            answer = await handler(heads, body)
        except NotReadyError as error:
            raise _not_ready(error) from error
        except msgspec.MsgspecError as error:
            raise invalid(f"the body: {error}") from error
        took_ms = round((time.perf_counter() - start) * 1_000, 3)
        self._record([self._line(heads, f"{request.path.rpartition('/')[2]}: {about(body)}", answer, took_ms)])
        return _json(answer)

    def _line(self, heads: Heads, reason: str, answer: Answer, took_ms: float) -> Line:
        if answer.partitions:
            reason += f", {len(answer.partitions)} refused"
        return Line(
            at_ms=self._wall_clock_ms(),
            cluster_id=self.broker.metadata.cluster_id,
            controller_id=heads.controller_id,
            controller_epoch=heads.controller_epoch,
            kind="rpc",
            event_id=heads.event_id,
            broker_id=self.broker.broker_id,
            broker_epoch=heads.broker_epoch,
            reason=reason,
            error_code=int(answer.error_code),
            took_ms=took_ms,
        )


def add_routes(app: web.Application, broker: Broker, record: Record, wall_clock_ms: Callable[[], int]) -> None:
    """Serve this broker's RPCs. The application converts `ProblemError` (`controller.api.problems.problems`)."""
    BrokerServer(broker, record, wall_clock_ms).add_routes(app)


def _about_rows(request: StatesRequest) -> str:
    return f"{_counted(sum(len(topic.partitions) for topic in request.topics), 'partition')}{_part_of(request)}"


def _about_topics(request: UndecodedStatesRequest) -> str:
    return f"{_counted(len(request.topics), 'topic')}, {_counted(len(request.brokers), 'broker')}{_part_of(request)}"


def _about_stops(request: StopReplicaRequest) -> str:
    stops = [stop for topic in request.topics for stop in topic.partitions]
    return f"{_counted(len(stops), 'partition')}, {sum(stop.delete for stop in stops)} to be deleted"


def _part_of(request: StatesRequest | UndecodedStatesRequest) -> str:
    return f", part {request.part} of {request.parts} of a full list" if request.full else ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _heads_of(request: web.Request) -> Heads:
    return Heads(
        controller_id=_number(request, wire.CONTROLLER_ID),
        controller_epoch=_number(request, wire.CONTROLLER_EPOCH),
        broker_epoch=_number(request, wire.BROKER_EPOCH),
        event_id=request.headers.get(wire.EVENT_ID),
        sequence=_number(request, wire.SEQUENCE) if wire.SEQUENCE in request.headers else 0,
    )


def _number(request: web.Request, header: str) -> int:
    text = request.headers.get(header, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise invalid(f"the header {header} must be a number, not {text!r}")
    return int(text)


def _sender_of(request: web.Request) -> tuple[int, int]:
    parts = request.headers.get(wire.SENDER, "").split(" ")
    if len(parts) != 2 or not all(one.isascii() and one.isdecimal() and len(one) <= DIGITS_MAX for one in parts):
        raise invalid(f"the header {wire.SENDER} must be `<broker id> <broker epoch>`")
    return int(parts[0]), int(parts[1])


async def _body_of(request: web.Request, kind: type[Request]) -> Request:
    data = await read_body(request, LIMITS.rpc_body_max_bytes)
    try:
        return wire.decode(data, kind)
    except msgspec.MsgspecError as error:
        raise invalid(f"the body: {error}") from error


def _not_ready(error: NotReadyError) -> ProblemError:
    return unavailable(Code.BROKER_NOT_AVAILABLE.name, str(error), RETRY_AFTER_MS)


def _json(answer: object) -> web.Response:
    return web.Response(body=wire.encode(answer), headers={hdrs.CONTENT_TYPE: "application/json"})
