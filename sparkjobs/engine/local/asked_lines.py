"""Lines that somebody asked to see: of all logs in order of time (`merged`), or those about a partition (`told_about`).

As for a digest, a stretch is read by the forms of its lines, and only chosen lines become text. Those in order of time
go to shares of times and from there to the caller, a share at a time, with the lines below that belong to them.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from sparkjobs.clocks.skew import corrected
from sparkjobs.engine.local.conclude import ClusterLogs, shifts_of
from sparkjobs.engine.local.digest import read_piece
from sparkjobs.engine.local.executor import DividedTask, Share
from sparkjobs.engine.local.forms import EventLines, Lines
from sparkjobs.engine.local.stretches import Stretch, pieces_of
from sparkjobs.parse.lines import LineReader
from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.rules.facts import Place
from sparkjobs.tables.silver import SilverEvent, SilverSkew

_TIMES: Final = "times"


class Choice(NamedTuple):
    """Which events. `topic` and `partitions`: only what names them, where they are given; and of that only `told`.
    `anyway`: events that are chosen whatever they name."""

    topic: str | None = None
    partitions: frozenset[int] = frozenset()
    told: frozenset[str] | None = None
    anyway: frozenset[str] = frozenset()

    def alike(self, some: EventLines) -> Any:
        """Returns which of these lines: a mask, or nothing where it is none of them."""
        event, found = some.template.same["event"], np.ones(len(some), np.bool_)
        if event in self.anyway:
            return found
        if self.told is not None and event not in self.told:
            return None
        if self.topic is not None:
            names, which = some.words("topic")
            found &= np.array([name == self.topic for name in names])[which]
        if self.partitions:
            number = some.number("partition")
            found &= np.isin(-1 if number is None else number, [*self.partitions])
        return found if found.any() else None

    def event(self, one: SilverEvent) -> bool:
        """Of one that was read by itself."""
        if one.event in self.anyway:
            return True
        is_told = self.told is None or one.event in self.told
        is_topic = self.topic is None or one.topic == self.topic
        return is_told and is_topic and (not self.partitions or one.partition in self.partitions)


class Asked(NamedTuple):
    """`shifts`: of clocks, by broker and hour. `cuts`: when the shares of times begin, without the first."""

    stretch: Stretch
    choice: Choice
    shifts: Mapping[tuple[int, int], int] = {}
    cuts: Sequence[int] = ()

    def at(self, path: str) -> Asked:
        """A copy of the file lies there."""
        return self._replace(stretch=self.stretch.at(path))

    def reading(self, content: Iterable[bytes]) -> Asked:
        """Returns this task with the content of the stretch."""
        return self._replace(stretch=self.stretch.reading(content))


class _Chosen:
    """Takes the lines of a piece."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self.begins: list[Any] = []  # lines that are no continuation
        self.chosen: list[tuple[Any, Any, Any]] = []  # numbers of lines, moments, broker

    def take_alike(self, alike: EventLines) -> None:
        self.begins.append(alike.line_no)
        mask = self._choice.alike(alike)
        if mask is not None:
            broker = alike.number("broker")
            own = broker[mask] if isinstance(broker, np.ndarray) else broker
            self.chosen.append((alike.line_no[mask], alike.ts_utc[mask], own))

    def take_event(self, event: SilverEvent, mark: int) -> None:
        self.begins.append([event.line_no])
        if self._choice.event(event):
            self.chosen.append((np.array([event.line_no]), np.array([event.ts_utc]), event.broker))

    def take_other(self, line_no: int, why: str, line: str) -> None:
        self.begins.append([line_no])

    def take_continuations(self, count: int, heads: dict[int, str]) -> None:
        """They belong to the line above."""


class Piece(NamedTuple):
    """Chosen lines, each with the lines below that belong to it. `head`: what belongs to a line above all of them.
    `last`: the number of the last line to which a following piece's head belongs."""

    line_nos: list[int]
    moments: list[int]
    texts: list[bytes]
    head: bytes
    last: int | None


def pieces_asked(asked: Asked) -> Iterator[Piece]:
    """What is no longer there is left out."""
    stretch, above = asked.stretch, 0
    skipped = np.fromiter(stretch.skipped, np.int64)
    with suppress(OSError, EOFError, zlib.error):  # the digest of the stretch has the trouble
        for content in pieces_of(stretch):
            sink = _Chosen(asked.choice)
            below = read_piece(stretch, content, above, sink)
            own = skipped[(skipped > above) & (skipped <= below)]
            begins = np.sort(np.concatenate([own, *sink.begins])).astype(np.int64)
            yield _piece(content, above, begins, sink.chosen, asked.shifts)
            above = below


