"""The possible offsets of the brokers' clocks, from pairs of lines with a certain order. Pure.

At Kafka's default level since 2.6 no line names both ends of a round trip. But a broker begins to lead at an epoch only
after the controller said so, and a controller knows of a registration only after the broker made it. Each such pair
says that the second clock was ahead of the first by no more than the gap between the two lines. Gaps in both
directions, also by way of other brokers, leave a range: its middle is taken, half its width is the error.

Our own logs name no request twice, but all lines of one cause by its id: the controller names the live brokers before
it sends them requests, and reports that all brokers have acknowledged its term's first requests after they did.

The clocks are taken to be off but steady, for the whole of the logs. Where that contradicts itself, they are taken to
be steady for an hour. Nothing is said of an hour that contradicts itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Final, NamedTuple

from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.tables.silver import SilverEvent

#: how brokers answer an election
STARTS: Final = frozenset({"leader_started", "follower_started"})
#: the parts of the pairs
OF_PAIRS: Final = STARTS | {"partition_changed", "registering", "registered", "broker_epochs"}
#: and, of lines that name their cause
OF_CAUSES: Final = frozenset({"broker_changed", "request_done", "controller_reported"})
#: milliseconds are cut off, so the time between two moments may be so much longer than they say
_CUT_MS: Final = 1
_EPOCHS: Final = re.compile(r"(\d{1,9}) -> (\d{1,18})", re.ASCII)


def is_of_pair(event: SilverEvent) -> bool:
    """Returns whether it may be one side of a pair."""
    return event.event in OF_PAIRS or (event.cause_id is not None and event.event in OF_CAUSES)


class Range(NamedTuple):
    """How far a clock is ahead of the reference's."""

    offset_ms: int
    err_ms: int | None  # none: not known
    samples: int


#: (earlier, later): the least gap
Least = Mapping[tuple[int, int], int]


class HourlyGaps:
    """The least gap from a line of one broker to a later line of another, by both brokers' own clocks, in each hour."""

    def __init__(self) -> None:
        self.by_hour: dict[int, dict[tuple[int, int], int]] = {}
        self.samples: defaultdict[int, int] = defaultdict(int)

    def see(self, earlier: int, later: int, gap_ms: int, at_ms: int, samples: int = 1) -> None:
        """`at_ms`: when, by the clock of the earlier one; `samples`: of so many the least gap."""
        if earlier != later:
            least = self.by_hour.setdefault(at_ms // HOUR_MS * HOUR_MS, {})
            least[earlier, later] = min(gap_ms, least.get((earlier, later), gap_ms))
            self.samples[earlier] += samples
            self.samples[later] += samples

    def join(self, other: HourlyGaps) -> None:
        """Adds the gaps that others saw of the same cluster."""
        for hour, least in other.by_hour.items():
            self.by_hour[hour] = _least_of(self.by_hour.get(hour, {}), least)
        for broker, samples in other.samples.items():
            self.samples[broker] += samples


def _least_of(one: Least, other: Least) -> dict[tuple[int, int], int]:
    return {**one, **{pair: min(gap_ms, one.get(pair, gap_ms)) for pair, gap_ms in other.items()}}


def gaps_in(events: Iterable[SilverEvent]) -> HourlyGaps:
    """Of one cluster; `events` in any order."""
    known, gaps = list(events), HourlyGaps()
    if {event.event for event in known} <= {"partition_changed"}:
        return gaps  # elections that no broker answers: nothing comes after them, however many there are
    ordered = sorted(known, key=lambda event: (event.ts_utc, event.event_id))
    _see_elections(ordered, gaps)
    _see_registrations(ordered, gaps)
    _see_causes([event for event in ordered if event.cause_id is not None], gaps)
    return gaps


def _see_elections(events: Iterable[SilverEvent], gaps: HourlyGaps) -> None:
    """From a controller's election to the broker that leads or follows at that epoch. An epoch that was said twice is
    that of a topic which was made anew, and proves nothing."""
    said: dict[tuple[str, int, int], list[tuple[int, int]]] = defaultdict(list)
    done: dict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)
    for event in events:
        if event.topic is None or event.partition is None or event.leader_epoch is None or event.broker is None:
            continue
        key = (event.topic, event.partition, event.leader_epoch)
        if event.event == "partition_changed" and event.to_state == "OnlinePartition":
            said[key].append((event.broker, event.ts_utc))
        elif event.event in STARTS:
            done[key].setdefault(event.broker, event.ts_utc)
    for key, elections in said.items():
        if len(elections) == 1:
            controller, at_ms = elections[0]
            for broker, done_ms in done.get(key, {}).items():
                gaps.see(controller, broker, done_ms - at_ms, at_ms)


