"""The broker's RPCs over HTTP: reads headers and bodies, hands them to the `Broker`, answers and logs.

A malformed request is refused with 4xx and changes nothing; every other request gets an answer with Kafka's codes, or a
503 while this process is not the incarnation that is meant. It decides nothing about partitions.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import hdrs, web

from brokerstub.broker import Broker, ControllerHeaders, NotReadyError
from brokerstub.listeners import advertised, listeners_in
from brokerstub.logs import LostRecords
from brokerstub.replicas import Transitions
from controller.api.bodies import read_body
from controller.api.middleware.connections import BoundedListener, Connections
from controller.api.ports import ControllerHandle
from controller.api.problems import ProblemError, invalid, unavailable
from controller.api.serve.app import build_app
from controller.api.v1.rpc import sender_of
from controller.base.config import LIMITS, BrokerConfig
from controller.base.connection_slots import allow_files, limits_within
from controller.core.codes import Code
from controller.core.project.lines import Line
from controller.security.secrets import Secrets
from controller.security.tls import server_context_for
from controller.wire import bodies
from controller.wire.bodies import (
    Answer,
    DescribeLogRequest,
    DescribeTopicsRequest,
    FetchRequest,
    StatesRequest,
    StopReplicaRequest,
    UndecodedStatesRequest,
    scheme_of,
)
from controller.wire.signing import Signer

#: a broker that is just registering will know within this
RETRY_AFTER_MS: Final = 1_000

#: JSON, a line feed, and raw batches
RECORDS: Final = "application/vnd.klamm.records"

Record = Callable[[Sequence[Line]], None]
Request = TypeVar("Request")


async def serve(
    config: BrokerConfig, server: BrokerServer, handle: ControllerHandle, secrets: Secrets, signer: Signer
) -> web.AppRunner:
    """Listen on every listener that speaks HTTP: the broker's RPCs and the API in one application."""
    listeners = [one for one in listeners_in(config.listeners) if not one.speaks_kafka]
    known = [one for one in (*listeners, *advertised(config)) if not one.speaks_kafka]
    hosts = [f"{name}:{one.port}" for one in known for name in (one.host, "localhost")]
    broker = server.broker
    app = build_app(
        broker.metadata,
        handle,
        listeners=hosts,
        config=config,
        secrets=secrets,
        own=lambda: broker.incarnation,
        signer=signer,
        logs=broker.log_ends,
    )
    server.add_routes(app)
    runner, connections = web.AppRunner(app, access_log=None), Connections(limits_within(allow_files()))
    await runner.setup()
    for name, host, port in listeners:
        tls = server_context_for(config) if scheme_of(name) == "https" else None
        await BoundedListener(runner, connections, host, port, tls).start()
    return runner


class BrokerServer:
    """The handlers of one broker's RPCs."""

    def __init__(self, broker: Broker, record: Record, wall_clock_ms: Callable[[], int]) -> None:
        self.broker = broker
        self._record = record
        self._wall_clock_ms = wall_clock_ms
        broker.on_transitions = self._on_transitions
        broker.on_lost = self._on_lost

    def _on_lost(self, lost: LostRecords) -> None:
        """In the state-change log: what had to go, and what of it had been committed."""
        self._record([truncation_line(self.broker, lost, self._wall_clock_ms())])

    def _on_transitions(self, headers: ControllerHeaders, transitions: Transitions) -> None:
        """In the state-change log: of which partitions a request made this broker leader or follower."""
        self._record(
            [
                self._stamped(headers, kind="transition", target=became.value, partitions=dict(partitions))
                for became, partitions in transitions.groups()
            ]
        )

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post(bodies.LEADER_AND_ISR, self.on_leader_and_isr)
        app.router.add_post(bodies.UPDATE_METADATA, self.on_update_metadata)
        app.router.add_post(bodies.STOP_REPLICA, self.on_stop_replica)
        app.router.add_post(bodies.DESCRIBE_TOPICS, self.on_describe_topics)
        app.router.add_post(bodies.DESCRIBE_LOG, self.on_describe_log)
        app.router.add_post(bodies.FETCH, self.on_fetch)

    async def on_leader_and_isr(self, request: web.Request) -> web.Response:
        return await self._obey(request, StatesRequest, self.broker.on_leader_and_isr, _about_rows)

    async def on_update_metadata(self, request: web.Request) -> web.Response:
        return await self._obey(request, UndecodedStatesRequest, self.broker.on_update_metadata, _about_topics)

    async def on_stop_replica(self, request: web.Request) -> web.Response:
        return await self._obey(request, StopReplicaRequest, self.broker.on_stop_replica, _about_stops)

    async def on_describe_topics(self, request: web.Request) -> web.Response:
        return await self._obey(request, DescribeTopicsRequest, self.broker.on_describe_topics, _about_names)

    async def on_describe_log(self, request: web.Request) -> web.Response:
        sender_of(request)
        return _json(self.broker.on_describe_log(await _body_of(request, DescribeLogRequest)))

    async def on_fetch(self, request: web.Request) -> web.Response:
        follower_id, follower_epoch = sender_of(request)
        body = await _body_of(request, FetchRequest)
        try:
            answer, batches = await self.broker.on_fetch_records(follower_id, follower_epoch, body)
        except NotReadyError as error:
            raise _not_ready(error) from error
        if not answer.records:
            return _json(answer)
        return web.Response(body=bodies.with_batches(answer, batches), headers={hdrs.CONTENT_TYPE: RECORDS})

    async def _obey(
        self,
        request: web.Request,
        kind: type[Request],
        handler: Callable[[ControllerHeaders, Request], Awaitable[Answer]],
        about: Callable[[Request], str],
    ) -> web.Response:
        """One request of a controller, from its bytes to its line in the log."""
        start = time.perf_counter()
        headers = _headers_of(request)
        body = await _body_of(request, kind)
        try:
            answer = await handler(headers, body)
        except NotReadyError as error:
            raise _not_ready(error) from error
        except msgspec.MsgspecError as error:
            raise invalid(f"the body: {error}") from error
        took_ms = round((time.perf_counter() - start) * 1_000, 3)
        self._record([self._line(headers, f"{request.path.rpartition('/')[2]}: {about(body)}", answer, took_ms)])
        return _json(answer)

    def _line(self, headers: ControllerHeaders, reason: str, answer: Answer, took_ms: float) -> Line:
        if answer.partitions:
            reason += f", {len(answer.partitions)} refused"
        return self._stamped(headers, kind="rpc", reason=reason, error_code=int(answer.error_code), took_ms=took_ms)

    def _stamped(self, headers: ControllerHeaders, **said: Any) -> Line:
        """Returns a line about a request."""
        return Line(
            at_ms=self._wall_clock_ms(),
            cluster_id=self.broker.metadata.cluster_id,
            controller_id=headers.controller_id,
            controller_epoch=headers.controller_epoch,
            event_id=headers.event_id,
            broker_id=self.broker.broker_id,
            broker_epoch=headers.broker_epoch,
            **said,
        )


