"""`/v1/matrix`: a row per topic, its partitions packed into arrays, for pages that show 100,000 of them.

From the metadata of this broker. A caller with the ETag of an answer learns at no cost that nothing has changed.
Callers at the same time share one answer.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from aiohttp import hdrs, web

from controller.api.bodies import PageQuery, query_of
from controller.api.counts import PartitionState, live_ids_of, state_of
from controller.api.listing import Cursor, PageBytes, cursor_of, pieces_of
from controller.api.ports import ClusterView
from controller.api.reader_turns import Answers, ReaderTurns
from controller.core.model import Replicas
from controller.wire.bodies import PartitionRow

#: a partition's state is a letter of its own
LETTERS: Final = {
    PartitionState.NEW: "c",
    PartitionState.ONLINE: "o",
    PartitionState.NOT_PREFERRED: "n",
    PartitionState.UNDER_REPLICATED: "u",
    PartitionState.OFFLINE: "x",
}


class MatrixRow(msgspec.Struct, frozen=True):
    """One topic. Arrays and letters go by the position in `partitions`. The usual is left out of the maps, whose keys
    are partition numbers: an ISR of all replicas that are not being added, nothing added, nothing removed."""

    topic: str
    partitions: Sequence[int]
    leaders: Sequence[int]
    #: a letter each: o online, n not led by its first replica, u under-replicated, x offline, c created and never led
    states: str
    replicas: Sequence[Replicas]
    isr: Mapping[int, Replicas]
    adding: Mapping[int, Replicas]
    removing: Mapping[int, Replicas]


class Matrix:
    def __init__(self, view: ClusterView, answers: Answers, turns: ReaderTurns) -> None:
        self._view = view
        self._answers = answers
        self._turns = turns
        #: versions are counted anew in each process
        self._boot = secrets.token_hex(4)

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/v1/matrix", self.matrix)]

    async def matrix(self, request: web.Request) -> web.Response:
        query = query_of(request, PageQuery)
        tag = f'"{self._boot}-{self._view.metadata_version}"'
        headers = {hdrs.ETAG: tag, hdrs.CACHE_CONTROL: "no-cache"}
        if request.headers.get(hdrs.IF_NONE_MATCH) == tag:
            return web.Response(status=304, headers=headers)
        response = await self._answers.told(("matrix", query), partial(self._page, query))
        response.headers.update(headers)
        return response

    async def _page(self, query: PageQuery) -> bytes:
        """Whole topics after the cursor, until there are `limit` or enough partitions."""
        names = self._view.topic_names
        after = 0 if query.cursor is None else bisect_right(names, cursor_of(query.cursor).topic)
        wanted, live_ids = names[after : after + query.limit], live_ids_of(self._view.brokers)
        is_cut = after + query.limit < len(names)
        page, row = PageBytes(), RowInPieces()
        left = self._turns.limits.matrix_partitions_per_page
        async for piece in pieces_of(self._view, wanted, self._turns):
            row.add(piece.rows, live_ids)
            left -= len(piece.rows)
            if not piece.is_last:
                continue
            page.add([row.whole(piece.topic.topic)])
            row = RowInPieces()
            if left <= 0 and piece.topic.topic != wanted[-1]:
                return page.whole(Cursor(piece.topic.topic))
        return page.whole(Cursor(wanted[-1]) if is_cut else None)


class RowInPieces:
    """A topic's row, while its partitions are walked in order of their numbers."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._leaders: list[int] = []
        self._letters: list[str] = []
        self._replicas: list[Replicas] = []
        self._isr: dict[int, Replicas] = {}
        self._adding: dict[int, Replicas] = {}
        self._removing: dict[int, Replicas] = {}

    def add(self, rows: Sequence[PartitionRow], live_ids: Collection[int]) -> None:
        for row in rows:
            number = row.partition
            self._numbers.append(number)
            self._leaders.append(row.leader)
            self._letters.append(LETTERS[state_of(row, live_ids)])
            self._replicas.append(row.replicas)
            if set(row.isr) != set(row.replicas) - set(row.adding):
                self._isr[number] = row.isr
            if row.adding:
                self._adding[number] = row.adding
            if row.removing:
                self._removing[number] = row.removing

    def whole(self, topic: str) -> MatrixRow:
        letters = "".join(self._letters)
        usual_not = (self._isr, self._adding, self._removing)
        return MatrixRow(topic, self._numbers, self._leaders, letters, self._replicas, *usual_not)
