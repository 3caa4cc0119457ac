"""The way to the active controller: in this process, by a redirect, or by one hop on the caller's behalf.

All questions and requests that only the active controller can answer go through here; nothing is decided here. Where
brokers sign, a forwarded request is signed: the signature names the caller's right, and no token leaves this process.
Where they do not sign, the caller's own token goes along.

A dedicated standby, which receives no metadata, forwards the reads that brokers answer by themselves, too. Where the
active controller is one of Kafka's own brokers, no process can be asked, and ZooKeeper is read before the answer.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec
import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from structlog.contextvars import bind_contextvars, bound_contextvars, get_contextvars

from controller.api.bodies import listener_asked, read_body
from controller.api.middleware.access import CALLER, REQUEST_ID
from controller.api.ports import ClusterView, ControllerHandle, NotControllerError, Reply, TermView, term_of
from controller.api.problems import ProblemError, moved_to, refusal_for, unavailable, unknown_outcome
from controller.base.config import Limits
from controller.core.belief.cluster import Cluster
from controller.core.codes import Code
from controller.core.events import Event
from controller.core.project.lines import Line
from controller.wire import bodies
from controller.wire.bodies import CONTROLLER_EPOCH, EVENT_ID, FORWARD, BrokerEntry, address_of
from controller.wire.client import Answer, HttpClient, NoAnswerError, UnreachableError
from controller.wire.signing import Incarnation, Signer

JSON: Final = "application/json"
PROBLEM_JSON: Final = "application/problem+json"


class Forwarding:
    """One per process."""

    def __init__(
        self,
        signer: Signer,
        own: Callable[[], Incarnation],
        routes: Mapping[str, str] | None = None,
        listener: str = bodies.HTTP_LISTENER,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        #: by which brokers reach each other
        self.listener = listener
        self._signer = signer
        self._own = own
        self._routes = routes
        self._tls = tls

    @property
    def signs(self) -> bool:
        return self._signer.signs

    def client(self) -> HttpClient:
        """Returns a client for one request. The caller closes it."""
        return HttpClient(routes=self._routes, tls=self._tls)

    def headers_for(
        self,
        request: web.Request,
        url: str,
        body: bytes,
        receiver: Incarnation,
        controller_epoch: int,
        method: str | None = None,
    ) -> dict[str, str]:
        """`method`: where it is not the caller's."""
        headers = {bodies.REQUEST_ID: request[REQUEST_ID], bodies.FORWARD: "0"}  # one hop and no more
        if not self._signer.signs:
            given = request.headers.get(hdrs.AUTHORIZATION)
            token = {} if given is None else {"Authorization": given}
            return {"Content-Type": JSON, **headers, **token}
        own = self._own()
        if own.epoch is None:
            raise unavailable(Code.BROKER_NOT_AVAILABLE.name, "this broker is not registered now; nothing was changed")
        headers |= {bodies.ROLE: request[CALLER].role.value, bodies.CONTROLLER_EPOCH: str(max(controller_epoch, 0))}
        return self._signer.headers_for(
            method or request.method, url, body, sender=own, receiver=receiver, more=headers
        )


def is_api_answer(method: str, said: Answer) -> bool:
    """Whether a controller gave the answer. A proxy in between may answer in its place, with an error page or cut
    short."""
    if said.headers.get("Content-Type", "").partition(";")[0] not in (JSON, PROBLEM_JSON):
        return False
    try:
        return method == "HEAD" or bodies.decode(said.body, msgspec.Raw) is not None
    except msgspec.DecodeError:
        return False


def passed_on(said: Answer, *names: str) -> web.Response:
    """Another process's answer as ours, with these of its headers."""
    kind = PROBLEM_JSON if said.status >= 400 else JSON
    kept = {name: said.headers[name] for name in names if name in said.headers}
    return web.Response(body=said.body, status=said.status, content_type=kind, headers=kept)


log = structlog.get_logger()

_R = TypeVar("_R", bound=Reply)


