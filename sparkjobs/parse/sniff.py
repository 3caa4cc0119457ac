"""Which layout and which wrapper a file has, from its first lines. Pure.

Every pair is tried on the same lines; the one whose lines are understood as the most shapes wins, then the one that
fits the most lines, then the earlier. Nothing fits: the file has no layout, and its lines are accounted for as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from sparkjobs.parse.layouts import DATE, LAYOUTS, WRAPPERS, unwrapper
from sparkjobs.parse.lines import LineReader
from sparkjobs.parse.ours import row_of_ours
from sparkjobs.parse.shapes import UNLISTED
from sparkjobs.parse.timestamps import millis_of
from sparkjobs.tables.silver import BronzeFile, SilverEvent

SAMPLED: Final = 200
_WRAPPED: Final = (None, *WRAPPERS, "json")


class Sniffed(msgspec.Struct, frozen=True):
    """The findings from the first lines."""

    layout: str | None = None
    wrapper: str | None = None
    brokers: frozenset[int] = frozenset()
    first_raw: str | None = None
    first_broker: int | None = None  # if it says so itself

    def first_moment(self, zone: str) -> int | None:
        return None if self.first_raw is None else millis_of(self.first_raw, zone)


def sniff(lines: Sequence[str], layout: str | None = None) -> Sniffed:
    """`layout` when the user named one."""
    sample = list(islice((line for line in lines[: 10 * SAMPLED] if _may_be_event(line)), SAMPLED))
    wrappers = list(_wrappers_of(sample))
    for wrapper in wrappers:
        unwrap = unwrapper(wrapper)
        ours = [row for line in sample if (row := row_of_ours(unwrap(line) or "", None)) is not None]
        if ours and 2 * len(ours) >= len(sample):
            return Sniffed("klamm", wrapper, frozenset[int](), str(ours[0]["at_ms"]))
    best, best_score = Sniffed(), (0, 0)
    for wrapper in wrappers:
        for pattern in LAYOUTS if layout is None else (layout,):
            found, score = _try(sample, pattern, wrapper)
            if score <= best_score:
                continue
            best, best_score = found, score
            if score[0] and 10 * score[1] >= 9 * len(sample) and 2 * score[0] >= score[1]:
                return found
        if best_score[0]:
            return best
    return best


def _wrappers_of(sample: Sequence[str]) -> Iterator[str | None]:
    """Those that these lines may have. One that finds nothing to take off leaves the lines to be read without it."""
    plain = list(map(unwrapper(None), sample))
    for wrapper in _WRAPPED:
        text = list(map(unwrapper(wrapper), sample))
        if wrapper is None or (text != plain and any(text)):
            yield wrapper


def _may_be_event(line: str) -> bool:
    """Returns whether a line may be an event. Banners, dumps of settings and stack traces have no dates; an event
    behind them may be far down."""
    return not line[:1].isspace() and DATE.search(line) is not None


def _try(sample: Sequence[str], layout: str, wrapper: str | None) -> tuple[Sniffed, tuple[int, int]]:
    reader = LineReader(_nobody(layout, wrapper))
    read = [reader.read(line, 0) for line in sample]
    events = [one for one in read if isinstance(one, SilverEvent)]
    known = [one for one in events if one.shape_id != UNLISTED]
    brokers = frozenset(one.broker for one in known if one.broker is not None)
    first = (events[0].ts_raw, events[0].broker) if events else (None, None)
    return Sniffed(layout, wrapper, brokers, *first), (len(known), len(events))


def last_moment(lines: Sequence[str], found: Sniffed, **columns: Any) -> int | None:
    """Returns the moment of the last event among these lines. `columns`: the other known facts of the file."""
    if found.layout is None:
        return None
    reader = LineReader(msgspec.structs.replace(_nobody(found.layout, found.wrapper), **columns))
    for line in reversed(lines):
        read = reader.read(line, 0)
        if isinstance(read, SilverEvent):
            return read.ts_utc
    return None


def _nobody(layout: str, wrapper: str | None) -> BronzeFile:
    return BronzeFile(
        file_id="",
        cluster="",
        paths=(),
        size_bytes=0,
        kind="mixed",
        layout=layout,
        wrapper=wrapper,
        tz="UTC",
        lines=0,
        is_whole=True,
        status="read",
    )
