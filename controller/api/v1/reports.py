"""The results of the log jobs, in the files that the configuration names: `/v1/reports/latest` and `/v1/aggregates`.

`klamm report` writes the page. Any program may have made the file, so the page may send no request, nor act as part of
this site. `klamm logs stream` writes the sums so far, in `klamm up --aggregate` and in the compose file; nothing here
waits for it. The answer always says how old the sums are, because the job may have ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog
from aiohttp import web

from controller.api.bodies import answer
from controller.api.problems import ProblemError
from controller.base.clock import wall_ms
from controller.base.config import BrokerConfig
from controller.wire.bodies import decode

#: its own styles and script are in it
POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
)
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}


#: no more is read of a file that something else wrote
BYTES_MAX: Final = 1 << 20

log = structlog.get_logger()


class Leaderless(msgspec.Struct, frozen=True):
    """A partition without a leader, once or now."""

    topic: str
    partition: int
    start_ms: int
    felt_from_ms: int
    end_ms: int | None = None
    cause: str = "unknown"
    first_broker: int | None = None
    leader: int | None = None
    unclean: bool = False
    unseen: str | None = None


class MoveCount(msgspec.Struct, frozen=True):
    """How often partitions, or replicas, moved from one state to another, for one cause."""

    machine: str
    target: str
    times: int
    last_ms: int
    source: str | None = None
    cause: str | None = None


class Aggregates(msgspec.Struct, frozen=True):
    """Of this cluster, from its logs."""

    kept_by: str
    looked_ms: int
    from_ms: int | None
    to_ms: int | None
    events: int
    controllers: int
    outages: int
    partitions: int
    leaderless_now: int
    leaderless_unknown: int
    leaderless_ms: int
    longest_felt_ms: int
    latest: list[Leaderless]
    moves: list[MoveCount]


class AggregatesBody(msgspec.Struct, frozen=True):
    """`kept`: whether somebody is to keep them. Where `aggregates` is null `detail` says why. `age_ms`: since they
    were written, as after each look at the logs."""

    kept: bool
    aggregates: Aggregates | None
    age_ms: int | None = None
    detail: str | None = None


class Reports:
    """Handlers of the two files."""

    def __init__(self, config: BrokerConfig) -> None:
        self._report = None if config.klamm_report_file is None else Path(config.klamm_report_file)
        self._aggregates = None if config.klamm_aggregates_file is None else Path(config.klamm_aggregates_file)

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/v1/reports/latest", self.latest), web.get("/v1/aggregates", self.aggregates)]

    async def latest(self, request: web.Request) -> web.Response:
        try:
            page = b"" if self._report is None else await asyncio.to_thread(self._report.read_bytes)
        except OSError:
            page = b""
        if not page:
            raise ProblemError(404, "NO_REPORT", "there is no report yet; `klamm report` makes one")
        headers = {**HEADERS, "Content-Security-Policy": POLICY}
        return web.Response(body=page, content_type="text/html", charset="utf-8", headers=headers)

    async def aggregates(self, request: web.Request) -> web.Response:
        if self._aggregates is None:
            return answer(
                AggregatesBody(False, None, detail="nobody keeps aggregates here; `klamm up --aggregate` does")
            )
        try:
            found, written_ms = await asyncio.to_thread(_read, self._aggregates)
        except FileNotFoundError:
            return answer(AggregatesBody(True, None, detail="none yet: who is to keep them has written none"))
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            log.warning("aggregates.unreadable", path=str(self._aggregates), error=str(error))
            return answer(AggregatesBody(True, None, detail="what was kept cannot be read; this broker's log says why"))
        return answer(AggregatesBody(True, found, age_ms=max(0, wall_ms() - written_ms)))


def _read(path: Path) -> tuple[Aggregates, int]:
    """Returns the sums, and when their file was written: by this machine, whatever clock their keeper goes by."""
    with path.open("rb") as file:
        text, written_ms = file.read(BYTES_MAX + 1), os.fstat(file.fileno()).st_mtime_ns // 1_000_000
    if len(text) > BYTES_MAX:
        raise ValueError(f"larger than {BYTES_MAX} bytes")
    return decode(text, Aggregates), written_ms
