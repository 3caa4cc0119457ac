"""A piece of a log, put to lines of one form each: nothing is made of most of them but numbers.

Lines of one form are read together (`parse.templates`): their moments and numbers stand at the same places, so numpy
takes them out of all of them at once (`local.digits`). Every line that is not understood by its form is read by
`LineReader`, as ever. What becomes of them is up to the `Sink`. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from sparkjobs.engine.local.digits import NONE, Digits, mark_of
from sparkjobs.engine.local.forms import (
    Forms,
    Kind,
    Lines,
    moments_in,
)
from sparkjobs.parse.lines import CONTINUES, LineReader, Span, is_trace_head
from sparkjobs.parse.templates import Template
from sparkjobs.tables.silver import LINE_KEPT, SilverEvent

#: words that lines are counted by; where a digit is in one, each line is read by itself
SAME: Final = ("role", "level", "event", "api", "error")
#: as many digits make a number of 64 bits
_DIGITS_OF_A_NUMBER: Final = 18


class Alike:
    """Lines of one form that are events, in their order."""

    def __init__(
        self, template: Template, digits: Digits, line_no: Any, ts_utc: Any, lines: Lines, starts: Any
    ) -> None:
        self.template, self.digits, self.line_no, self.ts_utc = template, digits, line_no, ts_utc
        self._lines, self._starts, self._numbers = lines, starts, dict[str, Any]()

    def __len__(self) -> int:
        return len(self.line_no)

    def has(self, name: str) -> bool:
        """Whether they say that."""
        template = self.template
        return name in template.numbers or name in template.texts or template.same.get(name) is not None

    def number(self, name: str) -> Any:
        """A column, or what is the same in all of them."""
        if name not in self._numbers:
            span = self.template.numbers.get(name)
            self._numbers[name] = self.template.same.get(name) if span is None else self.digits.number(span)
        return self._numbers[name]

    def parts(self, span: Span) -> list[bytes]:
        """What stands there, of each."""
        start, end = span
        content = self._lines.content
        return [content[place + start : place + end] for place in self._starts.tolist()]

    def whole(self) -> list[bytes]:
        """The lines themselves; as those of one form they are as long as each other."""
        first = int(np.searchsorted(self._lines.starts, self._starts[0]))
        return self.parts((0, int(self._lines.ends[first] - self._starts[0])))

    def words(self, name: str) -> tuple[list[str | None], Any]:
        """What the lines say there, each thing once; and which of these each line says."""
        span = self.template.texts.get(name)
        if span is None:
            return [self.template.same.get(name)], np.zeros(len(self), np.int64)
        if self.digits.count(span) > _DIGITS_OF_A_NUMBER:
            names = dict.fromkeys(parts := self.parts(span))
            place = {name: number for number, name in enumerate(names)}
            return [name.decode("ascii") for name in names], np.array([place[part] for part in parts], np.int64)
        # as lines of one form they differ in digits only
        _, firsts, which = np.unique(self.digits.number(span), return_index=True, return_inverse=True)
        start, end = span
        first = self._starts[firsts].tolist()
        return [self._lines.content[place + start : place + end].decode("ascii") for place in first], which


class Sink(Protocol):
    """Who takes what is read, in no order of lines."""

    def take_alike(self, alike: Alike) -> None: ...
    def take_event(self, event: SilverEvent, mark: int) -> None: ...
    def take_other(self, line_no: int, why: str, line: str) -> None: ...
    def take_continuations(self, count: int, heads: dict[int, str]) -> None: ...


class Reading:
    """Of one piece: whole lines, the numbers of which begin after `above`. `skipped`: duplicates, by their numbers."""

    def __init__(self, forms: Forms, content: bytes, above: int, skipped: frozenset[int], sink: Sink) -> None:
        self.forms, self.above, self.sink, self.skipped = forms, above, sink, skipped
        self.lines = Lines(content)
        self._skipped = np.fromiter(skipped, np.int64)

    def read(self) -> int:
        """All of it; returns how many lines."""
        for kind in self.forms.sort(self.lines):
            code, places, _ = kind
            template = None if code < 0 else self.forms.templates[code]
            if template is not None and template.fate == CONTINUES:
                self._continue(places.tolist())
            elif template is None or template.fate is not None or not template.texts.keys().isdisjoint(SAME):
                self._read_each(places.tolist())
            else:
                self._read_alike(kind)
        return len(self.lines)

    def read_last(self, *, is_cut: bool) -> None:
        """A line that no newline ends."""
        self._read_each([0], is_cut=is_cut)

    def _read_each(self, places: Iterable[int], *, is_cut: bool = False) -> None:
        reader = self.forms.reader
        for place in places:
            line, line_no = self.lines[place].decode("utf-8", "replace"), place + 1 + self.above
            read = reader.read(line, line_no, is_cut=is_cut)
            if isinstance(read, SilverEvent):
                if line_no not in self.skipped:
                    self.sink.take_event(read, _mark_of(reader, line, read))
            elif read is CONTINUES:
                self._continue([place])
            else:
                self.sink.take_other(line_no, read, line)

    def _continue(self, places: Sequence[int]) -> None:
        """Lines of one form."""
        unwrap, heads = self.forms.reader.unwrap, dict[int, str]()
        if is_trace_head(unwrap(self.lines[places[0]].decode("utf-8", "replace")) or ""):
            for place in places:
                head = unwrap(self.lines[place].decode("utf-8", "replace")) or ""
                heads[place + 1 + self.above] = head[:LINE_KEPT]
        self.sink.take_continuations(len(places), heads)

    def _read_alike(self, kind: Kind) -> None:
        forms, lines = self.forms, self.lines
        code, places, rows = kind
        template = forms.templates[code]
        if len(self._skipped):
            is_kept = ~np.isin(places + (1 + self.above), self._skipped)
            places, rows = places[is_kept], rows[is_kept]
            if not len(places):
                return
        digits = Digits(forms.places[code], rows)
        sample = lines[places[0]][template.ts : template.ts + 23].decode("ascii")
        ts = moments_in(digits, template, forms.reader, sample)
        if (is_none := ts == NONE).any():
            self._read_each(places[is_none].tolist())
            places, ts = places[~is_none], ts[~is_none]
            digits.only(~is_none)
        if len(places):
            self.sink.take_alike(Alike(template, digits, places + (1 + self.above), ts, lines, lines.starts[places]))


def _mark_of(reader: LineReader, line: str, event: SilverEvent) -> int:
    """As those of lines that are read together."""
    text = reader.unwrap(line) or ""
    head = None if reader.is_ours else reader.head_of(text)
    message = text if head is None or isinstance(head, str) else head.message
    return mark_of(event.ts_raw, message.encode())
