"""The forms of a file's lines: which lines are of which, and what is known of it.

Two lines are of one form where all their bytes are the same but for digits. They are put together by a few words out of
each, which is quick, and then compared whole with the form that they may be of. Needs numpy. No I/O.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sparkjobs.engine.local.digits import (
    MIXING_FACTOR,
    NONE,
    Digits,
    Places,
    alike,
    places_of,
    words_alike,
)
from sparkjobs.parse.lines import LineReader, zone_of
from sparkjobs.parse.moments import minute_of
from sparkjobs.parse.templates import Template, template_for

#: fewer lines than that are read one by one in less time than together
FEW: Final = 8
_FORMS_KEPT: Final = 100_000
#: words of 8 bytes that lines are put together by, spread over each
_WORDS: Final = 6
_WORD_BYTES: Final = 8
_FACTOR: Final = np.uint64(MIXING_FACTOR)
#: forms that lines which are nearly alike are put to by comparing them; the others are looked up one by one
_COMPARED: Final = 4


class Lines(Sequence[bytes]):
    """Of a piece, cut out of it where somebody looks. `starts` and `ends`: of each, without what divides them."""

    def __init__(self, content: bytes, starts: Any = None, ends: Any = None) -> None:
        self.content, self.buffer = content, np.frombuffer(content, np.uint8)
        if starts is None:
            ends = np.flatnonzero(self.buffer == ord("\n"))
            if not content.endswith(b"\n"):
                ends = np.append(ends, len(content))
            starts = np.concatenate(([0], ends[:-1] + 1))
        self.starts, self.ends = starts, ends

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: Any) -> Any:
        return self.content[self.starts[place] : self.ends[place]]

    def rows(self, places: Any) -> Any:
        """The bytes of lines of one length, one line below the other."""
        starts = self.starts[places]
        size = int(self.ends[places[0]] - starts[0])
        at_every_byte = np.ndarray((len(self.buffer) - size + 1,), f"V{size}", self.buffer, 0, (1,))
        return at_every_byte[starts].view(np.uint8).reshape(len(places), size)


class Kind(NamedTuple):
    """Lines of one form, in their order."""

    code: int  # of the template; -1: each has to be read by itself
    places: Any
    rows: Any  # their bytes, one below the other


class Forms:
    """Of one file."""

    def __init__(self, reader: LineReader) -> None:
        self.reader = reader
        self._forget()

    def _forget(self) -> None:
        self.templates: list[Template] = []
        self.places: list[Places] = []
        self._known: dict[bytes, int] = {}

    def sort(self, lines: Lines) -> Iterator[Kind]:
        """Lines by their templates; without one those that have to be read one by one."""
        if len(self._known) > _FORMS_KEPT:  # a log whose forms hardly repeat
            self._forget()
        alone = []
        for places in _nearly_alike(lines):
            if len(places) < FEW:
                alone.append(places)
                continue
            for own, rows, form in _of_one_form(places, lines.rows(places)):
                code = self._code_of(form, lines, own)
                if code < 0:
                    alone.append(own)
                else:
                    yield Kind(code, own, rows)
        if alone:
            yield Kind(-1, np.sort(np.concatenate(alone)), None)

    def _code_of(self, form: bytes, lines: Lines, places: Any) -> int:
        """What is new is learned, where enough lines are of it."""
        if len(places) < FEW:
            return -1
        if form not in self._known:
            line = lines[places[0]]
            template = template_for(self.reader, line.decode("utf-8", "replace"))
            self._known[form] = -1 if template is None else len(self.templates)
            if template is not None:
                self.templates.append(template)
                self.places.append(places_of(template, line))
        return self._known[form]


def _nearly_alike(lines: Lines) -> Iterator[Any]:
    """Lines that are of the same length and have some words in common; those too short for a word are alone."""
    starts, room = lines.starts, lines.ends - lines.starts - _WORD_BYTES
    yield from np.flatnonzero(room < 0)[:, None]
    long = np.flatnonzero(room >= 0)
    if not len(long):
        return
    starts, room = starts[long], room[long]
    # a word at every byte, wherever it begins
    words = np.ndarray((len(lines.buffer) - _WORD_BYTES + 1,), "<u8", lines.buffer, 0, (1,))
    both = room.astype(np.uint64)
    for number in range(1, _WORDS + 1):
        both *= _FACTOR
        both ^= words_alike(words[starts + room * number // _WORDS])
    for chosen in grouped(both):
        sizes = room[chosen]
        if (sizes == sizes[0]).all():
            yield long[chosen]
        else:  # by chance
            yield from long[chosen][:, None]


def _of_one_form(places: Any, rows: Any) -> Iterator[tuple[Any, Any, bytes]]:
    """Lines of one length by their forms: places, bytes, form."""
    forms = alike(rows)
    for _ in range(_COMPARED):
        is_same = forms == forms[0]
        # all at once is several times as fast as line by line, and nearly always the answer
        if is_same.all():
            yield places, rows, forms[0].tobytes()
            return
        fits = is_same.all(axis=1)
        yield places[fits], rows[fits], forms[0].tobytes()
        places, rows, forms = places[~fits], rows[~fits], forms[~fits]
    found: dict[bytes, list[int]] = defaultdict(list)
    for number, form in enumerate(forms):
        found[form.tobytes()].append(number)
    for each, own in found.items():
        yield places[own], rows[own], each


def grouped(values: Any) -> list[Any]:
    """Where the same one stands, in order."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    parts: list[Any] = np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    return parts


def moments_in(digits: Digits, template: Template, reader: LineReader, sample: str) -> Any:
    """As `moments_of`, in the zone of the file, or of who speaks."""
    found, span, file = moments_of(digits, reader.file.tz, sample), template.numbers.get("broker"), reader.file
    if not file.zones or template.fate is not None:
        return found
    brokers = None if span is None else digits.number(span)
    for broker in [template.same.get("broker")] if brokers is None else np.unique(brokers).tolist():
        zone = zone_of(file, broker)
        if zone != file.tz:
            is_its = found != NONE if brokers is None else (found != NONE) & (brokers == broker)
            found = np.where(is_its, moments_of(digits, zone, sample), found)
    return found


def moments_of(digits: Digits, zone: str, sample: str) -> Any:
    """Milliseconds; NONE for what is no moment. `sample`: any of them as it stands, for what is between the digits."""
    each = np.unique(digits.minutes) if (digits.minutes != digits.minutes[0]).any() else digits.minutes[:1]
    known = []
    for minute in each.tolist():
        text = f"{minute:012}"
        found = minute_of(f"{text[:4]}{sample[4]}{text[4:6]}{sample[7]}{text[6:8]} {text[8:10]}:{text[10:]}", zone)
        known.append(NONE if found is None else found)
    base = np.array(known, np.int64)
    base = base[np.searchsorted(each, digits.minutes)] if len(known) > 1 else base
    return np.where((base == NONE) | (digits.millis > 59_999), NONE, base + digits.millis)
