"""Who may do what: which right each path needs, and which right a request brings.

What has no entry needs the highest right, so that a path that somebody adds is guarded before anybody thinks of it.
Where no secret is set for a right, everybody has it. It never looks at what is asked beyond method, path and headers,
except to see that a signed body is the one that was signed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from aiohttp import hdrs, web

from controller.api.bodies import read_body
from controller.api.problems import ProblemError
from controller.base.config import Limits
from controller.security.secrets import Secrets, is_one_of
from controller.wire import bodies
from controller.wire.signing import Incarnation, SignatureError, Verifier

AUTHENTICATION_REQUIRED: Final = "AUTHENTICATION_REQUIRED"
AUTHENTICATION_FAILED: Final = "AUTHENTICATION_FAILED"
#: Kafka's name (31) for one who is known and may not
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
    """Who asks; `via` is the broker that says so, -1 for nobody."""

    role: Role
    via: int = -1

    def __str__(self) -> str:
        if self.role is Role.BROKER:
            return f"broker {self.via}" if self.via >= 0 else "broker"
        return self.role if self.via < 0 else f"{self.role} via broker {self.via}"


#: set as soon as somebody was let in
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
        """Who asks. Raises ProblemError with 401 for nobody known, 403 for somebody who may not."""
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
