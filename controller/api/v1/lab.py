"""`/v1/lab`: the dashboard's way to the supervisor of a local lab, through the broker that serves the page.

It is there only where `klamm.lab.url` says so, which the lab itself writes. It passes on; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from controller.api.bodies import answer, read_body
from controller.api.problems import ProblemError, unavailable, unknown_outcome
from controller.api.routing.active import passed_on
from controller.base.config import BrokerConfig, Limits
from controller.security.secrets import Secrets
from controller.wire.client import HttpClient, NoAnswerError, UnreachableError

VERBS: Final = ("kill", "stop", "start", "freeze", "thaw", "cut", "heal", "break-disk", "mend-disk")


class Lab:
    """Handlers that ask the supervisor."""

    def __init__(self, config: BrokerConfig, secrets: Secrets, limits: Limits) -> None:
        self._url = config.klamm_lab_url
        self._secrets = secrets
        self._limits = limits

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/v1/lab", self.processes), web.post("/v1/lab/{verb}", self.order)]

    async def processes(self, request: web.Request) -> web.Response:
        """Outside a lab there are none."""
        return answer({"processes": []}) if self._url is None else await self._ask("GET", "ps", b"")

    async def order(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        if verb not in VERBS:
            raise ProblemError(404, "UNKNOWN_PATH", f"possible: {', '.join(VERBS)}")
        return await self._ask("POST", verb, await read_body(request, self._limits.api_body_max_bytes))

    async def _ask(self, method: str, path: str, body: bytes) -> web.Response:
        if self._url is None:
            raise ProblemError(404, "NO_LAB", "this broker belongs to no lab")
        client = HttpClient()
        headers = {"Content-Type": "application/json", **self._secrets.authorization(is_write=method != "GET")}
        timeout_ms = self._limits.request_deadline_ms
        try:
            said = await client.send(method, f"{self._url}/lab/v1/{path}", body, headers, timeout_ms)
        except UnreachableError:
            raise unavailable("NO_LAB", "the lab's supervisor cannot be reached; nothing was changed") from None
        except NoAnswerError:
            raise unknown_outcome("the lab's supervisor did not answer; GET /v1/lab shows what runs") from None
        finally:
            await client.close()
        return passed_on(said)
