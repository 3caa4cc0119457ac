"""A line for each request that changes something or was refused for who asked: who, from where, what, and how it ended.

It writes to the process's log and counts nothing, changes nothing, refuses nothing. No header and no body is in it.
"""

from __future__ import annotations

import re
from itertools import count
from secrets import token_hex
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from controller.api.middleware.access import (
    CALLER,
    Access,
    Role,
    access_for,
)
from controller.api.middleware.origin import route_of
from controller.api.problems import CODE
from controller.wire import bodies

#: what a caller may name its request
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
PATH_CHARACTERS_MAX: Final = 300
#: kept from one request to the next: under which name it was asked
REQUEST_ID: Final = web.RequestKey("request id", str)

log = structlog.get_logger()


def audit_for() -> Middleware:
    """The middleware; request ids begin with what no other process drew."""
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
