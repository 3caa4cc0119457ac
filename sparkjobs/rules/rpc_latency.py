"""How long the controller's requests took: percentiles by broker, request and hour, at either side.

The broker's side is the time in the broker's own line about its work. Brokers before 2.6 have no such line: there it
lasts from the first partition that it received of a request to the last one that it completed. The controller's side is
from the request to its acknowledgement, both by the controller's clock.

Since 0.9 a request that is sent carries no number. It is found by the broker's lines about the numbered request that it
received: the first partition in it, or how many there are. The last such request that was sent before the
acknowledgement is the one. In 0.8 a sent request is numbered, but requests of one batch share a number, and their
answers say no more than that; they come in the order in which that batch was sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.rules.facts import DONE
from sparkjobs.rules.receipts import API, done_in
from sparkjobs.tables.gold import RpcLatency
from sparkjobs.tables.silver import SilverEvent

#: a broker's line that describes a numbered request
RECEIPTS: Final = frozenset({"request_received", "metadata_cached"})
EVENTS: Final = RECEIPTS | {"request_done", "request_sent", "response_received"}
#: the requests of one batch as a controller of 0.8 sends them; the order of their names is the same
OF_A_BATCH: Final = ("LeaderAndIsr", "UpdateMetadata")


class Group(NamedTuple):
    """The subject of one row of percentiles."""

    cluster: str
    hour_ms: int
    broker: int
    api: str
    side: str


class _Request(NamedTuple):
    cluster: str
    controller: int
    controller_epoch: int
    broker: int
    api: str
    correlation_id: int


class _About(NamedTuple):
    """The content of a request: its partition, its leader epoch or its number of partitions, and the controller's
    term."""

    cluster: str
    controller: int | None
    controller_epoch: int | None
    api: str | None
    topic: str | None
    partition: int | None
    leader_epoch: int | None
    n_partitions: int | None


def rpc_latency_of(events: Sequence[SilverEvent], by_number: frozenset[int] = frozenset()) -> Iterator[RpcLatency]:
    """Of both sides; `events` of one cluster, in any order. `by_number`: as in `Facts`."""
    found: dict[Group, list[float]] = defaultdict(list)
    for event in events:
        if event.event == "request_done" and event.elapsed_ms is not None and event.broker is not None:
            group = Group(event.cluster, _hour_of(event), event.broker, event.api or "unknown", "broker")
            found[group].append(event.elapsed_ms)
    for group, took_ms in (*_worked(events, by_number), *_acknowledged(events), *_answered_in_turn(events)):
        found[group].append(took_ms)
    for group, times in found.items():
        times.sort()
        yield RpcLatency(
            **group._asdict(),
            requests=len(times),
            p50_ms=nearest_rank(times, 50),
            p95_ms=nearest_rank(times, 95),
            p99_ms=nearest_rank(times, 99),
            max_ms=times[-1],
        )


def _hour_of(event: SilverEvent) -> int:
    return event.ts_adj // HOUR_MS * HOUR_MS


def _worked(events: Iterable[SilverEvent], by_number: frozenset[int]) -> Iterator[tuple[Group, float]]:
    """Each request that a broker names by its number alone."""
    for request, lines in done_in(events, by_number) if by_number else ():
        last = max((line for line in lines if line.event == DONE), key=_order)
        group = Group(request.cluster, _hour_of(last), request.broker, API, "broker")
        yield group, float(last.ts_utc - lines[0].ts_utc)


def _answered_in_turn(events: Iterable[SilverEvent]) -> Iterator[tuple[Group, float]]:
    """Each request of 0.8 that was answered."""
    sent: dict[_Request, list[int]] = defaultdict(list)
    answers: dict[_Request, list[SilverEvent]] = defaultdict(list)
    for event in events:
        if event.event == "request_sent" and event.api in OF_A_BATCH:
            request = _request(event, event.broker, event.peer_broker)
            if request is not None:
                sent[request].append(event.ts_utc)
        elif event.event == "response_received" and event.api is None:
            request = _request(msgspec.structs.replace(event, api=""), event.broker, event.peer_broker)
            if request is not None:
                answers[request].append(event)
    for batch, its in answers.items():
        asked = [request for api in OF_A_BATCH if (request := batch._replace(api=api)) in sent]
        for request, answer in zip(asked, sorted(its, key=_order), strict=False):
            times = [at_ms for at_ms in sent[request] if at_ms <= answer.ts_utc]
            if times:
                group = Group(request.cluster, _hour_of(answer), request.broker, request.api, "controller")
                yield group, float(answer.ts_utc - max(times))


def _acknowledged(events: Iterable[SilverEvent]) -> Iterator[tuple[Group, float]]:
    """Each request of which both sides speak."""
    receipts: dict[tuple[_Request, bool], SilverEvent] = {}
    answers: dict[tuple[_Request, bool], SilverEvent] = {}
    sent: dict[_About, list[SilverEvent]] = defaultdict(list)
    for event in events:
        if event.event in RECEIPTS:
            _keep_first(receipts, _request(event, event.controller, event.broker), event)
        elif event.event == "response_received":
            _keep_first(answers, _request(event, event.broker, event.peer_broker), event)
        elif event.event == "request_sent" and event.controller_epoch is not None:
            sent[_about(event, event.broker)].append(event)
    for (request, _), answer in answers.items():
        abouts = [receipts[request, is_batch] for is_batch in (False, True) if (request, is_batch) in receipts]
        found = [one for receipt in abouts for one in sent.get(_about(receipt, receipt.controller), ())]
        times = [one.ts_utc for one in found if one.ts_utc <= answer.ts_utc and _is_to(one, request.broker)]
        if times:
            group = Group(request.cluster, _hour_of(answer), request.broker, request.api, "controller")
            yield group, float(answer.ts_utc - max(times))


def _is_to(sent: SilverEvent, broker: int) -> bool:
    if sent.peer_broker is not None:
        return sent.peer_broker == broker
    return sent.topic is not None or broker in (sent.replicas or ())


def _keep_first(known: dict[tuple[_Request, bool], SilverEvent], request: _Request | None, event: SilverEvent) -> None:
    if request is not None:
        key = (request, event.topic is None and event.n_partitions is not None)
        before = known.get(key)
        if before is None or _order(event) < _order(before):
            known[key] = event


def _order(event: SilverEvent) -> tuple[int, str, int]:
    return event.ts_utc, event.file_id, event.line_no


def _request(event: SilverEvent, controller: int | None, broker: int | None) -> _Request | None:
    if controller is None or broker is None or event.controller_epoch is None:
        return None
    if event.correlation_id is None or event.api is None:
        return None
    return _Request(event.cluster, controller, event.controller_epoch, broker, event.api, event.correlation_id)


def _about(event: SilverEvent, controller: int | None) -> _About:
    place = (event.topic, event.partition, event.leader_epoch, event.n_partitions)
    return _About(event.cluster, controller, event.controller_epoch, event.api, *place)


def nearest_rank(times: list[float], percent: int) -> float:
    """Returns the smallest value that at least `percent` of the sorted values do not exceed."""
    return times[max(0, -(-len(times) * percent // 100) - 1)]
