"""What stands before every handler: the checks that keep a web page, open in the same browser, from driving a cluster
on loopback; then who asks, and whether they may (`access.py`).

It looks at headers only, and before any handler runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from controller.api.middleware.access import CALLER, Access, Gate, access_for
from controller.api.middleware.connections import let_in
from controller.api.problems import ProblemError
from controller.base.config import LIMITS

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def allowed_hosts_for(listeners: Iterable[str]) -> frozenset[str]:
    """The values of Host that mean this process; on loopback also `localhost`, which no other site can claim."""
    hosts = {listener.lower() for listener in listeners}
    return frozenset(hosts | {f"localhost:{host.partition(':')[2]}" for host in hosts if host.startswith("127.0.0.1:")})


def guard_for(listeners: Iterable[str], gate: Gate) -> Middleware:
    """The middleware that refuses foreign hosts, foreign origins, writes that are not declared as JSON, and whom the
    gate does not let in."""
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
