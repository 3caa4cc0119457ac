"""What one broker incarnation has still to be told: wanted states, and the order they go out in.

Bookkeeping only: no task, no clock, no bytes of its own. A state is owed until it is acknowledged; a newer one takes
its place. Nothing here may change a telling, nor what a bundle holds: other outboxes use them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from controller.core.model import Partition
from controller.core.requests import Stop, Telling, TopicKey
from controller.dialects import Dialect, Request, Unwanted, Wanted
from controller.pending import Pending, Replica, by_host, replicas_in
from controller.wire import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA


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

    def answered(self, index: int) -> Sequence[Request]:
        """What an answer to this request is about: one to the last part of a full list, about all of it."""
        request = self.requests[index]
        if not request.full:
            return [request]
        return self.requests if request.part == request.parts else ()


class BundleFor(Protocol):
    """Makes requests as of the latest telling."""

    def __call__(
        self,
        path: str,
        rows: Wanted,
        *,
        stops: Unwanted | None = None,
        full: bool = False,
        new: frozenset[Replica] = frozenset(),
    ) -> Bundle: ...


class Owed:
    """Full lists, of metadata and then of the broker's replicas, before anything else; then what changed since."""

    def __init__(self, broker_id: int, everything: Wanted, own: Wanted, full: Bundle, new: set[Replica]) -> None:
        self._broker_id = broker_id
        #: full lists are owed: of metadata while there is `_full`, then of replicas
        self._everything: Wanted | None = everything
        #: of these, what this broker hosts; None: to be found
        self._own: Wanted | None = own
        self._full: Bundle | None = full
        self._removed: set[TopicKey] = set()
        self._brokers: Bundle | None = None
        #: stops that a leadership of the same replica came after: they go before it
        self._overtaken: Pending[Stop] = Pending()
        self._leaderships: Pending[Partition | None] = Pending()
        self._new = new
        self._new_since: set[Replica] = set()  # since the last request
        #: one telling's metadata, as long as no other follows before it is told; then all is merged
        self._shared: Bundle | None = None
        self._shared_told = 0
        self._metadata: Pending[Partition | None] = Pending()
        self._stops: Pending[Stop] = Pending()

    @property
    def is_nothing(self) -> bool:
        if self._everything is not None or self._brokers is not None or self._shared is not None:
            return False
        return all(one.is_empty for one in (self._leaderships, self._metadata, self._overtaken, self._stops))

    @property
    def depth(self) -> int:
        """How many states, over all kinds."""
        waiting = (self._leaderships, self._metadata, self._overtaken, self._stops)
        owed = [self._everything or {}, *self._shared_rows(), *(one.rows() for one in waiting)]
        return sum(len(partitions) for rows in owed for partitions in rows.values())

    def add(self, telling: Telling, brokers: Bundle | None, metadata: Bundle | None, new: set[Replica]) -> bool:
        """Owe this as well; `brokers` and `metadata` are the telling's. False if nothing in it is for this broker."""
        leaderships = telling.leaderships.get(self._broker_id, {})
        stops = telling.stops.get(self._broker_id, {})
        self._new_since |= new
        self._overtake(leaderships)
        self._leaderships.merge(leaderships)
        self.stop(stops)
        if brokers is not None:
            self._brokers = brokers
            self._fall_behind()  # real brokers take the list of brokers from every request: none may follow a newer one
        if metadata is not None:
            self._add_metadata(metadata)
        for key in telling.removed:
            self._removed.add(key)
            self._leaderships.forget_topic(key)
            for marks in (self._new, self._new_since):
                marks -= {replica for replica in marks if replica[0] == key[1]}
        return bool(leaderships) or bool(stops) or brokers is not None or metadata is not None

    def stop(self, stops: Unwanted) -> None:
        """Owe these as well. A replica to be deleted stays so, whatever stops it afterwards."""
        for key, wanted in stops.items():
            deleted = {number for number, stop in self._stops.of(key).items() if stop.delete}
            self._stops.merge(
                {key: {number: wanted[number] for number in wanted if wanted[number].delete or number not in deleted}}
            )

    def next(self, bundle_for: BundleFor, limit: int) -> tuple[Bundle, Sequence[int]]:
        """The requests to send now, one after the other, in the order brokers rely on."""
        if self._full is not None:
            bundle = self._full_metadata(self._full, bundle_for)
            return bundle, range(len(bundle.requests))
        if self._everything is not None:
            rows = self._own_replicas(self._everything)
            bundle = bundle_for(LEADER_AND_ISR, rows, full=True, new=self._lend_new(rows))
            return bundle, range(len(bundle.requests))
        if self._brokers is not None:
            return self._brokers, (0,)
        if not self._overtaken.is_empty:
            return bundle_for(STOP_REPLICA, {}, stops=self._overtaken.first(limit)), (0,)
        if not self._leaderships.is_empty:
            some = self._leaderships.first(limit)
            return bundle_for(LEADER_AND_ISR, some, new=self._lend_new(some)), (0,)
        if self._shared is not None:
            return self._shared, (self._shared_told,)
        if not self._metadata.is_empty:
            return bundle_for(UPDATE_METADATA, self._metadata.first(limit)), (0,)
        return bundle_for(STOP_REPLICA, {}, stops=self._stops.first(limit)), (0,)

    def acknowledge(self, bundle: Bundle, index: int) -> None:
        """This request had its answer. What replaced any of it meanwhile is still owed; so is an unfinished list."""
        request = bundle.requests[index]
        if request.full:
            if request.part == request.parts:
                self._acknowledge_full(request.path, bundle)
        elif request.path == LEADER_AND_ISR:
            self._forget_leaderships(request)
        elif request.path == STOP_REPLICA:
            self._overtaken.forget(request.stops)
            self._stops.forget(request.stops)
        elif bundle is self._brokers:
            self._brokers = None
        elif bundle is self._shared:
            self._shared_told += 1
            if self._shared_told == len(bundle.requests):
                self._shared = None
        else:
            self._metadata.forget(request.rows)

    def _overtake(self, leaderships: Wanted) -> None:
        """Replicas that are wanted again: who was to be stopped only, need not; who was to be deleted, must first."""
        for key, partitions in leaderships.items() if not self._stops.is_empty else ():
            stops = self._stops.pop(key, partitions)
            self._overtaken.merge({key: {number: stop for number, stop in stops.items() if stop.delete}})

    def _add_metadata(self, metadata: Bundle) -> None:
        if self._shared is None and self._metadata.is_empty:
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
        if self._shared is not None:
            for rows in self._shared_rows():
                self._metadata.merge(rows)
            self._metadata.lend()  # some of it may be on its way
            self._shared = None

    def _full_metadata(self, full: Bundle, bundle_for: BundleFor) -> Bundle:
        """The list as it was, or one of the latest states, which then needs no changes after it."""
        if self._brokers is None and self._shared is None and self._metadata.is_empty:
            return full
        self._fall_behind()
        everything = dict(self._everything or {})
        for key, changed in self._metadata.rows().items():
            merged = {**everything.pop(key, {}), **changed}
            if kept := {number: partition for number, partition in merged.items() if partition is not None}:
                everything[key] = kept
        self._brokers, self._metadata, self._everything, self._own = None, Pending(), everything, None
        self._full = bundle_for(UPDATE_METADATA, everything, full=True)
        return self._full

    def _own_replicas(self, everything: Wanted) -> Wanted:
        """Without those to be deleted before they are wanted again."""
        hosted = by_host(everything, (self._broker_id,))[self._broker_id] if self._own is None else self._own
        own = {key: partitions for key, partitions in hosted.items() if key not in self._removed}
        for key, changed in self._leaderships.lend().items():
            own[key] = {**own.get(key, {}), **changed}
        for key, stops in self._overtaken.rows().items():
            own[key] = {number: one for number, one in own.get(key, {}).items() if number not in stops}
        return own

    def _lend_new(self, rows: Wanted) -> frozenset[Replica]:
        """For a request; a replica found to be new from now on has to be said again."""
        self._new |= self._new_since
        self._new_since = set()
        return frozenset(self._new & replicas_in(rows)) if self._new else frozenset()

    def _acknowledge_full(self, path: str, bundle: Bundle) -> None:
        if path == UPDATE_METADATA:
            self._full = None
            return
        for request in bundle.requests:
            self._forget_leaderships(request)
        self._everything = self._own = None
        self._removed.clear()

    def _forget_leaderships(self, request: Request) -> None:
        self._new -= request.new
        self._leaderships.forget(request.rows)
