"""Answers of the active controller beyond the present state: a partition's story, what-if, the terms of the past.

Computed from belief by pure functions of the core; nothing is written or sent to brokers. A long computation is done in
turns, and begun again where belief has changed in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Final

import msgspec
from aiohttp import web

from controller.api.bodies import LISTED, Page, answer, decode_body, number_in_path
from controller.api.ports import BusyError, TermView
from controller.api.problems import invalid, refusal_for
from controller.api.reader_turns import Answers, ReaderTurns
from controller.api.routing.active import ActiveController
from controller.base.clock import monotonic_ms
from controller.core.codes import Code
from controller.core.model import Int32
from controller.core.questions.explain import explain
from controller.core.questions.whatif import what_if_in_pieces


class WhatIfBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kill: Annotated[Sequence[Int32], LISTED]


class TermBody(msgspec.Struct, frozen=True):
    """A term; one that is not over has neither an end nor a reason for it."""

    controller_epoch: int
    broker_id: int
    from_ms: int
    to_ms: int | None
    why: str | None
    phases: Mapping[str, float]


#: of a computation that belief overtakes
BEGUN_AGAIN_MAX: Final = 5


class Insights:
    """Handlers that only the active controller can answer."""

    def __init__(self, active: ActiveController, answers: Answers, turns: ReaderTurns) -> None:
        self._active = active
        self._answers = answers
        self._turns = turns

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            self._active.route("GET", "/v1/partitions/{topic}/{partition}/story", self.story),
            self._active.route("POST", "/v1/what-if", self.what_if),
            self._active.route("GET", "/v1/controller/history", self.history),
        ]

    async def story(self, request: web.Request, raw: bytes) -> web.Response:
        topic, number, cluster = request.match_info["topic"], number_in_path(request, "partition"), self._active.cluster
        if cluster.partition(topic, number) is None:
            raise refusal_for(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{number}")
        return answer(explain(cluster, topic, number, self._active.lines_about(topic, number)))

    async def what_if(self, request: web.Request, raw: bytes) -> web.Response:
        killed = decode_body(raw, WhatIfBody).kill
        cluster = self._active.cluster
        if not killed or len(set(killed)) != len(killed):
            raise invalid("name one or more different brokers")
        if absent := sorted(set(killed) - cluster.live_ids):
            raise refusal_for(Code.BROKER_ID_NOT_REGISTERED, f"not live, so nothing can be killed: {absent}")
        question = ("what-if", frozenset(killed))
        return await self._answers.answer(question, self._belief, partial(self._imagined, frozenset(killed)))

    def _belief(self) -> object:
        cluster = self._active.cluster
        return cluster.controller_epoch, cluster.revision

    async def _imagined(self, killed: frozenset[int]) -> bytes:
        for _ in range(BEGUN_AGAIN_MAX):
            await self._turns.next()
            belief = self._belief()
            room = self._turns.limits.partitions_per_turn
            pieces = what_if_in_pieces(self._active.cluster, killed, monotonic_ms(), seed=0, changes_per_piece=room)
            while self._belief() == belief:
                try:
                    next(pieces)
                except StopIteration as end:
                    return msgspec.json.encode(end.value)
                await self._turns.next()
        raise BusyError("what is believed changes too fast now; ask again when the cluster is calmer")

    async def history(self, request: web.Request, raw: bytes) -> web.Response:
        return answer(Page([term_body(term) for term in self._active.history()]))


def term_body(term: TermView) -> TermBody:
    return TermBody(term.controller_epoch, term.broker_id, term.from_ms, term.to_ms, term.why, term.phases)