def _see_registrations(events: Iterable[SilverEvent], gaps: HourlyGaps) -> None:
    """From just before a broker registers to the first that each controller knows of that registration."""
    begun: dict[int, int] = {}
    made: dict[tuple[int, int], int] = {}
    known: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for event in events:
        if event.broker is None:
            continue
        if event.event == "registering":
            begun[event.broker] = event.ts_utc
        elif event.event == "registered" and event.broker_epoch is not None and event.broker in begun:
            made.setdefault((event.broker, event.broker_epoch), begun.pop(event.broker))
        elif event.event == "broker_epochs":
            for broker, epoch in _EPOCHS.findall(event.reason or ""):
                known[int(broker), int(epoch)].setdefault(event.broker, event.ts_utc)
    for (broker, epoch), at_ms in made.items():
        for controller, known_ms in known.get((broker, epoch), {}).items():
            gaps.see(broker, controller, known_ms - at_ms, at_ms)


def _see_causes(events: Iterable[SilverEvent], gaps: HourlyGaps) -> None:
    """Finds the gaps from a controller to the brokers that it tells of others, and back from the first answer to the
    line that all have answered. That line does not wait for brokers that were gone by then."""
    said: dict[tuple[int, str], int] = {}
    answered: dict[tuple[int, str], int] = {}
    gone: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    done: dict[tuple[int, str], dict[int, SilverEvent]] = defaultdict(dict)
    for event in events:
        if event.broker is None or event.controller is None or event.cause_id is None:
            continue
        cause = (event.controller, event.cause_id)
        if event.event == "request_done":
            done[cause].setdefault(event.broker, event)
        elif event.event == "controller_reported" and event.to_state == "acknowledged":
            answered.setdefault(cause, event.ts_utc)
        elif event.event == "broker_changed" and event.to_state in ("live", "gone"):
            said.setdefault(cause, event.ts_utc)
            if event.to_state == "gone" and event.peer_broker is not None and event.controller_epoch is not None:
                gone[event.controller, event.controller_epoch].setdefault(event.peer_broker, event.ts_utc)
    for (controller, cause_id), first in done.items():
        said_ms, answered_ms = said.get((controller, cause_id)), answered.get((controller, cause_id))
        for broker, event in first.items():
            if said_ms is not None:
                gaps.see(controller, broker, event.ts_utc - int(event.elapsed_ms or 0) - said_ms + _CUT_MS, said_ms)
            gone_ms = gone[controller, event.controller_epoch or 0].get(broker)
            if answered_ms is not None and (gone_ms is None or gone_ms > answered_ms):
                gaps.see(broker, controller, answered_ms - event.ts_utc + _CUT_MS, event.ts_utc)


class SteadyHours(NamedTuple):
    """Hours in which no clock moved, as far as the lines say."""

    from_hour: int
    most: Least  # by how much a second clock can be ahead of a first
    samples: Mapping[int, int]

    def ranges(self, reference: int) -> dict[int, Range]:
        """Returns each clock that is bound to the reference's from both sides."""
        found = {}
        for broker in sorted({broker for pair in self.most for broker in pair} - {reference}):
            ahead, behind = self.most.get((reference, broker)), self.most.get((broker, reference))
            if ahead is not None and behind is not None:
                found[broker] = Range((ahead - behind) // 2, (ahead + behind + 1) // 2, self.samples[broker])
        return found


def steady_in(gaps: HourlyGaps) -> list[SteadyHours]:
    """One after the other."""
    most = _shortest(reduce(_least_of, gaps.by_hour.values(), {}))
    if not _contradicts_itself(most):
        return [SteadyHours(min(gaps.by_hour, default=0), most, gaps.samples)]
    found: list[SteadyHours] = []
    least: Least = {}
    for hour, its in sorted(gaps.by_hour.items()):
        longer = _least_of(least, its)
        most = _shortest(longer)
        if found and not _contradicts_itself(most):
            least, found[-1] = longer, found[-1]._replace(most=most)
        else:
            least, most = its, _shortest(its)
            found.append(SteadyHours(hour, {} if _contradicts_itself(most) else most, gaps.samples))
    return found


def _contradicts_itself(most: Least) -> bool:
    return any(one == other and gap_ms < 0 for (one, other), gap_ms in most.items())


def _shortest(least: Least) -> Least:
    """Gaps by way of any number of others: Floyd and Warshall."""
    known, brokers = dict(least), sorted({broker for pair in least for broker in pair})
    for via in brokers:
        for start in brokers:
            first = known.get((start, via))
            if first is None:
                continue
            for end in brokers:
                second = known.get((via, end))
                if second is not None and first + second < known.get((start, end), first + second + 1):
                    known[start, end] = first + second
    return known
