"""What one broker incarnation has still to be told: wanted states, and the order they go out in.

Bookkeeping only: no task, no clock, no bytes of its own. A state is owed until it is acknowledged; a newer one takes
its place. Nothing here may change a telling, nor what a bundle holds: other outboxes use them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final, Protocol

from controller.core.model import Partition
from controller.core.requests import Telling, TopicKey
from controller.dialects import Dialect, Request, Wanted
from controller.wire import LEADER_AND_ISR, UPDATE_METADATA

#: a replica of the broker concerned: topic id and partition
Replica = tuple[str, int]

_MISSING: Final = object()


class Bundle:
    """Requests to be sent in this order. Those of a shared bundle are encoded once, by whoever needs them first; of
    others the bytes are not kept."""

    def __init__(self, requests: Sequence[Request], *, is_shared: bool = False) -> None:
        self.requests = requests
        self._is_shared = is_shared
        self._bodies: dict[int, bytes] = {}

    def body(self, index: int) -> bytes | None:
        """What was encoded already."""
        return self._bodies.get(index)

    def encode(self, index: int, dialect: Dialect) -> bytes:
        body = self._bodies.get(index)
        if body is None:
            body = dialect.encode(self.requests[index])
            if self._is_shared:
                self._bodies[index] = body
        return body


def split(rows: Wanted, limit: int) -> Iterator[Wanted]:
    """`rows` in pieces of exactly `limit` partitions, the last one smaller; none for nothing."""
    piece: dict[TopicKey, Mapping[int, Partition | None]] = {}
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


class Pending:
    """Wanted states by topic, to be merged and forgotten. A topic's states are shared with who brought them, or with
    the request they go out in, until one of them changes."""

    def __init__(self) -> None:
        self.rows: dict[TopicKey, Mapping[int, Partition | None]] = {}
        self._own: dict[TopicKey, dict[int, Partition | None]] = {}

    def merge(self, rows: Wanted) -> None:
        for key, partitions in rows.items():
            if key in self.rows:
                self._owned(key).update(partitions)
            elif partitions:
                self.rows[key] = partitions

    def lend(self) -> Wanted:
        """All of it, for somebody to keep as it is now."""
        self._own.clear()
        return self.rows

    def first(self, limit: int) -> Wanted:
        return next(split(self.lend(), limit))

    def forget(self, told: Wanted, kept: Set[Replica] = frozenset()) -> None:
        """Drop what was told, unless another state took its place, or the replica is one of those kept."""
        for key, partitions in told.items():
            if key not in self.rows:
                continue
            if self.rows[key] is partitions:
                self.forget_topic(key)
                continue
            waiting = self._owned(key)
            for number, partition in partitions.items():
                if waiting.get(number, _MISSING) is partition and (key[1], number) not in kept:
                    del waiting[number]
            if not waiting:
                self.forget_topic(key)

    def forget_topic(self, key: TopicKey) -> None:
        self.rows.pop(key, None)
        self._own.pop(key, None)

    def _owned(self, key: TopicKey) -> dict[int, Partition | None]:
        if key not in self._own:
            self.rows[key] = self._own[key] = dict(self.rows[key])
        return self._own[key]


class BundleFor(Protocol):
    """Makes requests as of the latest telling."""

    def __call__(
        self, path: str, rows: Wanted, *, full: bool = False, new: frozenset[Replica] = frozenset()
    ) -> Bundle: ...


class Owed:
    """Full lists, of metadata and then of the broker's replicas, before anything else; then what changed since."""

    def __init__(self, broker_id: int, everything: Wanted, full: Bundle, new: set[Replica]) -> None:
        self._broker_id = broker_id
        #: full lists are owed: of metadata while there is `_full`, then of replicas
        self._everything: Wanted | None = everything
        self._full: Bundle | None = full
        self._removed: set[TopicKey] = set()
        self._brokers: Bundle | None = None
        self._leaderships = Pending()
        self._new = new
        #: one telling's metadata, as long as no other follows before it is told; then all is merged
        self._shared: Bundle | None = None
        self._shared_told = 0
        self._metadata = Pending()

    @property
    def is_nothing(self) -> bool:
        if self._everything is not None or self._brokers is not None or self._shared is not None:
            return False
        return not self._leaderships.rows and not self._metadata.rows

    @property
    def depth(self) -> int:
        """How many states, over all kinds."""
        owed = [self._everything or {}, self._leaderships.rows, self._metadata.rows]
        return sum(len(partitions) for rows in [*owed, *self._shared_rows()] for partitions in rows.values())

    def add(self, telling: Telling, brokers: Bundle | None, metadata: Bundle | None, new: set[Replica]) -> bool:
        """Owe this as well; `brokers` and `metadata` are the telling's. False if nothing in it is for this broker."""
        leaderships = telling.leaderships.get(self._broker_id, {})
        self._new |= new
        self._leaderships.merge(leaderships)
        if brokers is not None:
            self._brokers = brokers
        if metadata is not None:
            self._add_metadata(metadata)
        for key in telling.removed:
            self._removed.add(key)
            self._leaderships.forget_topic(key)
            self._new = {replica for replica in self._new if replica[0] != key[1]}
        return bool(leaderships) or brokers is not None or metadata is not None

    def next(self, bundle_for: BundleFor, limit: int) -> tuple[Bundle, Sequence[int]]:
        """The requests to send now, one after the other, in the order brokers rely on. (Stops will come last.)"""
        if self._full is not None:
            bundle = self._full_metadata(self._full, bundle_for)
            return bundle, range(len(bundle.requests))
        if self._everything is not None:
            rows = self._own_replicas(self._everything)
            bundle = bundle_for(LEADER_AND_ISR, rows, full=True, new=self._new_among(rows))
            return bundle, range(len(bundle.requests))
        if self._brokers is not None:
            return self._brokers, (0,)
        if self._leaderships.rows:
            some = self._leaderships.first(limit)
            return bundle_for(LEADER_AND_ISR, some, new=self._new_among(some)), (0,)
        if self._shared is not None:
            return self._shared, (self._shared_told,)
        return bundle_for(UPDATE_METADATA, self._metadata.first(limit)), (0,)

    def acknowledge(self, bundle: Bundle, index: int) -> None:
        """This request had its answer. What replaced any of it meanwhile is still owed; so is an unfinished list."""
        request = bundle.requests[index]
        if request.full:
            if request.part == request.parts:
                self._acknowledge_full(request.path, bundle)
        elif request.path == LEADER_AND_ISR:
            self._forget_leaderships(request)
        elif bundle is self._brokers:
            self._brokers = None
        elif bundle is self._shared:
            self._shared_told += 1
            if self._shared_told == len(bundle.requests):
                self._shared = None
        else:
            self._metadata.forget(request.rows)

    def _add_metadata(self, metadata: Bundle) -> None:
        if self._shared is None and not self._metadata.rows:
            self._shared, self._shared_told = metadata, 0
            return
        self._fall_behind()
        for request in metadata.requests:
            self._metadata.merge(request.rows)

    def _shared_rows(self) -> Iterator[Wanted]:
        if self._shared is not None:
            yield from (request.rows for request in self._shared.requests[self._shared_told :])

    def _fall_behind(self) -> None:
        """Let go of the bytes shared with others; keep the states."""
        for rows in self._shared_rows():
            self._metadata.merge(rows)
        self._shared = None

    def _full_metadata(self, full: Bundle, bundle_for: BundleFor) -> Bundle:
        """The list as it was, or one of the latest states, which then needs no changes after it."""
        if self._brokers is None and self._shared is None and not self._metadata.rows:
            return full
        self._fall_behind()
        everything = dict(self._everything or {})
        for key, changed in self._metadata.rows.items():
            merged = {**everything.pop(key, {}), **changed}
            if kept := {number: partition for number, partition in merged.items() if partition is not None}:
                everything[key] = kept
        self._brokers, self._metadata, self._everything = None, Pending(), everything
        self._full = bundle_for(UPDATE_METADATA, everything, full=True)
        return self._full

    def _own_replicas(self, everything: Wanted) -> Wanted:
        broker_id = self._broker_id
        own = Pending()
        for key, partitions in everything.items():
            if key not in self._removed:
                own.rows[key] = {
                    number: partition
                    for number, partition in partitions.items()
                    if partition is not None and broker_id in partition.replicas and partition.state is not None
                }
        own.merge(self._leaderships.lend())
        return own.rows

    def _new_among(self, rows: Wanted) -> frozenset[Replica]:
        if not self._new:
            return frozenset()
        return frozenset(self._new.intersection((key[1], number) for key, told in rows.items() for number in told))

    def _acknowledge_full(self, path: str, bundle: Bundle) -> None:
        if path == UPDATE_METADATA:
            self._full = None
            return
        for request in bundle.requests:
            self._forget_leaderships(request)
        self._everything = None
        self._removed.clear()

    def _forget_leaderships(self, request: Request) -> None:
        self._new -= request.new
        self._leaderships.forget(request.rows, self._new)
