"""What waits to be told, by topic and partition: the newest value of each, and what of it is on its way.

Bookkeeping for `owed.py`. What came after a request went out is owed even if it equals what the request says: it may
have been asked for again on purpose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar

from controller.core.model import Partition
from controller.core.requests import TopicKey
from controller.dialects.kept import Part

V = TypeVar("V")
ByTopic = Mapping[TopicKey, Mapping[int, V]]
#: a replica of the broker concerned: topic id and partition
Replica = tuple[str, int]
Hosted = dict[TopicKey, Part]


def replicas_in(rows: ByTopic[object]) -> set[Replica]:
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
            hosted[broker_id][key] = Part(partitions, here[broker_id])
    return hosted


def split(rows: ByTopic[V], limit: int) -> Iterator[ByTopic[V]]:
    """`rows` in pieces of exactly `limit` partitions, the last one smaller; none for nothing."""
    piece: dict[TopicKey, Mapping[int, V]] = {}
    room = limit
    for key, partitions in rows.items():
        start = 0
        while start < len(partitions):
            whole = start == 0 and len(partitions) <= room
            taken = partitions if whole else dict(islice(partitions.items(), start, start + room))
            piece[key] = taken
            start += len(taken)
            room -= len(taken)
            if room == 0:
                yield piece
                piece, room = {}, limit
    if piece:
        yield piece


class Pending(Generic[V]):
    """Values to be merged, lent to one request at a time, and forgotten when it was answered. A topic's values are
    shared with who brought them, or with the request they go out in, until one of them changes."""

    def __init__(self) -> None:
        self._lent: dict[TopicKey, Mapping[int, V]] = {}
        self._since: dict[TopicKey, Mapping[int, V]] = {}
        self._own: dict[TopicKey, dict[int, V]] = {}  # those of `_since` that nobody else holds

    @property
    def is_empty(self) -> bool:
        return not self._lent and not self._since

    def rows(self) -> dict[TopicKey, Mapping[int, V]]:
        """All of it."""
        return {key: self.of(key) for key in {**self._lent, **self._since}}

    def of(self, key: TopicKey) -> Mapping[int, V]:
        """All of one topic."""
        lent, since = self._lent.get(key), self._since.get(key)
        return {**lent, **since} if lent and since else lent or since or {}

    def merge(self, rows: ByTopic[V]) -> None:
        """The newer value takes the place of the older."""
        for key, values in rows.items():
            if key in self._since:
                if key not in self._own:
                    self._since[key] = self._own[key] = dict(self._since[key])
                self._own[key].update(values)
            elif values:
                self._since[key] = values

    def lend(self) -> ByTopic[V]:
        """All of it, for a request: what is merged from now on is none of what that request is about."""
        for key in self._since:
            self._lent[key] = self.of(key)
        self._since, self._own = {}, {}
        return self._lent

    def first(self, limit: int) -> ByTopic[V]:
        """As much as goes into one request; to be called only while there is something."""
        return next(split(self.lend(), limit))

    def forget(self, told: ByTopic[V]) -> None:
        """A request about these was answered: drop what was lent to it."""
        for key, values in told.items():
            lent = self._lent.get(key, {})
            self._lent.pop(key, None)
            if lent is not values and (left := {number: lent[number] for number in lent if number not in values}):
                self._lent[key] = left

    def forget_topic(self, key: TopicKey) -> None:
        for rows in (self._lent, self._since, self._own):
            rows.pop(key, None)

    def pop(self, key: TopicKey, numbers: Collection[int]) -> dict[int, V]:
        """Take these partitions of a topic out, as far as they wait."""
        every = self.of(key)
        taken = {number: every[number] for number in every if number in numbers}
        if taken:
            self._own.pop(key, None)
            for rows in (self._lent, self._since):
                if left := {number: value for number, value in rows.pop(key, {}).items() if number not in taken}:
                    rows[key] = left
        return taken
