"""Round trips of Kafka 0.9 to 1.0, whose controller says of an answer neither its number nor what it answers. Pure.

But an answer to LeaderAndIsr lists partitions, of which the first is read; and a controller asks a broker one thing
at a time. So an answer about a partition is of the oldest request about it that went to that broker and was not
answered yet; what was sent before that one, was answered or lost before. An answer to a StopReplica lists partitions
as well: where none is awaited, it says nothing. What would have been on its way for less than no time is no trip.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple

from sparkjobs.rules.receipts import (
    API,
    Request,
    done_in,
    request_of,
)
from sparkjobs.tables.silver import SilverEvent

#: as long as a controller waits for an answer (controller.socket.timeout.ms)
_PATIENCE_MS: Final = 30_000


class Trip(NamedTuple):
    """One round trip: how far the broker is ahead of the controller, and how wrong that may be."""

    controller: int
    broker: int
    at_ms: int
    offset_ms: int
    err_ms: int


class Way(NamedTuple):
    """From a controller in one term to a broker."""

    cluster: str
    controller: int | None
    controller_epoch: int | None
    to: int | None


class _State(NamedTuple):
    """What both sides say of a partition in a request."""

    topic: str
    partition: int
    leader_epoch: int


class _Done(NamedTuple):
    """A request as its broker tells it."""

    number: int
    received_ms: int
    done_ms: int


@dataclass(slots=True)
class _Waiting:
    """A request that was not answered yet."""

    sent_ms: int  # its last line
    partitions: set[tuple[str, int]]


def is_unnumbered(event: SilverEvent) -> bool:
    """Whether it is an answer that names a partition and no number."""
    return event.event == "response_received" and event.correlation_id is None and event.topic is not None


def way_of(event: SilverEvent) -> Way | None:
    """Of a line that such a trip may be made of."""
    is_side = event.event == "request_sent" or is_unnumbered(event)
    if is_side and event.correlation_id is None and (event.api or API) == API:
        return Way(event.cluster, event.broker, event.controller_epoch, event.peer_broker)
    return None if request_of(event) is None else Way(*_way_of_request(event))


def _way_of_request(event: SilverEvent) -> tuple[str, int | None, int | None, int | None]:
    return event.cluster, event.controller, event.controller_epoch, event.broker


def trips_in(events: Iterable[SilverEvent]) -> Iterator[tuple[str, Trip]]:
    """With their clusters; `events` in any order."""
    ways: dict[Way, list[SilverEvent]] = defaultdict(list)
    for event in events:
        way = way_of(event)
        if way is not None and None not in way:
            ways[way].append(event)
    for way, its in ways.items():
        if any(map(is_unnumbered, its)):
            yield from ((way.cluster, trip) for trip in _trips(way, its))


def _trips(way: Way, events: list[SilverEvent]) -> Iterator[Trip]:
    assert way.controller is not None
    assert way.to is not None
    known = _known(events, way.to)
    said: list[tuple[int, bool, str, int, SilverEvent]] = [
        (event.ts_utc, event.event != "request_sent", event.file_id, event.line_no, event)
        for event in events
        if event.event in ("request_sent", "response_received")
    ]
    waiting: dict[_Done, _Waiting] = {}  # in the order of sending
    for at_ms, is_answer, *_, event in sorted(said, key=itemgetter(0, 1, 2, 3)):
        if event.topic is None or event.partition is None:
            continue
        about = (event.topic, event.partition)
        while waiting and next(iter(waiting.values())).sent_ms < at_ms - _PATIENCE_MS:
            del waiting[next(iter(waiting))]
        if not is_answer:
            done = None if event.leader_epoch is None else known.get(_State(*about, event.leader_epoch))
            if done is not None:
                request = waiting.setdefault(done, _Waiting(at_ms, set()))
                request.sent_ms = at_ms
                request.partitions.add(about)
            continue
        answered = next((done for done, request in waiting.items() if about in request.partitions), None)
        while answered is not None and answered in waiting:
            first = next(iter(waiting))
            request = waiting.pop(first)
            if first is answered:
                yield from _trip(way.controller, way.to, answered, request.sent_ms, at_ms)


def _known(events: Iterable[SilverEvent], broker: int) -> dict[_State, _Done]:
    """By what a request says of any of its partitions: the first request that says so and was done."""
    requests: list[tuple[Request, list[SilverEvent]]] = list(done_in(events, frozenset({broker})))
    requests.sort(key=lambda one: (one[1][0].ts_utc, one[1][0].file_id, one[1][0].line_no))
    found: dict[_State, _Done] = {}
    for number, (_, lines) in enumerate(requests):
        done = _Done(number, lines[0].ts_utc, lines[-1].ts_utc)
        for line in lines:
            if line.topic is not None and line.partition is not None and line.leader_epoch is not None:
                found.setdefault(_State(line.topic, line.partition, line.leader_epoch), done)
    return found


def _trip(controller: int, broker: int, done: _Done, sent_ms: int, answered_ms: int) -> Iterator[Trip]:
    way_ms = (answered_ms - sent_ms) - (done.done_ms - done.received_ms)
    if way_ms >= 0:
        offset_ms = ((done.received_ms - sent_ms) + (done.done_ms - answered_ms)) // 2
        yield Trip(controller, broker, done.received_ms, offset_ms, (way_ms + 1) // 2)
