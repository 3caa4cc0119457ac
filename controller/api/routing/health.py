"""The cluster's health. Every process gives one answer: the active controller's own, which the others ask for.

A process that gets no answer from it reports `unknown`, and never green, however good the figures of its metadata are.
It asks with the rights of its caller, once for all callers at the same time, and waits no longer than a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from aiohttp import web

from controller.api.bodies import own_verdict
from controller.api.counts import CUT_OFF, RED, UNKNOWN, YELLOW, Summary, Verdict
from controller.api.ports import ClusterView, ControllerHandle
from controller.api.problems import ProblemError
from controller.api.reader_turns import SharedAnswers
from controller.api.routing.active import ActiveController
from controller.base.clock import wall_ms
from controller.wire import bodies
from controller.wire.client import ExchangeError

PATH: Final = "/healthz/cluster"
STANDBY: Final = "standby"
#: a controller that answers later is as good as none, to a monitoring caller
PATIENCE_MS: Final = 1_000
#: an answer that is no older is the last sign of life; before that no caller asked
FRESH_S: Final = 2.0


class Health:
    """The health of the cluster as one process reports it."""

    def __init__(self, view: ClusterView, handle: ControllerHandle, active: ActiveController) -> None:
        self._view = view
        self._handle = handle
        self._active = active
        self._asked: SharedAnswers[Verdict | None] = SharedAnswers(kept_s=0)
        self._heard_at: float | None = None  # when the controller answered last, by the loop's clock
        self._figures_of: int | None = None  # and by the wall's
        self._silent_since: float | None = None

    def close(self) -> None:
        self._asked.close()

    async def verdict(self, request: web.Request, summary: Summary) -> Verdict:
        """Returns the verdict upon the cluster, for callers that may read."""
        own = own_verdict(self._view, self._handle, summary)
        if self._handle.phase != STANDBY or self._view.is_led_by_kafka:
            self._heard()
            return own
        said = None
        if request.headers.get(bodies.FORWARD) != "0":  # such a caller took this process for the controller
            said = await self._asked.ask(PATH, lambda: self._handle.seat, lambda: self._ask(request))
        if said is None:
            return self._unknown(own)
        self._heard()
        also = [] if self._handle.is_registered else [CUT_OFF]
        also += [] if self._handle.seat_trouble is None else [self._handle.seat_trouble]
        return _also(said, also) if also else said

    async def _ask(self, request: web.Request) -> Verdict | None:
        """Returns the controller's verdict; None where no process gives one, or only a malformed one."""
        await self._active.learn_holders()
        try:
            url, headers = self._active.passing_to(request, PATH)
        except ProblemError:
            return None
        client = self._active.client()
        try:
            status, body = await client.get(url, headers, PATIENCE_MS)
            said = bodies.decode(body, Verdict)
        except (ExchangeError, msgspec.DecodeError):
            return None
        finally:
            await client.close()
        return said if status in (200, 503) and said.status != UNKNOWN else None

    def _heard(self) -> None:
        self._heard_at, self._figures_of = asyncio.get_running_loop().time(), wall_ms()
        self._silent_since = None

    def _unknown(self, own: Verdict) -> Verdict:
        """Returns the verdict of a process without a controller: since when it has none, the age of its figures, and
        the figures."""
        now = asyncio.get_running_loop().time()
        if self._silent_since is None:
            is_fresh = self._heard_at is not None and now - self._heard_at <= FRESH_S
            self._silent_since = self._heard_at if is_fresh and self._heard_at is not None else now
        text = f"no controller for {now - self._silent_since:.1f} s"
        if self._figures_of is not None:
            text += f"; figures of {datetime.fromtimestamp(self._figures_of / 1_000, UTC):%H:%M:%S}"
        is_for_people = self._handle.seat_trouble is not None
        return Verdict(RED if is_for_people else UNKNOWN, [text, *own.reasons])


def _also(said: Verdict, reasons: Sequence[str]) -> Verdict:
    return Verdict(said.status if said.status == RED else YELLOW, [*said.reasons, *reasons])
