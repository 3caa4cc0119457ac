"""A piece of a log as columns: what most of its lines say is only counted, and nothing is made of them but numbers.

Lines of one form are read together (`parse.templates`): their moments and numbers stand at the same places, so numpy
takes them out of all of them at once. What a rule walks through becomes a `SilverEvent`; of the others remain how often
what was said (`Tallied`), when each broker was heard, and the calls that latencies and clocks are concluded from.
Every line that is not understood by its form is read by `LineReader`, as ever. No I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from sparkjobs.parse.lines import CONTINUES, LineReader, is_trace_head
from sparkjobs.parse.moments import minute_of
from sparkjobs.parse.templates import ALIKE, Template, template_for
from sparkjobs.schemas import LINE_KEPT, SilverEvent

NONE: Final = -(2**62)  # what stands for it among numbers
#: a form that occurs less often is not worth a template
_OFTEN: Final = 3
_FORMS_KEPT: Final = 100_000
#: numbers that lines are counted by
WHO: Final = ("broker", "controller", "controller_epoch")
#: words that lines are counted by
SAME: Final = ("role", "level", "event", "api", "error")
#: numbers of a call besides
CALL: Final = ("correlation_id", "partition", "leader_epoch", "peer_broker", "n_partitions")


class Piece(NamedTuple):
    """Whole lines, the numbers of which begin after `above`."""

    content: bytes
    above: int = 0


class Counted(NamedTuple):
    """Lines of which nothing but numbers was taken, in order of their numbers. Columns of one length."""

    line_no: Any
    ts_utc: Any
    kind: Any  # its place in `kinds`
    who: dict[str, Any]
    call: dict[str, Any]  # NONE where the line is no call
    topic: Any  # its place in `topics`
    kinds: list[tuple[Any, ...]]  # `SAME`
    topics: list[str | None]


class Read(NamedTuple):
    """All lines of a piece. `marks` are equal where event ids are, and hardly ever else."""

    lines: int
    events: list[SilverEvent]
    others: list[tuple[int, str, str]]  # number, why it is no event, line; without what continues the one above
    continuations: int
    heads: dict[int, str]  # number: what names an exception, below the event that it belongs to
    counted: Counted
    marked: Any  # numbers of all lines that are events, duplicates as well
    marks: Any
    heard_ms: Any  # of all events but duplicates
    heard: Any  # the broker of each


class Forms:
    """The templates of one file."""

    def __init__(self, reader: LineReader, is_counted: Callable[[Template], bool]) -> None:
        self.reader = reader
        self.is_counted = is_counted
        self.known: dict[bytes, int] = {}
        self.templates: list[Template] = []
        self._tried: set[bytes] = set()

    def codes_of(self, lines: list[bytes], forms: list[bytes]) -> Any:
        """The place of each line's template; -1 for what has to be read by itself."""
        known = self.known
        if len(known) > _FORMS_KEPT:  # a log whose forms hardly repeat
            known.clear()
            self._tried.clear()
            self.templates.clear()
        codes = list(map(known.get, forms))
        if None in codes:
            self._learn([place for place, code in enumerate(codes) if code is None], lines, forms)
            codes = [known.get(form, -1) for form in forms]
        return np.array(codes, np.int32)

    def _learn(self, places: list[int], lines: list[bytes], forms: list[bytes]) -> None:
        for form, times in Counter(forms[place] for place in places).items():
            if times >= _OFTEN:
                self.known[form] = -1  # of the first of its lines follows whether it is worth more
        for place in places:
            form = forms[place]
            if self.known.get(form) == -1 and form not in self._tried:
                self._tried.add(form)
                template = template_for(self.reader, lines[place].decode("utf-8", "replace"))
                if template is not None:
                    self.known[form] = len(self.templates)
                    self.templates.append(template)

    def millis(self, raw: Any, zone: str, sample: str) -> Any:
        """Of moments as numbers (202611180709 * 100000 + 36816); NONE for what is none."""
        minutes, place = np.unique(raw // 100_000, return_inverse=True)
        rest = raw % 100_000
        known = []
        for minute in minutes.tolist():
            text = f"{minute:012}"
            found = minute_of(f"{text[:4]}{sample[4]}{text[4:6]}{sample[7]}{text[6:8]} {text[8:10]}:{text[10:]}", zone)
            known.append(NONE if found is None else found)
        base = np.array(known, np.int64)[place]
        return np.where((base == NONE) | (rest > 59_999), NONE, base + rest)


MOMENT_DIGITS: Final = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 21, 22)