class Peers(Protocol):
    """The processes that may hold the seat beside this one, where they are no brokers."""

    async def learn(self) -> None:
        """Reads the present holder of the seat."""

    def entries(self) -> Sequence[BrokerEntry]:
        """Returns the result of `learn`."""

    @property
    def is_led_by_kafka(self) -> bool:
        """Whether it was learnt that one of Kafka's own brokers does."""

    async def look(self) -> None:
        """Look at the cluster of that broker's, so that the view shows it."""


#: gets the request and its whole body; may raise NotControllerError
LedHandler = Callable[[web.Request, bytes], Awaitable[web.Response]]


class ActiveController:
    """The holder of `/controller` now, by address. A forwarded request is never forwarded again."""

    def __init__(
        self,
        view: ClusterView,
        handle: ControllerHandle,
        limits: Limits,
        forwarding: Forwarding,
        peers: Peers | None = None,
    ) -> None:
        self._view = view
        self._handle = handle
        self._limits = limits
        self._forwarding = forwarding
        self._peers = peers

    def route(self, method: str, path: str, handler: LedHandler) -> web.RouteDef:
        """A path that the active controller serves: on a standby the request is sent there."""

        async def handle(request: web.Request) -> web.Response:
            raw = await read_body(request, self._limits.api_body_max_bytes)
            started = time.perf_counter()
            with bound_contextvars(event_id=None):  # `ask` knows it: a connection's requests share one context
                try:
                    response = await handler(request, raw)
                    self._name(request, response.status, response.headers, started)
                except NotControllerError:
                    return await self.pass_on(request, raw)
                except ProblemError as error:
                    self._name(request, error.status, error.headers, started)
                    raise
            return response

        return web.route(method, path, handle)

    def _name(self, request: web.Request, status: int, headers: MutableMapping[str, str], started: float) -> None:
        """Adds to the answer's headers the term, and the id that the request's znode writes, RPCs and lines carry,
        which the process's log has too. A request that never came before the loop has no event."""
        if (controller_epoch := self._handle.controller_epoch) is not None:
            headers[CONTROLLER_EPOCH] = str(controller_epoch)
        event_id = get_contextvars()["event_id"]
        if event_id is not None:
            headers[EVENT_ID] = event_id
            took_ms = round((time.perf_counter() - started) * 1_000, 1)
            log.info(
                "request.answered",
                request_id=request[REQUEST_ID],
                method=request.method,
                path=request.path,
                status=status,
                took_ms=took_ms,
            )

    @property
    def cluster(self) -> Cluster:
        """The belief of this process's controller, to be read only. Raises NotControllerError on a standby."""
        cluster = self._handle.cluster
        if cluster is None or not self._handle.is_active:
            raise NotControllerError
        return cluster

    def history(self) -> Sequence[TermView]:
        """The terms as the controller of this process knows them. Raises NotControllerError on a standby."""
        if not self._handle.is_active:
            raise NotControllerError
        return term_of(self._handle).history()

    def lines_about(self, topic: str, partition: int) -> Sequence[Line]:
        """Returns the lines of this term about a partition, the oldest first."""
        return term_of(self._handle).recent_lines.about(topic, partition)

    async def granted(self, event: Event, kind: type[_R], see: str) -> _R:
        """Returns the reply to a request that was carried out, of the kind that the event has; otherwise as `ask`."""
        reply = await self.ask(event, see)
        assert isinstance(reply, kind), f"{type(event).__name__} was answered by {type(reply).__name__}"
        return reply

    async def ask(self, event: Event, see: str, *, accept: Collection[Code] = (Code.NONE,)) -> Reply:
        """Returns the reply to a request that was carried out; a refusal is raised. When the outcome is unknown, `see`
        is the path that tells it."""
        reply = await term_of(self._handle).ask(event)
        if reply.event_id:
            bind_contextvars(event_id=reply.event_id)
        if reply.is_unknown:
            raise unknown_outcome(f"what became of it is not known; GET {see} says it")
        if reply.code not in accept:
            raise refusal_for(reply.code, reply.detail)
        return reply

    def passing_on(self, request: web.Request, body: bytes) -> tuple[str, dict[str, str]]:
        """Returns the URL and the headers with which to ask the holder of the seat the same on the caller's behalf.
        Raises the redirect, by the kind of listener that the caller came by, unless the caller asked for forwarding;
        and raises a refusal when no other process holds the seat now."""
        asked = request.headers.get(FORWARD)  # a peer that is in no list is no target for a redirect
        is_forwarded = asked == "1" or (asked is None and self._peers is not None)
        listener = self._forwarding.listener if is_forwarded else listener_asked(request, self._view)
        holder, address = self._holder(listener)
        location = f"{address}{request.rel_url.raw_path_qs}"
        if not is_forwarded:
            raise moved_to(location)
        receiver = Incarnation(holder.id, holder.epoch)
        return location, self._forwarding.headers_for(request, location, body, receiver, self._view.controller_epoch)

    def passing_to(self, request: web.Request, path: str) -> tuple[str, dict[str, str]]:
        """Returns where the process that holds the seat is asked something else by us, with the caller's right. Raises
        ProblemError as `passing_on`."""
        holder, address = self._holder(self._forwarding.listener)
        url, receiver = f"{address}{path}", Incarnation(holder.id, holder.epoch)
        return url, self._forwarding.headers_for(request, url, b"", receiver, self._view.controller_epoch, "GET")

    def _holder(self, listener: str) -> tuple[BrokerEntry, str]:
        """Whose process holds the seat, and where that listens, if it is another one."""
        seat = self._handle.seat
        if seat is not None and seat[0] != self._view.own_broker_id:
            known = self._view.brokers if self._peers is None else self._peers.entries()
            found = next((broker for broker in known if broker.id == seat[0]), None)
            address = None if found is None else address_of(found.endpoints, listener)
            if found is not None and address is not None:
                return found, address
            if self._peers is not None:
                detail = f"broker {seat[0]} is the controller, and none of ours: see `klamm takeover`"
                raise unavailable(Code.NOT_CONTROLLER.name, detail)
        if (trouble := self._handle.seat_trouble) is not None:
            raise unavailable(Code.NOT_CONTROLLER.name, f"nothing was changed: {trouble}")
        raise unavailable(Code.NOT_CONTROLLER.name, "there is no active controller now; nothing was changed, try again")

    async def learn_holders(self) -> None:
        """Reads the addresses of the processes that may have the seat by now, if this process receives no metadata."""
        if self._peers is not None:
            await self._peers.learn()

    def client(self) -> HttpClient:
        """Returns a client for one request to it. The caller closes it."""
        return self._forwarding.client()

    async def pass_on(self, request: web.Request, body: bytes) -> web.Response:
        """Passes a standby's request on to the active controller."""
        location, headers = self.passing_on(request, body)
        client = self.client()
        try:
            said = await client.send(request.method, location, body, headers, self._limits.request_deadline_ms)
            if not is_api_answer(request.method, said):
                raise NoAnswerError(f"{request.method} {location}: {said.status}, not in the API's form")
        except UnreachableError:
            raise unavailable(
                Code.NOT_CONTROLLER.name, "the controller cannot be reached; nothing was changed"
            ) from None
        except NoAnswerError:
            if request.method == "GET":
                raise unavailable(Code.NOT_CONTROLLER.name, "the controller did not answer; try again") from None
            raise unknown_outcome(f"the controller did not answer; GET {request.path} shows what there is") from None
        finally:
            await client.close()
        # this process has judged the caller already
        if said.status == 307 or (said.status == 401 and self._forwarding.signs):
            raise unavailable(Code.NOT_CONTROLLER.name, "the controller has just moved; nothing was changed, try again")
        return passed_on(said, EVENT_ID, CONTROLLER_EPOCH, "Retry-After")


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
