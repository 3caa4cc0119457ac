"""The backlog of one broker incarnation: the states that it has still to be told, and the order they go out in.

Bookkeeping only: no task, no clock, no bytes of its own. A state stays in the backlog until it is acknowledged; a newer
state takes its place. Nothing here may change a telling, nor what a bundle holds: other outboxes use them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Protocol

from controller.core.model import Partition, TopicIdPartition
from controller.core.project.requests import Stop, Telling, TopicKey
from controller.tell.dialects import (
    Dialect,
    Request,
    Unwanted,
    Wanted,
)
from controller.tell.merge_queue import MergeQueue, by_host
from controller.wire.bodies import (
    DESCRIBE_TOPICS,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
)


class Bundle:
    """Requests to be sent in this order. Those of a shared bundle are encoded once, by the first outbox that needs
    them; of other bundles the bytes are not kept."""

    def __init__(self, requests: Sequence[Request], *, is_shared: bool = False) -> None:
        self.requests = requests
        self._is_shared = is_shared
        self._bodies: dict[int, bytes] = {}

    def body(self, index: int) -> bytes | None:
        """Returns the bytes if the request was encoded already."""
        return self._bodies.get(index)

    def encode(self, index: int, dialect: Dialect) -> bytes:
        body = self._bodies.get(index)
        if body is None:
            body = dialect.encode(self.requests[index])
            if self._is_shared:
                self._bodies[index] = body
        return body

    def answered(self, index: int) -> Sequence[Request]:
        """Returns the requests that an answer to this one is about: of a full list's last part, all parts."""
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
        names: Sequence[str] = (),
        full: bool = False,
        new: frozenset[TopicIdPartition] = frozenset(),
    ) -> Bundle: ...


class _ReplicaMarks:
    """Replicas of one broker, by topic id: a topic is forgotten without a look at the others."""

    def __init__(self, replicas: Iterable[TopicIdPartition] = ()) -> None:
        self._by_topic: dict[str, set[int]] = {}
        self.add(replicas)

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def add(self, replicas: Iterable[TopicIdPartition]) -> None:
        for topic_id, number in replicas:
            self._by_topic.setdefault(topic_id, set()).add(number)

    def remove(self, replicas: Iterable[TopicIdPartition]) -> None:
        for topic_id, number in replicas:
            if topic_id in self._by_topic:
                self._by_topic[topic_id].discard(number)
                if not self._by_topic[topic_id]:
                    del self._by_topic[topic_id]

    def forget_topic(self, topic_id: str) -> None:
        self._by_topic.pop(topic_id, None)

    def all(self) -> Iterator[TopicIdPartition]:
        return ((topic_id, number) for topic_id, numbers in self._by_topic.items() for number in numbers)

    def among(self, rows: Wanted) -> frozenset[TopicIdPartition]:
        """Returns those of them that a request is about."""
        if not self._by_topic:
            return frozenset()
        known = self._by_topic
        return frozenset(
            [
                (topic_id, number)
                for (_, topic_id), numbers in rows.items()
                if topic_id in known
                for number in known[topic_id].intersection(numbers)
            ]
        )


