"""`/v1/matrix`: a row per topic, its partitions packed into arrays, for pages that show 100,000 of them.

From what this broker was told. Who asks again with the ETag of an answer is told at no cost that nothing has changed.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import hdrs, web

from controller.api.bodies import Page, PageQuery, query_of
from controller.api.counts import PartitionState, live_ids_of, state_of
from controller.api.listing import Cursor, cursor_of, topics_of
from controller.api.view import ClusterView, TopicView
from controller.config import Limits
from controller.core.model import Replicas

#: a partition's state is a letter of its own
LETTERS: Final = {
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
    #: a letter each: o online, n not led by its first replica, u under-replicated, x offline
    states: str
    replicas: Sequence[Replicas]
    isr: Mapping[int, Replicas]
    adding: Mapping[int, Replicas]
    removing: Mapping[int, Replicas]


class Matrix:
    def __init__(self, view: ClusterView, limits: Limits) -> None:
        self._view = view
        self._limits = limits
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
        body = msgspec.json.encode(await self._page(query))
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _page(self, query: PageQuery) -> Page:
        """Whole topics after the cursor, until there are `limit` or enough partitions."""
        names = self._view.topic_names
        after = 0 if query.cursor is None else bisect_right(names, cursor_of(query.cursor).topic)
        wanted, live_ids = names[after : after + query.limit], live_ids_of(self._view.brokers)
        is_cut = after + query.limit < len(names)
        rows: list[MatrixRow] = []
        left = self._limits.matrix_partitions_per_page
        async for topic in topics_of(self._view, wanted):
            rows.append(row_for(topic, live_ids))
            left -= len(topic.partitions)
            if left <= 0 and topic.topic != wanted[-1]:
                return Page(rows, str(Cursor(topic.topic)))
        return Page(rows, str(Cursor(wanted[-1])) if is_cut else None)


def row_for(topic: TopicView, live_ids: Collection[int]) -> MatrixRow:
    rows = sorted(topic.partitions, key=lambda row: row.partition)
    return MatrixRow(
        topic=topic.topic,
        partitions=[row.partition for row in rows],
        leaders=[row.leader for row in rows],
        states="".join(LETTERS[state_of(row, live_ids)] for row in rows),
        replicas=[row.replicas for row in rows],
        isr={row.partition: row.isr for row in rows if set(row.isr) != set(row.replicas) - set(row.adding)},
        adding={row.partition: row.adding for row in rows if row.adding},
        removing={row.partition: row.removing for row in rows if row.removing},
    )
