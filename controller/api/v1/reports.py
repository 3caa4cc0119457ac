"""`/v1/reports/latest`: the page that `klamm report` wrote last, where the configuration says it lies.

It is a file of somebody's making: it may not ask anybody for anything, nor act as part of this site.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from controller.api.problems import ProblemError
from controller.base.config import BrokerConfig

#: its own styles and script are in it
POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
)
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}


class Reports:
    """Handlers of one file."""

    def __init__(self, config: BrokerConfig) -> None:
        self._path = None if config.klamm_report_file is None else Path(config.klamm_report_file)

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/v1/reports/latest", self.latest)]

    async def latest(self, request: web.Request) -> web.Response:
        try:
            page = b"" if self._path is None else await asyncio.to_thread(self._path.read_bytes)
        except OSError:
            page = b""
        if not page:
            raise ProblemError(404, "NO_REPORT", "there is no report yet; `klamm report` makes one")
        headers = {**HEADERS, "Content-Security-Policy": POLICY}
        return web.Response(body=page, content_type="text/html", charset="utf-8", headers=headers)