class Backlog:
    """Questions go out before anything else, since other requests change the broker's answer. Then come full lists, of
    metadata and of the broker's replicas, then the changes since."""

    def __init__(
        self, broker_id: int, everything: Wanted, own: Wanted, full: Bundle, new: set[TopicIdPartition]
    ) -> None:
        self._broker_id = broker_id
        #: full lists still to be sent: of metadata while there is `_full`, then of replicas
        self._everything: Wanted | None = everything
        #: of these, the partitions that this broker hosts; None: to be found
        self._own: Wanted | None = own
        self._full: Bundle | None = full
        self._removed: set[TopicKey] = set()
        self._brokers: Bundle | None = None
        #: stops that a leadership of the same replica came after: they go before it
        self._overtaken: MergeQueue[Stop] = MergeQueue()
        self._leaderships: MergeQueue[Partition | None] = MergeQueue()
        self._new = _ReplicaMarks(new)
        self._new_since = _ReplicaMarks()  # since the last request
        #: one telling's metadata, as long as no other follows before it is told; then all is merged
        self._shared: Bundle | None = None
        self._shared_told = 0
        self._metadata: MergeQueue[Partition | None] = MergeQueue()
        self._stops: MergeQueue[Stop] = MergeQueue()
        #: topics that it is to be asked about, with how many partitions each has
        self._questions: dict[str, int] = {}
        self._asking: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        if self._questions or self._asking:
            return False
        if self._everything is not None or self._brokers is not None or self._shared is not None:
            return False
        return all(one.is_empty for one in (self._leaderships, self._metadata, self._overtaken, self._stops))

    @property
    def depth(self) -> int:
        """How many states, over all kinds."""
        waiting = (self._leaderships, self._metadata, self._overtaken, self._stops)
        waiting_rows = [self._everything or {}, *self._shared_rows(), *(one.rows() for one in waiting)]
        return sum(len(partitions) for rows in waiting_rows for partitions in rows.values())

    def add(
        self, telling: Telling, brokers: Bundle | None, metadata: Bundle | None, new: set[TopicIdPartition]
    ) -> bool:
        """Owe this as well; `brokers` and `metadata` are the telling's. False if nothing in it is for this broker."""
        leaderships = telling.leaderships.get(self._broker_id, {})
        stops = telling.stops.get(self._broker_id, {})
        questions = telling.questions.get(self._broker_id, {})
        self._new_since.add(new)
        self._overtake(leaderships)
        self._leaderships.merge(leaderships)
        self.stop(stops)
        self.ask(questions)
        if brokers is not None:
            self._brokers = brokers
            self._fall_behind()  # real brokers take the list of brokers from every request: none may follow a newer one
        if metadata is not None:
            self._add_metadata(metadata)
        for key in telling.removed:
            self._removed.add(key)
            self._leaderships.forget_topic(key)
            for marks in (self._new, self._new_since):
                marks.forget_topic(key[1])
        is_owed = bool(leaderships) or bool(stops) or brokers is not None or metadata is not None
        return is_owed or bool(questions)

    def ask(self, questions: Mapping[str, int]) -> None:
        """Ask about these topics as well."""
        self._questions.update(questions)

    def stop(self, stops: Unwanted) -> None:
        """Add these stops. A replica to be deleted stays so, whatever stops it afterwards."""
        for key, wanted in stops.items():
            waiting = self._stops.of(key)
            is_kept = [
                stop.delete or number not in waiting or not waiting[number].delete for number, stop in wanted.items()
            ]
            self._stops.merge({key: wanted if all(is_kept) else dict(compress(wanted.items(), is_kept))})

    def next(self, bundle_for: BundleFor, limit: int) -> tuple[Bundle, Sequence[int]]:
        """Returns the requests to send now, one after the other, in the order brokers rely on."""
        if self._questions or self._asking:
            return bundle_for(DESCRIBE_TOPICS, {}, names=self._next_questions(limit)), (0,)
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
        """This request had its answer. A newer state is still to be sent, as is an unfinished list."""
        request = bundle.requests[index]
        if request.full:
            if request.part == request.parts:
                self._acknowledge_full(request.path, bundle)
        elif request.path == DESCRIBE_TOPICS:
            self._asking = ()
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

    def _next_questions(self, limit: int) -> tuple[str, ...]:
        """Returns as many topics as have so many partitions; those without an answer so far again. A topic that is
        added meanwhile is asked about once more."""
        if not self._asking:
            names, partitions = list[str](), 0
            for name, count in self._questions.items():
                partitions += count + 1
                if names and partitions > limit:
                    break
                names.append(name)
            self._asking = tuple(names)
            for name in names:
                del self._questions[name]
        return self._asking

    def _overtake(self, leaderships: Wanted) -> None:
        """Replicas that are wanted again: a stop that waits is dropped; a deletion that waits must go out first."""
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
        self._brokers, self._metadata, self._everything, self._own = None, MergeQueue(), everything, None
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

    def _lend_new(self, rows: Wanted) -> frozenset[TopicIdPartition]:
        """For a request; a replica found to be new from now on has to be said again."""
        if self._new_since:
            self._new.add(self._new_since.all())
            self._new_since = _ReplicaMarks()
        return self._new.among(rows)

    def _acknowledge_full(self, path: str, bundle: Bundle) -> None:
        if path == UPDATE_METADATA:
            self._full = None
            return
        for request in bundle.requests:
            self._forget_leaderships(request)
        self._everything = self._own = None
        self._removed.clear()

    def _forget_leaderships(self, request: Request) -> None:
        self._new.remove(request.new)
        self._leaderships.forget(request.rows)
