"""The rights of callers: checks of the origin, the right that a path needs, the right that a request brings, and the
audit line.

A path without an entry needs the highest right, so that a new path is guarded by default. If no secret is set for a
right, every caller has it. The checks of the origin keep a web page, open in the same browser, from driving a cluster
on loopback. All of this looks at method, path and headers only, before any handler runs; of a body it checks only that
it is the one that was signed.

The audit has a line for each request that changes something, or that was refused because of its caller: the caller, the
request, and its end. The line goes to the process's log, and has no header and no body in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from itertools import count
from secrets import token_hex
from typing import Any, Final, NamedTuple

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from controller.api.bodies import read_body
from controller.api.middleware.connections import let_in
from controller.api.problems import CODE, ProblemError
from controller.base.config import LIMITS, Limits
from controller.security.secrets import Secrets, is_one_of
from controller.wire import bodies
from controller.wire.signing import Incarnation, SignatureError, Verifier

AUTHENTICATION_REQUIRED: Final = "AUTHENTICATION_REQUIRED"
AUTHENTICATION_FAILED: Final = "AUTHENTICATION_FAILED"
#: Kafka's name (31) for a known caller without the right
NOT_ALLOWED: Final = "CLUSTER_AUTHORIZATION_FAILED"
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="klamm"'}


class Access(StrEnum):
    """What a path needs."""

    OPEN = "open"
    READ = "read"
    ADMIN = "admin"
    BROKER = "broker"


class Role(StrEnum):
    """What a caller is."""

    NONE = "none"
    READER = "reader"
    ADMIN = "admin"
    BROKER = "broker"


class Caller(NamedTuple):
    """The caller. `via` is the broker that vouches for it, -1 for none."""

    role: Role
    via: int = -1

    def __str__(self) -> str:
        if self.role is Role.BROKER:
            return f"broker {self.via}" if self.via >= 0 else "broker"
        return self.role if self.via < 0 else f"{self.role} via broker {self.via}"


#: set as soon as a caller was let in
CALLER: Final = web.RequestKey("caller", Caller)

#: probes, and files that say nothing of the cluster
_OPEN: Final = {"/livez", "/readyz", "/openapi.json", "/docs", "/docs/{name}", "/", "/dashboard/{name}"}
#: a POST that changes nothing
_READING_POSTS: Final = {"/v1/what-if"}


def access_for(method: str, path: str) -> Access:
    """`path` as the route has it, such as `/v1/topics/{topic}`."""
    is_reading = method in ("GET", "HEAD")
    if path.startswith("/rpc/"):
        return Access.BROKER
    if path in _OPEN and is_reading:
        return Access.OPEN
    if is_reading or (method == "POST" and path in _READING_POSTS):
        return Access.READ
    return Access.ADMIN


def nobody() -> Incarnation:
    """For a server that brokers do not speak to."""
    return Incarnation(-1, None)


class Gate:
    """Lets a request in, or says why not."""

    def __init__(self, secrets: Secrets, own: Callable[[], Incarnation], limits: Limits) -> None:
        self._secrets = secrets
        self._verifier = Verifier(secrets.rpc_secrets, own)
        self._limits = limits

    async def admit(self, request: web.Request, access: Access) -> Caller:
        """Returns the caller. Raises ProblemError with 401 for an unknown caller, 403 for one without the right."""
        if access is Access.OPEN:
            return Caller(Role.NONE)
        if self._verifier.demands and (access is Access.BROKER or bodies.SIGNATURE in request.headers):
            caller = await self._signed_caller(request)
        elif access is Access.BROKER:
            return Caller(Role.BROKER)
        elif self._is_open(access):
            return Caller(Role.NONE)
        else:
            caller = Caller(self._role_by_token(request))
        if not self._may(caller.role, access):
            raise ProblemError(403, NOT_ALLOWED, f"this needs the right to {_RIGHTS[access]}, and yours is less")
        return caller

    def _is_open(self, access: Access) -> bool:
        secrets = self._secrets
        guards = {
            Access.READ: secrets.read_tokens,
            Access.ADMIN: secrets.api_tokens,
            Access.BROKER: secrets.rpc_secrets,
        }
        return not guards.get(access, ())

    def _may(self, role: Role, access: Access) -> bool:
        match access:
            case Access.BROKER:
                return role is Role.BROKER
            case Access.ADMIN:
                return role is Role.ADMIN or self._is_open(access)
            case Access.READ:
                return role in (Role.READER, Role.ADMIN) or self._is_open(access)
            case Access.OPEN:
                return True

    def _role_by_token(self, request: web.Request) -> Role:
        given = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not given:
            detail = "send the header `Authorization: Bearer <token>` (for `klamm`: set KLAMM_API_TOKEN)"
            raise ProblemError(401, AUTHENTICATION_REQUIRED, detail, headers=_CHALLENGE)
        scheme, _, token = given[0].partition(" ")
        is_plain = len(given) == 1 and scheme.lower() == "bearer"
        if is_plain and is_one_of(token.strip(), self._secrets.api_tokens):
            return Role.ADMIN
        if is_plain and is_one_of(token.strip(), self._secrets.read_tokens):
            return Role.READER
        raise ProblemError(401, AUTHENTICATION_FAILED, "that is no token of this cluster", headers=_CHALLENGE)

    async def _signed_caller(self, request: web.Request) -> Caller:
        try:
            signed = self._verifier.judge(request.method, request.raw_path, request.headers.items())
            is_rpc = request.path.startswith("/rpc/")
            limit = self._limits.rpc_body_max_bytes if is_rpc else self._limits.api_body_max_bytes
            self._verifier.admit(signed, await read_body(request, limit))
        except SignatureError as error:
            raise ProblemError(401, AUTHENTICATION_FAILED, str(error)) from None
        role = Role.BROKER if not signed.role else _role_named(signed.role)
        return Caller(role, signed.sender.broker_id)


_RIGHTS: Final = {
    Access.OPEN: "ask",
    Access.READ: "read",
    Access.ADMIN: "change things",
    Access.BROKER: "speak for a broker",
}


def _role_named(name: str) -> Role:
    if name not in (Role.NONE, Role.READER, Role.ADMIN):
        raise ProblemError(403, NOT_ALLOWED, "nobody has such a role")
    return Role(name)


_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def allowed_hosts_for(listeners: Iterable[str]) -> frozenset[str]:
    """Returns the values of Host that mean this process; on loopback also `localhost`, which no other site can
    claim."""
    hosts = {listener.lower() for listener in listeners}
    return frozenset(hosts | {f"localhost:{host.partition(':')[2]}" for host in hosts if host.startswith("127.0.0.1:")})


def guard_for(listeners: Iterable[str], gate: Gate) -> Middleware:
    """Returns the middleware that refuses foreign hosts, foreign origins, writes that are not declared as JSON, and
    callers that the gate does not let in."""
    hosts = allowed_hosts_for(listeners)
    origins = {scheme: frozenset(f"{scheme}://{host}" for host in hosts) for scheme in ("http", "https")}

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if sum(len(name) + len(value) for name, value in request.raw_headers) > LIMITS.head_max_bytes:
            raise ProblemError(431, "HEADERS_TOO_LARGE", f"all headers together may have {LIMITS.head_max_bytes} bytes")
        if not _are_all_in(request, hdrs.HOST, hosts) or hdrs.HOST not in request.headers:
            raise ProblemError(403, "FOREIGN_HOST", f"the Host header must be one of: {', '.join(sorted(hosts))}")
        if not _are_all_in(request, hdrs.ORIGIN, origins[request.scheme]):
            raise ProblemError(403, "FOREIGN_ORIGIN", "a page of another origin may not ask here")
        if request.method not in _SAFE_METHODS and request.content_type != "application/json":
            raise ProblemError(415, "UNSUPPORTED_MEDIA_TYPE", "a write needs the header Content-Type: application/json")
        access = access_for(request.method, route_of(request))
        request[CALLER] = await gate.admit(request, access)
        let_in(request, is_reading=access in (Access.OPEN, Access.READ))
        return await handler(request)

    return guard


def route_of(request: web.Request) -> str:
    """The path as the route has it; as it was asked where there is no route."""
    resource = request.match_info.route.resource
    return request.path if resource is None else resource.canonical


def _are_all_in(request: web.Request, header: str, allowed: frozenset[str]) -> bool:
    values: Any = request.headers.getall(header, ())
    return all(value.lower() in allowed for value in values)


#: a caller's own id for its request
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
PATH_CHARACTERS_MAX: Final = 300
#: kept from one request to the next: under which name it was asked
REQUEST_ID: Final = web.RequestKey("request id", str)

log = structlog.get_logger()


def audit_for() -> Middleware:
    """Returns the audit middleware. Request ids begin with a random prefix of this process."""
    numbers, prefix = count(1), token_hex(4)

    @web.middleware
    async def audit(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get(bodies.REQUEST_ID, "")
        request[REQUEST_ID] = given if _ID.fullmatch(given) else f"{prefix}-{next(numbers)}"
        response = await handler(request)
        if not response.prepared:
            response.headers[bodies.REQUEST_ID] = request[REQUEST_ID]
        access = access_for(request.method, route_of(request))
        if access is Access.ADMIN:
            _say("mutation.audited", request, response)
        elif response.status in (401, 403):
            _say("request.refused", request, response)
        return response

    return audit


def _say(event: str, request: web.Request, response: web.StreamResponse) -> None:
    log.info(
        event,
        principal=str(request[CALLER]) if CALLER in request else Role.NONE.value,
        peer=request.remote,
        request_id=request[REQUEST_ID],
        method=request.method,
        path=request.rel_url.raw_path[:PATH_CHARACTERS_MAX],
        status=response.status,
        code=response.get(CODE),
        event_id=response.headers.get(bodies.EVENT_ID),
    )