def truncation_line(broker: Broker, lost: LostRecords, at_ms: int) -> Line:
    """Returns the state-change line about a follower's truncation."""
    told = broker.metadata
    records = _counted(lost.end - lost.start, "record")
    return Line(
        at_ms=at_ms,
        cluster_id=told.cluster_id,
        controller_id=told.controller_id,
        controller_epoch=told.controller_epoch,
        kind="truncation",
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        topic=lost.topic,
        topic_id=lost.topic_id,
        partition=lost.partition,
        leader=lost.leader,
        leader_epoch=lost.leader_epoch,
        reason=f"offsets {lost.start} to {lost.end - 1}: {records} that leader {lost.leader} does not have,"
        f" {lost.committed} of them committed",
        records=lost.end - lost.start,
        records_lost=lost.committed,
        records_epoch=lost.records_epoch,
        offset=lost.start,
    )


def _about_rows(request: StatesRequest) -> str:
    return f"{_counted(sum(len(topic.partitions) for topic in request.topics), 'partition')}{_part_of(request)}"


def _about_topics(request: UndecodedStatesRequest) -> str:
    return f"{_counted(len(request.topics), 'topic')}, {_counted(len(request.brokers), 'broker')}{_part_of(request)}"


def _about_stops(request: StopReplicaRequest) -> str:
    stops = [stop for topic in request.topics for stop in topic.partitions]
    return f"{_counted(len(stops), 'partition')}, {sum(stop.delete for stop in stops)} to be deleted"


def _about_names(request: DescribeTopicsRequest) -> str:
    return _counted(len(request.topics), "topic")


def _part_of(request: StatesRequest | UndecodedStatesRequest) -> str:
    return f", part {request.part} of {request.parts} of a full list" if request.full else ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _headers_of(request: web.Request) -> ControllerHeaders:
    return ControllerHeaders(
        controller_id=_number(request, bodies.CONTROLLER_ID),
        controller_epoch=_number(request, bodies.CONTROLLER_EPOCH),
        broker_epoch=_number(request, bodies.BROKER_EPOCH),
        event_id=request.headers.get(bodies.EVENT_ID),
        sequence=_number(request, bodies.SEQUENCE) if bodies.SEQUENCE in request.headers else 0,
    )


def _number(request: web.Request, header: str) -> int:
    text = request.headers.get(header, "")
    number = bodies.number_in(text)
    if number is None:
        raise invalid(f"the header {header} must be a number, not {text!r}")
    return number


async def _body_of(request: web.Request, kind: type[Request]) -> Request:
    data = await read_body(request, LIMITS.rpc_body_max_bytes)
    try:
        return bodies.decode(data, kind)
    except msgspec.MsgspecError as error:
        raise invalid(f"the body: {error}") from error


def _not_ready(error: NotReadyError) -> ProblemError:
    return unavailable(Code.BROKER_NOT_AVAILABLE.name, str(error), RETRY_AFTER_MS)


def _json(answer: object) -> web.Response:
    return web.Response(body=bodies.encode(answer), headers={hdrs.CONTENT_TYPE: "application/json"})