def _piece(content: bytes, above: int, begins: Any, chosen: list[Any], shifts: Mapping[tuple[int, int], int]) -> Piece:
    lines = Lines(content)
    # a line's text ends where the next begins
    starts = [*lines.starts[begins - above - 1].tolist(), len(content)]
    head, last = content[: starts[0]], int(begins[-1]) if len(begins) else None
    line_nos, moments, texts = list[int](), list[int](), list[bytes]()
    for numbers, ts_utc, broker in chosen:
        brokers = broker.tolist() if isinstance(broker, np.ndarray) else [broker] * len(numbers)
        places = np.searchsorted(begins, numbers).tolist()
        for line_no, at_ms, own, place in zip(numbers.tolist(), ts_utc.tolist(), brokers, places, strict=True):
            line_nos.append(line_no)
            moments.append(at_ms - shifts.get((own, at_ms // HOUR_MS * HOUR_MS), 0))
            texts.append(content[starts[place] : starts[place + 1]])
    return Piece(line_nos, moments, texts, head, last)


class Told(NamedTuple):
    """Of a piece: see `Piece`."""

    head: bytes
    last: int | None


def by_time(asked: Asked) -> Iterator[DividedTask]:
    """Its lines, to the shares of times."""
    for piece in pieces_asked(asked):
        shares = np.searchsorted(np.array(asked.cuts, np.int64), np.array(piece.moments, np.int64), side="right")
        parts: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {}
        rows = zip(piece.moments, piece.line_nos, piece.texts, strict=True)
        for share, row in zip(shares.tolist(), rows, strict=True):
            parts.setdefault((_TIMES, share), []).append(row)
        yield DividedTask(Told(piece.head, piece.last), parts)


def in_order(share: Share, given: None) -> list[tuple[int, int, int, bytes]]:
    """Moments, numbers of stretches, of lines in them, and texts."""
    return sorted((at_ms, number, line_no, text) for number, part in share.parts for at_ms, line_no, text in part)


class Shown(NamedTuple):
    """An event as it stands in a log, the lines below included."""

    at_ms: int
    place: Place
    lines: list[str]


def merged(logs: ClusterLogs, choice: Choice) -> Iterator[Shown]:
    """By corrected time; within a file in its own order where times are equal. Copies once."""
    skew = logs.skew()
    cuts = cuts_of(logs, skew)
    tasks = [Asked(stretch, choice, shifts_of(skew), cuts) for stretch in logs.stretches]
    if not tasks:
        return
    shares = logs.executor.divide(by_time, tasks, {_TIMES: len(cuts) + 1})
    below = _below(logs, shares.told)
    for number in range(len(cuts) + 1):
        for at_ms, stretch, line_no, text in shares.ask_one(_TIMES, number, in_order, None):
            above = logs.known.aboves[stretch]
            whole = (text + below.get((stretch, line_no), b"")).removesuffix(b"\n")
            lines = [line.decode("utf-8", "replace") for line in whole.split(b"\n")]
            yield Shown(at_ms, Place(above.file_id, line_no + above.lines), lines)


def _below(logs: ClusterLogs, told: Sequence[Sequence[Told]]) -> dict[tuple[int, int], bytes]:
    """What the piece after them begins with, by stretches and their lines."""
    found: dict[tuple[int, int], bytes] = {}
    above: tuple[int, int] | None = None
    for number, (stretch, pieces) in enumerate(zip(logs.stretches, told, strict=True)):
        above = above if stretch.start else None
        for head, last in pieces:
            if head and above is not None:
                found[above] = found.get(above, b"") + head
            above = above if last is None else (number, last)
    return found


def cuts_of(logs: ClusterLogs, skew: Sequence[SilverSkew]) -> list[int]:
    """Moments between which about as many lines lie as a share holds."""
    shifts, hours = shifts_of(skew), Counter[int]()
    for digests in logs.digests:
        for digest in digests:
            for key, of_hour in digest.tallies.items():
                for hour, (times, *_) in of_hour.items():
                    hours[hour - shifts.get((key[1], hour), 0)] += times
    count = logs.executor.shares_for(sum(file.size_bytes for file in logs.files))
    size, before = -(-sum(hours.values()) // count) or 1, 0
    cuts = list[int]()
    for start, times in sorted(hours.items()):
        while before + times > size * (len(cuts) + 1):
            cuts.append(start + (size * (len(cuts) + 1) - before) * HOUR_MS // times)
        before += times
    return sorted(cuts)


def events_in(asked: Asked) -> Iterator[DividedTask]:
    """The chosen events themselves, which should be few."""
    reader = LineReader(asked.stretch.file)
    for piece in pieces_asked(asked):
        lines = [text.partition(b"\n")[0].decode("utf-8", "replace") for text in piece.texts]
        read = [reader.read(line, line_no) for line, line_no in zip(lines, piece.line_nos, strict=True)]
        yield DividedTask([event for event in read if isinstance(event, SilverEvent)], {})


def told_about(logs: ClusterLogs, choice: Choice, skew: Sequence[SilverSkew]) -> list[SilverEvent]:
    """Chosen events, in the order of `merged`."""
    tasks = [Asked(stretch, choice) for stretch in logs.stretches]
    told = logs.executor.divide(events_in, tasks, {}).told if tasks else []
    found = []
    for above, portions in zip(logs.known.aboves, told, strict=True):
        for event in (one for events in portions for one in events):
            found.append(msgspec.structs.replace(event, line_no=event.line_no + above.lines))
    return sorted(corrected(found, skew), key=lambda event: (event.ts_adj, event.file_id, event.line_no))
