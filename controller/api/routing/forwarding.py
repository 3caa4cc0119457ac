"""How a request is passed on to the active controller: which way, with which headers, and what counts as its answer.

Where brokers sign, ours does: it says what the caller may do, and no token leaves this process. Where they do not, the
caller's own token goes along. It sends nothing itself.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from aiohttp import hdrs, web

from controller.api.middleware.access import CALLER
from controller.api.middleware.audit import REQUEST_ID
from controller.api.problems import unavailable
from controller.core.codes import Code
from controller.wire import bodies
from controller.wire.client import Answer, HttpClient
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
        """For one request; who asked for it closes it."""
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
    """Whether a controller said it: what stands between may answer in its place, with an error page or cut short."""
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
