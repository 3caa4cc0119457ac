"""`/v1/aggregates`: what a stream of the state-change logs came to so far, where the configuration says that it lies.

`klamm logs stream` writes the file, in `klamm up --aggregate` and in the compose file; nothing here waits for it. Who
asks always learns how old it is: whoever kept it may be gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog
from aiohttp import web

from controller.api.bodies import answer
from controller.base.clock import wall_ms
from controller.base.config import BrokerConfig
from controller.wire.bodies import decode

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
    """`kept`: whether somebody is to keep them. Where `aggregates` is null `detail` says why. `age_ms`: since the logs
    were looked at."""

    kept: bool
    aggregates: Aggregates | None
    age_ms: int | None = None
    detail: str | None = None


class Aggregated:
    """Handlers of one file."""

    def __init__(self, config: BrokerConfig) -> None:
        self._path = None if config.klamm_aggregates_file is None else Path(config.klamm_aggregates_file)

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/v1/aggregates", self.read)]

    async def read(self, request: web.Request) -> web.Response:
        if self._path is None:
            return answer(
                AggregatesBody(False, None, detail="nobody keeps aggregates here; `klamm up --aggregate` does")
            )
        try:
            found = await asyncio.to_thread(_read, self._path)
        except FileNotFoundError:
            return answer(AggregatesBody(True, None, detail="none yet: who is to keep them has written none"))
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            log.warning("aggregates.unreadable", path=str(self._path), error=str(error))
            return answer(AggregatesBody(True, None, detail="what was kept cannot be read; this broker's log says why"))
        return answer(AggregatesBody(True, found, age_ms=max(0, wall_ms() - found.looked_ms)))


def _read(path: Path) -> Aggregates:
    with path.open("rb") as file:
        text = file.read(BYTES_MAX + 1)
    if len(text) > BYTES_MAX:
        raise ValueError(f"larger than {BYTES_MAX} bytes")
    return decode(text, Aggregates)
