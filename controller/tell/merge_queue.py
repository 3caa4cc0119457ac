"""Values that wait to be told, by topic and partition: the newest of each, and those that are on their way.

Bookkeeping for `backlog.py`. A value that comes after a request went out is queued even if it equals what the request
says: it may have been asked for again on purpose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar, cast

from controller.core.model import Partition, TopicIdPartition
from controller.core.project.requests import TopicKey
from controller.tell.dialects.row_cache import PartitionSubset

V = TypeVar("V")
ByTopic = Mapping[TopicKey, Mapping[int, V]]
Hosted = dict[TopicKey, PartitionSubset]


def replicas_in(rows: ByTopic[object]) -> set[TopicIdPartition]:
    return {(topic_id, number) for (_, topic_id), numbers in rows.items() for number in numbers}


def by_host(rows: ByTopic[Partition | None], broker_ids: Collection[int]) -> dict[int, Hosted]:
    """For each of these brokers the partitions that it hosts and that were ever led, found in one pass."""
    hosted: dict[int, Hosted] = {broker_id: {} for broker_id in broker_ids}
    for key, partitions in rows.items():
        here: defaultdict[int, list[int]] = defaultdict(list)
        for number, partition in partitions.items():
            if partition is not None and partition.state is not None:
                for broker_id in partition.replicas:
                    here[broker_id].append(number)
        for broker_id in here.keys() & hosted.keys():
            hosted[broker_id][key] = PartitionSubset(partitions, here[broker_id])
    return hosted


def split(rows: ByTopic[V], limit: int) -> Iterator[ByTopic[V]]:
    """`rows` in pieces of exactly `limit` partitions, the last one smaller; none for nothing. Each partition is walked
    over once."""
    piece: dict[TopicKey, Mapping[int, V]] = {}
    room = limit
    for key, partitions in rows.items():
        count = len(partitions)
        if count < room:
            if count:
                piece[key] = partitions
                room -= count
            continue
        for taken in _cut(partitions, room, limit):
            piece[key] = taken
            room -= len(taken)
            if room == 0:
                yield piece
                piece, room = {}, limit
    if piece:
        yield piece


def _cut(partitions: Mapping[int, V], first: int, limit: int) -> Iterator[Mapping[int, V]]:
    """A topic's partitions: as many as `first`, then always `limit`; whole if that is all."""
    total = len(partitions)
    if total <= first:
        yield partitions
        return
    starts = (0, *range(first, total, limit))
    items = iter(partitions.items())
    for start, end in zip(starts, (*starts[1:], total), strict=True):
        if isinstance(partitions, PartitionSubset):
            yield cast("Mapping[int, V]", partitions.piece(start, end))
        else:
            yield dict(islice(items, end - start))


class _Rows(Generic[V]):
    """Values by topic. Those of a topic are shared with others until one of them changes, and then copied once."""

    def __init__(self) -> None:
        self.of: dict[TopicKey, Mapping[int, V]] = {}
        self._own: dict[TopicKey, dict[int, V]] = {}  # shared with no other queue

    def share(self, key: TopicKey, values: Mapping[int, V]) -> None:
        """Have these for a topic, and change them no more."""
        self.of[key] = values
        self._own.pop(key, None)

    def share_again(self, piece: ByTopic[V] | None = None) -> None:
        """Others have these now: all, or those of which a piece is made."""
        if piece is None:
            self._own = {}
        for key in [key for key, values in self._own.items() if piece is not None and piece.get(key) is values]:
            del self._own[key]

    def own(self, key: TopicKey) -> dict[int, V]:
        """Returns a topic's values, to be changed."""
        if key not in self._own:
            self.of[key] = self._own[key] = dict(self.of[key])
        return self._own[key]

    def drop(self, key: TopicKey, numbers: Iterable[int]) -> None:
        """Costs as much as is dropped, except the first time."""
        own = self.own(key)
        for number in numbers:
            own.pop(number, None)
        if not own:
            self.forget(key)

    def forget(self, key: TopicKey) -> None:
        self.of.pop(key, None)
        self._own.pop(key, None)


class MergeQueue(Generic[V]):
    """Values to be merged, lent to one request at a time, and forgotten when it was answered. A topic's values are
    shared with their giver, or with the request they go out in, until one of them changes."""

    def __init__(self) -> None:
        self._lent: _Rows[V] = _Rows()
        self._since: _Rows[V] = _Rows()

    @property
    def is_empty(self) -> bool:
        return not self._lent.of and not self._since.of

    def rows(self) -> dict[TopicKey, Mapping[int, V]]:
        """All of it."""
        return {key: self.of(key) for key in {**self._lent.of, **self._since.of}}

    def of(self, key: TopicKey) -> Mapping[int, V]:
        """All of one topic."""
        lent, since = self._lent.of.get(key), self._since.of.get(key)
        return {**lent, **since} if lent and since else lent or since or {}

    def merge(self, rows: ByTopic[V]) -> None:
        """The newer value takes the place of the older."""
        for key, values in rows.items():
            if key in self._since.of:
                self._since.own(key).update(values)
            elif values:
                self._since.share(key, values)

    def lend(self) -> ByTopic[V]:
        """Returns all of it, for a request. Values merged from now on are not part of that request."""
        self._lend()
        self._lent.share_again()
        return self._lent.of

    def first(self, limit: int) -> ByTopic[V]:
        """As much as goes into one request; to be called only while there is something."""
        self._lend()
        piece = next(split(self._lent.of, limit))
        self._lent.share_again(piece)
        return piece

    def forget(self, told: ByTopic[V]) -> None:
        """A request about these was answered: drop the values lent to it."""
        lent = self._lent.of
        for key, values in told.items() if lent else ():
            if key in lent:
                if lent[key] is values:
                    self._lent.forget(key)
                else:
                    self._lent.drop(key, values)

    def forget_topic(self, key: TopicKey) -> None:
        for rows in (self._lent, self._since):
            rows.forget(key)

    def pop(self, key: TopicKey, numbers: Iterable[int]) -> dict[int, V]:
        """Take these partitions of a topic out, as far as they wait."""
        every = self.of(key)
        taken = {number: every[number] for number in numbers if number in every}
        for rows in (self._lent, self._since) if taken else ():
            if key in rows.of:
                rows.drop(key, taken)
        return taken

    def _lend(self) -> None:
        since = self._since.of
        if not since:
            return
        if self._lent.of:
            for key in since:
                self._lent.share(key, self.of(key))
        else:
            self._lent.of = since
        self._since = _Rows()
