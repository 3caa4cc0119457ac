"""The work of brokers before 2.6: their own lines name it by a request's number alone. Pure.

Such a broker logs of each partition that it received request 7, with the leader epoch, and later that it has completed
request 7, without it. Numbers begin anew when a controller connects to a broker again. So a receipt and a completion
belong together only where no other line stands between: a receipt after a completion begins another request. Only one
broker's lines are compared with each other, so no other clock is asked.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from sparkjobs.rules.facts import DONE, RECEIVED, Facts
from sparkjobs.tables.gold import LeaderChange
from sparkjobs.tables.silver import SilverEvent

EVENTS: Final = frozenset({RECEIVED, DONE})
API: Final = "LeaderAndIsr"


class Request(NamedTuple):
    """The fields that all lines about a request share. Lines about later requests with its number share them, too."""

    cluster: str
    broker: int
    controller: int
    controller_epoch: int
    correlation_id: int


def request_of(event: SilverEvent) -> Request | None:
    """Nothing where the line is no such line."""
    if event.event not in EVENTS or event.api != API or event.broker is None or event.controller is None:
        return None
    if event.controller_epoch is None or event.correlation_id is None:
        return None
    return Request(event.cluster, event.broker, event.controller, event.controller_epoch, event.correlation_id)


def done_in(events: Iterable[SilverEvent], brokers: frozenset[int]) -> Iterator[tuple[Request, list[SilverEvent]]]:
    """The lines of each request that was received and done by one of these brokers, in order."""
    lines: dict[Request, list[SilverEvent]] = defaultdict(list)
    for event in events:
        request = request_of(event) if event.broker in brokers else None
        if request is not None:
            lines[request].append(event)
    for request, own in lines.items():
        found: list[SilverEvent] = []
        for event in sorted(own, key=_in_order):
            if event.event == RECEIVED and found and found[-1].event == DONE:
                yield from _whole(request, found)
                found = []
            found.append(event)
        yield from _whole(request, found)


def _whole(request: Request, lines: list[SilverEvent]) -> Iterator[tuple[Request, list[SilverEvent]]]:
    if lines[0].event == RECEIVED and lines[-1].event == DONE:
        yield request, lines


def _in_order(event: SilverEvent) -> tuple[int, bool, str, int]:
    return event.ts_utc, event.event == DONE, event.file_id, event.line_no


def with_requests(
    changes: Sequence[LeaderChange], events: Sequence[SilverEvent], facts: Facts
) -> Sequence[LeaderChange]:
    """Returns the leader changes of one partition, completed from the lines about requests: up to 1.0 with the state
    that was decided, before 2.6 with the brokers that obeyed. `events` are all of the partition's."""
    calls = [event for event in events if event.event in EVENTS] if facts.by_number else []
    if not calls and all(change.leader_epoch is not None for change in changes):
        return changes
    stated = [_with_state(change, after, events) for change, after in itertools.zip_longest(changes, changes[1:])]
    fresh = {place for place, (old, new) in enumerate(zip(changes, stated, strict=True)) if old is not new}
    acks = [dict(zip(one.acked, one.acked_ms, strict=True)) for one in stated]
    _add(acks, stated, _starts(events) if fresh else (), fresh)
    of_words = [frozenset(known) for known in acks]
    _add(acks, stated, _requests(calls, facts.by_number), range(len(stated)), of_words)
    return [_acked(one, known) for one, known in zip(stated, acks, strict=True)]


def _with_state(change: LeaderChange, after: LeaderChange | None, events: Iterable[SilverEvent]) -> LeaderChange:
    """As the first request says that its controller sent then, to make that broker the leader."""
    if change.leader_epoch is not None:
        return change
    sent = [
        event
        for event in events
        if (event.event, event.api, event.leader) == ("request_sent", API, change.leader)
        if (event.broker, event.controller_epoch) == (change.controller, change.controller_epoch)
        if event.leader_epoch is not None and change.at_ms <= event.ts_adj
        if after is None or event.ts_adj <= after.at_ms
    ]
    if not sent:
        return change
    first = min(sent, key=lambda event: (event.ts_adj, event.file_id, event.line_no))
    known = {
        "leader_epoch": first.leader_epoch,
        "version": first.version if change.version is None else change.version,
        "isr": first.isr if change.isr is None else change.isr,
    }
    return msgspec.structs.replace(change, **known)


class _ExecutedDecision(NamedTuple):
    """A broker has carried out the decision of that leader epoch."""

    leader_epoch: int
    broker: int
    at_ms: int


def _starts(events: Iterable[SilverEvent]) -> Iterator[_ExecutedDecision]:
    for event in events:
        is_start = event.event in ("leader_started", "follower_started")
        if is_start and event.leader_epoch is not None and event.broker is not None:
            yield _ExecutedDecision(event.leader_epoch, event.broker, event.ts_adj)


def _requests(events: Iterable[SilverEvent], brokers: frozenset[int]) -> Iterator[_ExecutedDecision]:
    for request, lines in done_in(events, brokers):
        epochs = [line.leader_epoch for line in lines if line.leader_epoch is not None]
        if epochs:
            yield _ExecutedDecision(
                max(epochs), request.broker, next(line.ts_adj for line in lines if line.event == DONE)
            )


def _add(
    acks: Sequence[dict[int, int]],
    changes: Sequence[LeaderChange],
    found: Iterable[_ExecutedDecision],
    places: Collection[int],
    but: Sequence[Collection[int]] = (),
) -> None:
    """Credits each completion to the last election of that epoch before it: a topic that was made anew has its leader
    epochs again. `places`: the elections in question; `but`: for each, the brokers of which more is known."""
    for done in found:
        alike = [place for place, one in enumerate(changes) if one.leader_epoch == done.leader_epoch]
        place = next((one for one in reversed(alike) if changes[one].at_ms <= done.at_ms), alike[0] if alike else -1)
        if place in places and not (but and done.broker in but[place]):
            known = acks[place]
            known[done.broker] = min(done.at_ms, known.get(done.broker, done.at_ms))


def _acked(change: LeaderChange, acks: dict[int, int]) -> LeaderChange:
    ordered = sorted((at_ms, broker) for broker, at_ms in acks.items())
    return msgspec.structs.replace(
        change, acked=tuple(broker for _, broker in ordered), acked_ms=tuple(at_ms for at_ms, _ in ordered)
    )
