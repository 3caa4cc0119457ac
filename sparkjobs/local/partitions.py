"""A share of the partitions, kept by one member of the crew: its events, and what the rules say of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from sparkjobs.answers import outages, rules
from sparkjobs.answers.facts import Facts
from sparkjobs.answers.local import partition_rows
from sparkjobs.causality import OF_PAIRS, Gaps, gaps_in
from sparkjobs.local.calls import Calls
from sparkjobs.local.carried import PACK, unpacked
from sparkjobs.local.crew import Kept
from sparkjobs.schemas import SilverEvent, SilverSkew
from sparkjobs.skew import corrected

_EVENTS: Final = "events"


class Question(NamedTuple):
    """What the rules need besides the events. `calls`: of brokers that name what they did by a request's number."""

    facts: Facts
    skew: Sequence[SilverSkew]
    only: Collection[str]
    calls: Calls | None = None
    others: Sequence[SilverEvent] = ()  # calls that were read one by one


class Share(NamedTuple):
    """What the rules said, packed; of each topic how many partitions are named, and when."""

    tables: dict[str, bytes]
    spans: dict[str, tuple[int, int, int]]


def keep(kept: Kept, packed: Sequence[tuple[bytes, int]]) -> None:
    """Take them."""
    kept[_EVENTS] = unpacked(packed)


def gaps_of_share(kept: Kept, _: Any) -> Gaps:
    """What its elections say about clocks."""
    return gaps_in(event for event in kept[_EVENTS] if event.event in OF_PAIRS)


def rows_of_share(kept: Kept, asked: Question) -> Share:
    """Of the rules about partitions."""
    groups: dict[tuple[str, int], list[SilverEvent]] = defaultdict(list)
    spans: dict[str, tuple[set[int], int, int]] = {}
    events = corrected(kept.pop(_EVENTS), asked.skew)
    for event in events:
        assert event.topic is not None
        assert event.partition is not None
        groups[event.topic, event.partition].append(event)
        if "slo_daily" in asked.only and event.event in outages.EVENTS:
            at_ms = event.ts_adj
            numbers, first_ms, last_ms = spans.get(event.topic, (set(), at_ms, at_ms))
            numbers.add(event.partition)
            spans[event.topic] = numbers, min(first_ms, at_ms), max(last_ms, at_ms)
    calls = [] if asked.calls is None else asked.calls.events()
    for event in corrected([*calls, *asked.others], asked.skew):
        if event.topic is not None and event.partition is not None:
            groups[event.topic, event.partition].append(event)
    tables: dict[str, list[Any]] = dict(partition_rows(groups.values(), asked.facts, asked.only))
    if "illegal_transitions" in asked.only:
        tables["illegal_transitions"] = list(rules.illegal_transitions_of(events))
    return Share(
        {name: PACK.encode(rows) for name, rows in tables.items()},
        {topic: (len(numbers), first_ms, last_ms) for topic, (numbers, first_ms, last_ms) in spans.items()},
    )