def number_at(content: Any, starts: Any, places: Iterable[int]) -> Any:
    """The number whose digits stand at these places after each start."""
    value = np.zeros(len(starts), np.int64)
    for place in places:
        value *= 10
        value += content[starts + place]
        value -= 48
    return value


def spans_number(content: Any, starts: Any, span: tuple[int, int]) -> Any:
    """The same by its span, with its sign."""
    start, end = span
    if content[starts[0] + start] == 45:
        return -number_at(content, starts, range(start + 1, end))
    return number_at(content, starts, range(start, end))


class Reading:
    """Of one piece."""

    def __init__(self, forms: Forms, piece: Piece, skipped: frozenset[int]) -> None:
        self.forms, self.piece, self.skipped = forms, piece, skipped
        self.lines = piece.content.split(b"\n")
        if not self.lines[-1]:
            self.lines.pop()  # what follows the last newline is nothing
        self.content = np.frombuffer(piece.content, np.uint8)
        ends = np.flatnonzero(self.content == 10)
        self.starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        self.events: list[SilverEvent] = []
        self.others: list[tuple[int, str, str]] = []
        self.continuations = 0
        self.heads: dict[int, str] = {}
        count = len(self.lines)
        self.marks = np.zeros(count, np.uint64)
        self.is_event = np.zeros(count, bool)
        self.ts = np.full(count, NONE, np.int64)
        self.kind = np.full(count, -1, np.int32)
        self.columns = {name: np.full(count, NONE, np.int64) for name in (*WHO, *CALL)}
        self.topic = np.zeros(count, np.int32)
        self.kinds: dict[tuple[Any, ...], int] = {}
        self.topics: dict[str | None, int] = {None: 0}

    def read(self) -> Read:
        """All of it."""
        if not self.lines:
            return self.result()
        forms = self.piece.content.translate(ALIKE).split(b"\n")
        forms.pop()
        codes = self.forms.codes_of(self.lines, forms)
        order = np.argsort(codes, kind="stable")
        found, firsts = np.unique(codes[order], return_index=True)
        for code, places in zip(found.tolist(), np.split(order, firsts[1:]), strict=True):
            template = None if code < 0 else self.forms.templates[code]
            if template is None or (template.fate is not None and template.fate != CONTINUES):
                self._read_each(places.tolist())
            elif template.fate is not None:
                self._continue(places.tolist())
            else:
                self._read_alike(template, places)
        return self.result()

    def _read_each(self, places: Iterable[int], *, is_cut: bool = False) -> None:
        reader, above = self.forms.reader, self.piece.above
        for place in places:
            line, line_no = self.lines[place].decode("utf-8", "replace"), place + 1 + above
            read = reader.read(line, line_no, is_cut=is_cut)
            if isinstance(read, SilverEvent):
                self._note(place, mark_of(reader, line, read), read.ts_utc, read.broker)
                if line_no not in self.skipped:
                    self.events.append(read)
            elif read is CONTINUES:
                self._continue([place])
            else:
                self.others.append((line_no, read, line))

    def read_last(self, *, is_cut: bool) -> None:
        """A line that no newline ends."""
        self._read_each([0], is_cut=is_cut)

    def _continue(self, places: Sequence[int]) -> None:
        """Lines of one form."""
        self.continuations += len(places)
        unwrap = self.forms.reader.unwrap
        if is_trace_head(unwrap(self.lines[places[0]].decode("utf-8", "replace")) or ""):
            for place in places:
                head = unwrap(self.lines[place].decode("utf-8", "replace")) or ""
                self.heads[int(place) + 1 + self.piece.above] = head[:LINE_KEPT]

    def _note(self, place: int, mark: int, ts_utc: int, broker: int | None) -> None:
        self.marks[place], self.is_event[place], self.ts[place] = mark, True, ts_utc
        self.columns["broker"][place] = NONE if broker is None else broker

    def _read_alike(self, template: Template, places: Any) -> None:
        starts = self.starts[places]
        raw = number_at(self.content, starts, [template.ts + digit for digit in MOMENT_DIGITS])
        sample = self.lines[places[0]][template.ts : template.ts + 23].decode("ascii")
        ts = self.forms.millis(raw, self.forms.reader.file.tz, sample)
        if (is_none := ts == NONE).any():
            self._read_each(places[is_none].tolist())
            places, starts, raw, ts = (column[~is_none] for column in (places, starts, raw, ts))
            if not len(places):
                return
        start, end = template.message
        lines, at = self.lines, places.tolist()
        said = np.array([crc32(lines[place][start:end]) for place in at], np.uint64)
        self.marks[places] = (raw.astype(np.uint64) << np.uint64(32)) ^ said
        self.is_event[places] = True
        self.ts[places] = ts
        is_counted = self.forms.is_counted(template)
        for name in (*WHO, *CALL) if is_counted else ("broker",):
            if name in template.numbers:
                self.columns[name][places] = spans_number(self.content, starts, template.numbers[name])
            elif template.same.get(name) is not None:
                self.columns[name][places] = template.same[name]
        if not is_counted:
            reader, above, skipped = self.forms.reader, self.piece.above, self.skipped
            for place, moment in zip(at, ts.tolist(), strict=True):
                if place + 1 + above not in skipped:
                    line = lines[place].decode("ascii")
                    self.events.append(template.event(reader, line, place + 1 + above, moment))
            return
        kind = tuple(template.same.get(name) for name in SAME)
        self.kind[places] = self.kinds.setdefault(kind, len(self.kinds))
        self._take_topics(template, places, at)

    def _take_topics(self, template: Template, places: Any, at: list[int]) -> None:
        span, topics = template.texts.get("topic"), self.topics
        if span is None:
            topic = template.same.get("topic")
            self.topic[places] = topics.setdefault(topic, len(topics))
            return
        start, end = span
        names = [self.lines[place][start:end] for place in at]
        numbers = {name: topics.setdefault(name.decode("ascii"), len(topics)) for name in set(names)}
        self.topic[places] = [numbers[name] for name in names]

    def result(self) -> Read:
        numbers = np.arange(len(self.lines)) + 1 + self.piece.above
        is_kept = self.is_event
        if self.skipped:
            is_kept = is_kept & ~np.isin(numbers, np.fromiter(self.skipped, np.int64))
        places = np.flatnonzero((self.kind >= 0) & is_kept)
        counted = Counted(
            numbers[places],
            self.ts[places],
            self.kind[places],
            {name: self.columns[name][places] for name in WHO},
            {name: self.columns[name][places] for name in CALL},
            self.topic[places],
            list(self.kinds),
            list(self.topics),
        )
        self.events.sort(key=lambda event: event.line_no)
        return Read(
            lines=len(self.lines),
            events=self.events,
            others=sorted(self.others),
            continuations=self.continuations,
            heads=self.heads,
            counted=counted,
            marked=numbers[self.is_event],
            marks=self.marks[self.is_event],
            heard_ms=self.ts[is_kept],
            heard=self.columns["broker"][is_kept],
        )


def mark_of(reader: LineReader, line: str, event: SilverEvent) -> int:
    """As those of lines that are read together."""
    text = reader.unwrap(line) or ""
    head = None if reader.is_ours else reader.head_of(text)
    message = text if head is None or isinstance(head, str) else head.message
    digits = "".join(filter(str.isdigit, event.ts_raw[:23])) or "0"
    return ((int(digits) << 32) ^ crc32(message.encode())) & (2**64 - 1)
