"""Reading a cluster of 100,000 partitions without holding up the loop: in turns, in pages, and counted once a version.

Pages are stable: a cursor names the last thing seen, so what comes and goes between two pages moves nothing else. Each
piece of one is encoded in the turn that walks it.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from controller.api.bodies import PageQuery, PartitionBody, PartitionsQuery, TopicBody, TopicCount, partition_body
from controller.api.counts import PartitionState, Summary, has_state, live_ids_of
from controller.api.ports import ClusterView, TopicView
from controller.api.problems import invalid
from controller.api.reader_turns import ReaderTurns, SharedAnswers
from controller.wire import bodies
from controller.wire.bodies import PartitionRow

_NUMBER: Final = attrgetter("partition")


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The last thing a page showed: a topic, or one partition of it."""

    topic: str
    partition: int = -1

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def cursor_of(text: str) -> Cursor:
    try:
        return bodies.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), Cursor)
    except (ValueError, binascii.Error):
        raise invalid(f"the cursor {text!r} is none that this API gave") from None


class Piece(NamedTuple):
    """Some partitions of a topic, in order of their numbers; a topic without any has one empty piece."""

    topic: TopicView
    rows: Sequence[PartitionRow]
    is_last: bool


async def pieces_of(view: ClusterView, names: Iterable[str], turns: ReaderTurns) -> AsyncIterator[Piece]:
    """These topics one after the other, as far as they are still there, so many partitions in a turn. A topic is read
    whole, as a broker keeps it, and then walked in pieces."""
    await turns.next()
    room = turns.limits.partitions_per_turn
    left = room
    for name in names:
        if left <= 0:
            await turns.next()
            left = room
        topic = view.topic(name)
        if topic is None:
            left -= 1
            continue
        rows = sorted(topic.partitions, key=_NUMBER)
        if len(rows) > room:  # to read it was a turn's work
            left = 0
        at = 0
        while at == 0 or at < len(rows):
            if left <= 0:
                await turns.next()
                left = room
            piece = rows[at : at + left]
            at += max(1, len(piece))
            left -= max(1, len(piece))
            yield Piece(topic, piece, at >= len(rows))


class PageBytes:
    """The JSON of a page (`bodies.Page`), piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def add(self, items: Sequence[object]) -> None:
        if items:
            self._pieces.append(msgspec.json.encode(items)[1:-1])

    def whole(self, next_cursor: Cursor | None = None) -> bytes:
        after = msgspec.json.encode(None if next_cursor is None else str(next_cursor))
        return b'{"items":[%b],"next_cursor":%b}' % (b",".join(self._pieces), after)


async def partitions_page(view: ClusterView, query: PartitionsQuery, turns: ReaderTurns) -> bytes:
    """Returns the partitions that match, in order of topic and number, after the cursor."""
    after = None if query.cursor is None else cursor_of(query.cursor)
    live_ids = live_ids_of(view.brokers)
    page, count = PageBytes(), 0
    last: Cursor | None = None
    # of those that were never led there are few as a rule, and other processes ask for them often
    among = view.topics_with_new if query.state is PartitionState.NEW else view.topic_names
    async for piece in pieces_of(view, _names_from(among, after, query.topic), turns):
        name = piece.topic.topic
        found: list[PartitionBody] = []
        for row in piece.rows:
            if after is not None and (name, row.partition) <= (after.topic, after.partition):
                continue
            if query.state is not None and not has_state(row, query.state, live_ids):
                continue
            if query.broker is not None and query.broker not in row.replicas:
                continue
            if count == query.limit:
                page.add(found)
                return page.whole(last)
            found.append(partition_body(name, row, live_ids))
            last, count = Cursor(name, row.partition), count + 1
        page.add(found)
    return page.whole()


async def topics_page(view: ClusterView, query: PageQuery, turns: ReaderTurns) -> bytes:
    """Topics in numbers, in order of their names, after the cursor."""
    after = None if query.cursor is None else cursor_of(query.cursor)
    names = [name for name in _names_from(view.topic_names, after) if after is None or name > after.topic]
    wanted = names[: query.limit]
    page = PageBytes()
    async for body in topic_bodies(view, wanted, turns):
        page.add([body])
    return page.whole(Cursor(wanted[-1]) if len(names) > len(wanted) else None)


async def topic_bodies(view: ClusterView, names: Iterable[str], turns: ReaderTurns) -> AsyncIterator[TopicBody]:
    live_ids, count = live_ids_of(view.brokers), TopicCount()
    async for piece in pieces_of(view, names, turns):
        count.add(piece.rows, live_ids)
        if piece.is_last:
            yield count.body(piece.topic)
            count = TopicCount()


def _names_from(names: Sequence[str], after: Cursor | None, only: str | None = None) -> Sequence[str]:
    if only is not None:
        return [only]
    return names if after is None else names[bisect_left(names, after.topic) :]


class Summaries:
    """The cluster in numbers, counted at most once per version of the metadata."""

    def __init__(self, view: ClusterView, turns: ReaderTurns) -> None:
        self._view = view
        self._turns = turns
        self._shared: SharedAnswers[Summary] = SharedAnswers()

    async def newest(self) -> Summary:
        """As of now or, while the metadata keeps changing, as of when this was asked."""
        return await self._shared.ask("summary", lambda: self._view.metadata_version, self._counted)

    def close(self) -> None:
        self._shared.close()

    async def _counted(self) -> Summary:
        live_ids = live_ids_of(self._view.brokers)
        summary = Summary()
        async for piece in pieces_of(self._view, self._view.topic_names, self._turns):
            summary.take(piece.topic.topic, piece.rows, live_ids)
        return summary
