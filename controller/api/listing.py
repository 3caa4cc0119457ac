"""Reading a cluster of 100,000 partitions without holding up the loop: in pages, and counted once per version.

Pages are stable: a cursor names the last thing seen, so what comes and goes between two pages moves nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from controller import wire
from controller.api.bodies import Page, PageQuery, PartitionsQuery, partition_body, topic_body
from controller.api.counts import Summary, has_state, live_ids_of
from controller.api.problems import invalid
from controller.api.view import ClusterView, TopicView

#: the loop is given back after this long, so that pings and RPCs go on
SLICE_MS: Final = 5


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The last thing a page showed: a topic, or one partition of it."""

    topic: str
    partition: int = -1

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def cursor_of(text: str) -> Cursor:
    try:
        return wire.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), Cursor)
    except (ValueError, binascii.Error):
        raise invalid(f"the cursor {text!r} is none that this API gave") from None


async def topics_of(view: ClusterView, names: Sequence[str]) -> AsyncIterator[TopicView]:
    """These topics one by one, as far as they are still there, giving the loop back every few milliseconds."""
    pause_at = time.perf_counter() + SLICE_MS / 1_000
    for name in names:
        topic = view.topic(name)
        if topic is not None:
            yield topic
        if time.perf_counter() >= pause_at:
            await asyncio.sleep(0)
            pause_at = time.perf_counter() + SLICE_MS / 1_000


async def partitions_page(view: ClusterView, query: PartitionsQuery) -> Page:
    """The partitions that match, in order of topic and number, after the cursor."""
    after = None if query.cursor is None else cursor_of(query.cursor)
    live_ids = live_ids_of(view.brokers)
    found: list[object] = []
    last: Cursor | None = None
    async for topic in topics_of(view, _names_from(view, after, query.topic)):
        for row in sorted(topic.partitions, key=lambda row: row.partition):
            if after is not None and (topic.topic, row.partition) <= (after.topic, after.partition):
                continue
            if query.state is not None and not has_state(row, query.state, live_ids):
                continue
            if query.broker is not None and query.broker not in row.replicas:
                continue
            if len(found) == query.limit:
                return Page(found, str(last))
            found.append(partition_body(topic.topic, row, live_ids))
            last = Cursor(topic.topic, row.partition)
    return Page(found)


async def topics_page(view: ClusterView, query: PageQuery) -> Page:
    """Topics in numbers, in order of their names, after the cursor."""
    after = None if query.cursor is None else cursor_of(query.cursor)
    names = [name for name in _names_from(view, after) if after is None or name > after.topic]
    page = names[: query.limit]
    found = [topic_body(topic, view.brokers) async for topic in topics_of(view, page)]
    return Page(found, str(Cursor(page[-1])) if len(names) > len(page) else None)


def _names_from(view: ClusterView, after: Cursor | None, only: str | None = None) -> Sequence[str]:
    if only is not None:
        return [only]
    names = view.topic_names
    return names if after is None else names[bisect_left(names, after.topic) :]


class Summaries:
    """The cluster in numbers, counted at most once per version of the metadata."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._version: int | None = None
        self._summary = Summary()
        self._counting = asyncio.Lock()

    async def newest(self) -> Summary:
        """As of now or, while the metadata keeps changing, as of when this was asked."""
        async with self._counting:
            version = self._view.metadata_version
            if version != self._version:
                live_ids = live_ids_of(self._view.brokers)
                summary = Summary()
                async for topic in topics_of(self._view, self._view.topic_names):
                    summary.take(topic, live_ids)
                self._summary, self._version = summary, version
            return self._summary
