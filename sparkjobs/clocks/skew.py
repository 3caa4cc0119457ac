"""The brokers' clock skew, from the round trips of requests in the logs. Pure.

A request names four moments: sent (t1) and answered (t4) by the controller's clock, received (t2) and done (t3) by the
broker's. The broker's clock is ahead by ((t2-t1)+(t3-t4))/2, wrong by at most half of the time on the way,
((t4-t1)-(t3-t2))/2. In each hour the trips with the least error count: their median is the offset. Sends carry no
correlation id since 0.9, so a trip is put together from the lines of both sides about one partition at one leader
epoch; before 0.9, by its number. Two trips of the same name in one log are paired in order.

Offsets between two brokers are walked from the broker that was heard most (the reference) to all brokers connected with
it. Where no trips lead, as at INFO or in our logs, causality binds the clock (`sparkjobs.clocks.causality`). A broker
that neither binds keeps its own time, and its error is unknown.

From Kafka 0.9 to 1.0 the controller logs an answer without its number or its request. An answer to LeaderAndIsr or
StopReplica lists partitions, and the first of them is read. A controller sends a broker one request at a time, so the
answer belongs to the oldest unanswered request about that partition to that broker; earlier requests were answered or
lost. An answer that no request awaits says nothing, and a trip with a negative time on the way is none.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import median_low
from typing import Final, NamedTuple

import msgspec

from sparkjobs.clocks.causality import HourlyGaps, Range, SteadyHours, steady_in
from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.rules.receipts import API, Request, done_in, request_of
from sparkjobs.tables.silver import SilverEvent, SilverSkew

#: as long as a controller waits for an answer (controller.socket.timeout.ms)
_PATIENCE_MS: Final = 30_000


class RoundTrip(NamedTuple):
    """One round trip: how far the broker is ahead of the controller, and how wrong that may be."""

    controller: int
    broker: int
    at_ms: int
    offset_ms: int
    err_ms: int


class ControllerToBroker(NamedTuple):
    """From a controller in one term to a broker."""

    cluster: str
    controller: int | None
    controller_epoch: int | None
    to: int | None


class _State(NamedTuple):
    """The state of a partition in a request, as the lines of both sides name it."""

    topic: str
    partition: int
    leader_epoch: int


class _ExecutedRequest(NamedTuple):
    """A request as its broker tells it."""

    number: int
    received_ms: int
    done_ms: int


@dataclass(slots=True)
class _UnansweredRequest:
    """A request that was not answered yet."""

    sent_ms: int  # its last line
    partitions: set[tuple[str, int]]


def is_unnumbered(event: SilverEvent) -> bool:
    """Returns whether it is an answer that names a partition and no number."""
    return event.event == "response_received" and event.correlation_id is None and event.topic is not None


def way_of(event: SilverEvent) -> ControllerToBroker | None:
    """Of a line that such a trip may be made of."""
    is_side = event.event == "request_sent" or is_unnumbered(event)
    if is_side and event.correlation_id is None and (event.api or API) == API:
        return ControllerToBroker(event.cluster, event.broker, event.controller_epoch, event.peer_broker)
    return None if request_of(event) is None else ControllerToBroker(*_way_of_request(event))


def _way_of_request(event: SilverEvent) -> tuple[str, int | None, int | None, int | None]:
    return event.cluster, event.controller, event.controller_epoch, event.broker


def unnumbered_trips_in(events: Iterable[SilverEvent]) -> Iterator[tuple[str, RoundTrip]]:
    """With their clusters; `events` in any order."""
    ways: dict[ControllerToBroker, list[SilverEvent]] = defaultdict(list)
    for event in events:
        way = way_of(event)
        if way is not None and None not in way:
            ways[way].append(event)
    for way, its in ways.items():
        if any(map(is_unnumbered, its)):
            yield from ((way.cluster, trip) for trip in _trips(way, its))


def _trips(way: ControllerToBroker, events: list[SilverEvent]) -> Iterator[RoundTrip]:
    assert way.controller is not None
    assert way.to is not None
    known = _known(events, way.to)
    said: list[tuple[int, bool, str, int, SilverEvent]] = [
        (event.ts_utc, event.event != "request_sent", event.file_id, event.line_no, event)
        for event in events
        if event.event in ("request_sent", "response_received")
    ]
    waiting: dict[_ExecutedRequest, _UnansweredRequest] = {}  # in the order of sending
    for at_ms, is_answer, *_, event in sorted(said, key=itemgetter(0, 1, 2, 3)):
        if event.topic is None or event.partition is None:
            continue
        about = (event.topic, event.partition)
        while waiting and next(iter(waiting.values())).sent_ms < at_ms - _PATIENCE_MS:
            del waiting[next(iter(waiting))]
        if not is_answer:
            done = None if event.leader_epoch is None else known.get(_State(*about, event.leader_epoch))
            if done is not None:
                request = waiting.setdefault(done, _UnansweredRequest(at_ms, set()))
                request.sent_ms = at_ms
                request.partitions.add(about)
            continue
        answered = next((done for done, request in waiting.items() if about in request.partitions), None)
        while answered is not None and answered in waiting:
            first = next(iter(waiting))
            request = waiting.pop(first)
            if first is answered:
                yield from _unnumbered_trip(way.controller, way.to, answered, request.sent_ms, at_ms)


def _known(events: Iterable[SilverEvent], broker: int) -> dict[_State, _ExecutedRequest]:
    """Returns the requests by the state of any of their partitions: of each state the first request that was done."""
    requests: list[tuple[Request, list[SilverEvent]]] = list(done_in(events, frozenset({broker})))
    requests.sort(key=lambda one: (one[1][0].ts_utc, one[1][0].file_id, one[1][0].line_no))
    found: dict[_State, _ExecutedRequest] = {}
    for number, (_, lines) in enumerate(requests):
        done = _ExecutedRequest(number, lines[0].ts_utc, lines[-1].ts_utc)
        for line in lines:
            if line.topic is not None and line.partition is not None and line.leader_epoch is not None:
                found.setdefault(_State(line.topic, line.partition, line.leader_epoch), done)
    return found


def _unnumbered_trip(
    controller: int, broker: int, done: _ExecutedRequest, sent_ms: int, answered_ms: int
) -> Iterator[RoundTrip]:
    way_ms = (answered_ms - sent_ms) - (done.done_ms - done.received_ms)
    if way_ms >= 0:
        offset_ms = ((done.received_ms - sent_ms) + (done.done_ms - answered_ms)) // 2
        yield RoundTrip(controller, broker, done.received_ms, offset_ms, (way_ms + 1) // 2)


#: of the trips of an hour, those with the least error
BEST_SHARE: Final = 10
Heard = dict[int, set[int]]  # broker: the hours in which it wrote anything
#: fewer than this say too little
LEAST_TRIPS: Final = 3
#: by which time zones differ; and how wrong a clock may be besides
_QUARTER_MS: Final = 900_000
_SURE_MS: Final = 30_000


class HourlyOffset(NamedTuple):
    """The result of the best trips between two brokers in one hour."""

    offset_ms: int
    err_ms: int
    samples: int


#: (controller, broker): hour: how far the broker is ahead
AheadOf = Mapping[tuple[int, int], Mapping[int, HourlyOffset]]


class _Key(NamedTuple):
    controller: int
    controller_epoch: int
    broker: int
    correlation_id: int


OF_TRIPS: Final = frozenset({"request_sent", "request_received", "request_done", "response_received"})


def all_trips_in(events: Sequence[SilverEvent]) -> list[RoundTrip]:
    """Of one cluster."""
    return [*trips_in(events), *(trip for _, trip in unnumbered_trips_in(events))]


def trips_in(events: Sequence[SilverEvent]) -> list[RoundTrip]:
    """Of one cluster: of LeaderAndIsr requests that all four sides speak of."""
    ordered = sorted(events, key=lambda event: (event.file_id, event.line_no))
    received: dict[_Key, int] = {}
    done: dict[_Key, int] = {}
    answered: dict[_Key, int] = {}
    first_answered: dict[_Key, int] = {}
    numbered: dict[_Key, int] = {}
    epoch_of: dict[tuple[int, str, int, int, int], _Key] = {}
    for event in ordered:
        key = _key_of(event)
        if key is None:
            continue
        if event.event == "request_received":
            received.setdefault(key, event.ts_utc)
            if event.topic is not None and event.partition is not None and event.leader_epoch is not None:
                epoch_of.setdefault((key.broker, event.topic, event.partition, event.leader_epoch, key[1]), key)
        elif event.event == "request_done":
            done[key] = event.ts_utc
        elif event.event == "request_sent":
            numbered[key] = max(numbered.get(key, event.ts_utc), event.ts_utc)
        elif event.api is not None:
            answered[key] = event.ts_utc
        else:  # requests of one batch share a number, and those that make leaders go first
            first_answered.setdefault(key, event.ts_utc)
    answered = first_answered | answered
    sent = _sends(ordered, epoch_of)
    for key, at_ms in numbered.items():
        sent[key] = max(sent.get(key, at_ms), at_ms)
    return [
        _trip(key, sent[key], received[key], done[key], answered[key])
        for key in sent
        if key in received and key in done and key in answered
    ]


def _sends(events: Sequence[SilverEvent], keys: Mapping[tuple[int, str, int, int, int], _Key]) -> dict[_Key, int]:
    """Returns when each request went out: the last line about a partition of it."""
    sent: dict[_Key, int] = {}
    for event in events:
        if event.event != "request_sent" or event.api != "LeaderAndIsr" or event.peer_broker is None:
            continue
        if event.topic is None or event.partition is None or event.leader_epoch is None:
            continue
        if event.controller_epoch is None or event.correlation_id is not None:
            continue
        place = (event.peer_broker, event.topic, event.partition, event.leader_epoch, event.controller_epoch)
        key = keys.get(place)
        if key is not None and key.controller == event.broker:
            sent[key] = max(sent.get(key, event.ts_utc), event.ts_utc)
    return sent


def _key_of(event: SilverEvent) -> _Key | None:
    """Up to 1.0 an answer does not name its request, except by the number, if it has one."""
    if event.correlation_id is None or event.controller is None or event.controller_epoch is None:
        return None
    is_answer = event.event == "response_received"
    broker = event.peer_broker if is_answer or event.event == "request_sent" else event.broker
    if broker is None or not (event.api == "LeaderAndIsr" or (is_answer and event.api is None)):
        return None
    return _Key(event.controller, event.controller_epoch, broker, event.correlation_id)


def _trip(key: _Key, sent: int, received: int, done: int, answered: int) -> RoundTrip:
    offset = ((received - sent) + (done - answered)) // 2
    error = ((answered - sent) - (done - received) + 1) // 2
    return RoundTrip(key.controller, key.broker, received, offset, abs(error))


def rows_for(
    cluster: str, ahead: AheadOf, heard: Mapping[int, set[int]], gaps_of: Callable[[], HourlyGaps]
) -> list[SilverSkew]:
    """Of one cluster. `heard`: in which hours each broker wrote anything. `gaps_of` is asked only where trips do not
    lead everywhere."""
    reference = max(heard, key=lambda broker: (sum(broker in pair for pair in ahead), -broker), default=None)
    by_hour = {
        hour: _walk(reference, {pair: found.get(hour) or found[min(found)] for pair, found in ahead.items()})
        for hour in sorted({hour for hours in heard.values() for hour in hours})
    }
    steady: list[SteadyHours] = []
    if reference is not None and any(heard.keys() - paths.keys() for paths in by_hour.values()):
        gaps = gaps_of()
        for (controller, broker), hours in ahead.items():
            for hour, best in hours.items():
                gaps.see(controller, broker, best.offset_ms + best.err_ms, hour)
                gaps.see(broker, controller, best.err_ms - best.offset_ms, hour)
        steady = steady_in(gaps)
        if not ahead:  # no trips single out a reference: take the broker that bounds the most others
            reference = max(heard, key=lambda broker: (sum(len(one.ranges(broker)) for one in steady), -broker))
            by_hour = {hour: {} for hour in by_hour}
    bound = [] if reference is None else [(one.from_hour, one.ranges(reference)) for one in steady]
    rows = []
    for hour, paths in by_hour.items():
        ranges = next(
            (found for from_hour, found in reversed(bound) if from_hour <= hour), bound[0][1] if bound else {}
        )
        for broker in sorted(broker for broker, hours in heard.items() if hour in hours):
            method, found = "assumed", Range(0, None, 0)
            if broker == reference:
                method, found = "reference", Range(0, 0, 0)
            elif broker in paths:
                method, found = "round_trips", Range(*paths[broker])
            elif broker in ranges:
                method, found = "one_way", ranges[broker]
            rows.append(
                SilverSkew(
                    cluster=cluster,
                    broker=broker,
                    hour=hour,
                    offset_ms=found.offset_ms,
                    err_ms=found.err_ms,
                    method=method,
                    samples=found.samples,
                )
            )
    return rows


def ahead_of(trips: Sequence[RoundTrip]) -> AheadOf:
    """By the best trips of each hour that has enough of them."""
    grouped: defaultdict[tuple[int, int], defaultdict[int, list[RoundTrip]]] = defaultdict(lambda: defaultdict(list))
    for trip in trips:
        if trip.controller != trip.broker:
            grouped[trip.controller, trip.broker][trip.at_ms // HOUR_MS * HOUR_MS].append(trip)
    return {
        pair: {hour: _best(found) for hour, found in hours.items() if len(found) >= LEAST_TRIPS}
        for pair, hours in grouped.items()
        if any(len(found) >= LEAST_TRIPS for found in hours.values())
    }


def _best(trips: Sequence[RoundTrip]) -> HourlyOffset:
    chosen = sorted(trips, key=lambda trip: (trip.err_ms, trip.offset_ms))
    chosen = chosen[: max(LEAST_TRIPS, len(chosen) // BEST_SHARE)]
    return HourlyOffset(median_low(trip.offset_ms for trip in chosen), max(trip.err_ms for trip in chosen), len(trips))


def _walk(
    reference: int | None, ahead: Mapping[tuple[int, int], HourlyOffset]
) -> dict[int, tuple[int, int | None, int]]:
    """Returns how far each broker is ahead of the reference, along the fewest pairs."""
    if reference is None:
        return {}
    found: dict[int, tuple[int, int | None, int]] = {reference: (0, 0, 0)}
    waiting = deque([reference])
    while waiting:
        here = waiting.popleft()
        offset, error, _ = found[here]
        for (controller, broker), (further, err_ms, samples) in sorted(ahead.items()):
            for start, end, sign in ((controller, broker, 1), (broker, controller, -1)):
                if start == here and end not in found:
                    found[end] = (offset + sign * further, (error or 0) + err_ms, samples)
                    waiting.append(end)
    return found


def corrected(events: Iterable[SilverEvent], skew: Sequence[SilverSkew]) -> list[SilverEvent]:
    """`ts_adj` is the time of the reference's clock. A broker whose error is within its bounds keeps its own time."""
    known: dict[tuple[str, int | None, int], tuple[int, int | None]] = {
        (row.cluster, row.broker, row.hour): (applied_ms(row), left_ms(row)) for row in skew
    }
    found = list[SilverEvent]()
    for event in events:
        at_ms = event.ts_utc
        fix = known.get((event.cluster, event.broker, at_ms - at_ms % HOUR_MS))
        if fix is not None:
            event = msgspec.structs.replace(event, ts_adj=at_ms - fix[0], skew_ms=fix[0], skew_err_ms=fix[1])  # noqa: PLW2901
        found.append(event)
    return found


def applied_ms(row: SilverSkew) -> int:
    """Not more is corrected than is proven: an offset below its own error is none."""
    return row.offset_ms if row.err_ms is not None and abs(row.offset_ms) > row.err_ms else 0


def zone_hint(row: SilverSkew) -> str | None:
    """Returns whether the offset is one that clocks hardly have, and time zones do."""
    quarters = round(row.offset_ms / _QUARTER_MS)
    if not quarters or row.err_ms is None or row.err_ms > _SURE_MS:
        return None
    if abs(row.offset_ms - quarters * _QUARTER_MS) > row.err_ms + _SURE_MS:
        return None
    return f"as in a time zone {quarters / 4:+g} h off: see --timezone {row.broker}=..."


def left_ms(row: SilverSkew) -> int | None:
    """Returns how wrong a corrected time may still be, errors that were not corrected included."""
    return None if row.err_ms is None else row.err_ms + abs(row.offset_ms - applied_ms(row))
