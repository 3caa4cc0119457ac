"""The dashboard's files at `/` and `/dashboard/…`, under a policy that lets the page ask nobody but the brokers.

Of the others the page asks only whether they live, to go to one of them when the broker that served it falls silent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from aiohttp import web

from controller.api.ports import ClusterView
from controller.dashboard import asset
from controller.wire.bodies import address_of

HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'"
#: what others registered goes into a header only if it is plainly an address
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
    """The Content-Security-Policy: everything from here, and these may be asked."""
    plain = [address for address in addresses if ADDRESS.fullmatch(address)]
    return " ".join([POLICY, *plain[:ADDRESSES_MAX]])
