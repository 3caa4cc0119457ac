"""Lines of one form, read together with numpy: their moments, numbers and marks. No I/O.

Two lines are of one form if all their bytes are the same but for digits. Lines are grouped by a few of their words,
which is quick, and then compared whole with the form. The digits of one form stand at the same places
(`parse.templates`), so they are a matrix with a column for each line, and numpy takes them out of all lines at once.

A piece of a log is read in this way (`PieceReading`), and most lines become nothing but numbers. `LineReader` reads
every line that its form does not explain. The `LineSink` decides the use of the lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

import numpy as np

from sparkjobs.parse.lines import CONTINUES, LineReader, Span, is_trace_head, zone_of
from sparkjobs.parse.templates import ALIKE, Template, template_for
from sparkjobs.parse.timestamps import minute_of
from sparkjobs.tables.silver import LINE_KEPT, SilverEvent

NONE: Final = -(2**62)  # stands for an absent number
MIXING_FACTOR: Final = 0x9E3779B97F4A7C15  # odd, and far from anything that digits add up to
_BITS_64: Final = 2**64 - 1


#: a moment as a number is 202611180709 * 100000 + 36816: its minute, and the rest of it
_MILLIS_PART: Final = 100_000
_EACH_BYTE: Final = 0x0101010101010101


def alike(rows: Any) -> Any:
    """`bytes.translate(ALIKE)` of bytes as numpy has them."""
    beyond = rows - np.uint8(ord("0"))
    beyond *= (beyond < 10).view(np.uint8)
    return rows - beyond


def words_alike(words: Any) -> Any:
    """Returns the same of numbers of 8 bytes each, without taking them apart."""
    beyond = words ^ np.uint64(ord("0") * _EACH_BYTE)  # of digits 0 to 9
    more = ((beyond & np.uint64(0x7F * _EACH_BYTE)) + np.uint64(0x76 * _EACH_BYTE)) | beyond
    is_digit = (~more & np.uint64(0x80 * _EACH_BYTE)) >> np.uint64(7)
    return words & ~(is_digit * np.uint64(0x0F))


class DigitPlaces(NamedTuple):
    """The places where the lines of a form have digits, and the value that each group of digits makes."""

    offsets: Any
    moment: slice
    message: slice
    of_span: dict[Span, tuple[slice, bool]]  # its digits, and whether as a number it is negative
    factors: Any  # of the message's digits in a mark
    moment_factor: Any
    form_mark: Any  # the share of a mark that comes from the message without its digits


def places_of(template: Template, line: bytes) -> DigitPlaces:
    """`line` is any of the form."""
    offsets = [place for place, byte in enumerate(line) if 48 <= byte <= 57]

    def rows(start: int, end: int) -> slice:
        return slice(bisect_left(offsets, start), bisect_left(offsets, end))

    message, spans = rows(*template.message), (*template.numbers.values(), *template.texts.values())
    powers = [pow(MIXING_FACTOR, power, 2**64) for power in range(message.stop - message.start + 2, 0, -1)]
    return DigitPlaces(
        np.array(offsets, np.int64),
        rows(template.ts, template.ts + 23),
        message,
        {span: (rows(*span), line[span[0]] == ord("-")) for span in spans},
        np.array(powers[2:], np.uint64)[:, None],
        np.uint64(powers[0]),
        np.uint64(_form_mark(line[slice(*template.message)]) * powers[1] & _BITS_64),
    )


class Digits:
    """Of some lines of one form, which are given one below the other: a row for each place, a column for each line."""

    def __init__(self, places: DigitPlaces, rows: Any) -> None:
        self._places = places
        self._rows = rows.T[places.offsets].astype(np.int64)
        self._rows -= ord("0")
        moment = self._rows[places.moment]
        self.minutes, self.millis = _put_together(moment[:12]), _put_together(moment[12:])

    def only(self, chosen: Any) -> None:
        """Forget the other lines."""
        self._rows, self.minutes, self.millis = self._rows[:, chosen], self.minutes[chosen], self.millis[chosen]

    def count(self, span: Span) -> int:
        """Returns how many stand there."""
        rows, _ = self._places.of_span[span]
        return int(rows.stop - rows.start)

    def number(self, span: Span) -> Any:
        """Returns the number at a place, with its sign."""
        rows, is_negative = self._places.of_span[span]
        value = _put_together(self._rows[rows])
        return -value if is_negative else value

    def marks(self) -> Any:
        """Equal where moment and message are, and hardly ever else."""
        said = (self._rows[self._places.message].view(np.uint64) * self._places.factors).sum(axis=0)
        moments = (self.minutes * _MILLIS_PART + self.millis).view(np.uint64)
        return said + moments * self._places.moment_factor + self._places.form_mark


def mark_of(moment: str, message: bytes) -> int:
    """Returns the same of one line by itself."""
    digits = "".join(letter for letter in moment[:23] if "0" <= letter <= "9")
    mark = int(digits or "0") * MIXING_FACTOR + _form_mark(message)
    for byte in message:
        if 48 <= byte <= 57:
            mark = (mark * MIXING_FACTOR + byte - 48) & _BITS_64
    return mark * MIXING_FACTOR & _BITS_64


def _form_mark(message: bytes) -> int:
    return crc32(message.translate(ALIKE))


def _put_together(rows: Any) -> Any:
    value = rows[0].copy()
    for row in rows[1:]:
        value *= 10
        value += row
    return value


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
    """The lines of a piece, each cut out when it is read. `starts` and `ends`: of each line, without its separator."""

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
        """Returns the bytes of lines of one length, one line below the other."""
        starts = self.starts[places]
        size = int(self.ends[places[0]] - starts[0])
        at_every_byte = np.ndarray((len(self.buffer) - size + 1,), f"V{size}", self.buffer, 0, (1,))
        return at_every_byte[starts].view(np.uint8).reshape(len(places), size)


class FormLines(NamedTuple):
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
        self.places: list[DigitPlaces] = []
        self._known: dict[bytes, int] = {}

    def sort(self, lines: Lines) -> Iterator[FormLines]:
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
                    yield FormLines(code, own, rows)
        if alone:
            yield FormLines(-1, np.sort(np.concatenate(alone)), None)

    def _code_of(self, form: bytes, lines: Lines, places: Any) -> int:
        """Returns the code of a form. A new form is learned where enough lines have it."""
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
    """Returns where the same one stands, in order."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    parts: list[Any] = np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    return parts


def moments_in(digits: Digits, template: Template, reader: LineReader, sample: str) -> Any:
    """Returns the same as `moments_of`, in the zone of the file, or of the broker that wrote the lines."""
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
    """Returns milliseconds; NONE where the digits are no moment. `sample`: any of the texts, for the characters between
    the digits."""
    each = np.unique(digits.minutes) if (digits.minutes != digits.minutes[0]).any() else digits.minutes[:1]
    known = []
    for minute in each.tolist():
        text = f"{minute:012}"
        found = minute_of(f"{text[:4]}{sample[4]}{text[4:6]}{sample[7]}{text[6:8]} {text[8:10]}:{text[10:]}", zone)
        known.append(NONE if found is None else found)
    base = np.array(known, np.int64)
    base = base[np.searchsorted(each, digits.minutes)] if len(known) > 1 else base
    return np.where((base == NONE) | (digits.millis > 59_999), NONE, base + digits.millis)


#: words that lines are counted by; where a digit is in one, each line is read by itself
SAME: Final = ("role", "level", "event", "api", "error")
#: as many digits make a number of 64 bits
_DIGITS_OF_A_NUMBER: Final = 18


class EventLines:
    """Lines of one form that are events, in their order."""

    def __init__(
        self, template: Template, digits: Digits, line_no: Any, ts_utc: Any, lines: Lines, starts: Any
    ) -> None:
        self.template, self.digits, self.line_no, self.ts_utc = template, digits, line_no, ts_utc
        self._lines, self._starts, self._numbers = lines, starts, dict[str, Any]()

    def __len__(self) -> int:
        return len(self.line_no)

    def has(self, name: str) -> bool:
        """Returns whether they say that."""
        template = self.template
        return name in template.numbers or name in template.texts or template.same.get(name) is not None

    def number(self, name: str) -> Any:
        """Returns a column, or the one value that all lines have."""
        if name not in self._numbers:
            span = self.template.numbers.get(name)
            self._numbers[name] = self.template.same.get(name) if span is None else self.digits.number(span)
        return self._numbers[name]

    def parts(self, span: Span) -> list[bytes]:
        """Returns the text at this place, of each line."""
        start, end = span
        content = self._lines.content
        return [content[place + start : place + end] for place in self._starts.tolist()]

    def whole(self) -> list[bytes]:
        """Returns the lines themselves; as those of one form they are as long as each other."""
        first = int(np.searchsorted(self._lines.starts, self._starts[0]))
        return self.parts((0, int(self._lines.ends[first] - self._starts[0])))

    def words(self, name: str) -> tuple[list[str | None], Any]:
        """Returns the texts that the lines have there, each text once; and the index of each line's text."""
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


class LineSink(Protocol):
    """Takes the lines that are read, in no order."""

    def take_alike(self, alike: EventLines) -> None: ...
    def take_event(self, event: SilverEvent, mark: int) -> None: ...
    def take_other(self, line_no: int, why: str, line: str) -> None: ...
    def take_continuations(self, count: int, heads: dict[int, str]) -> None: ...


class PieceReading:
    """Of one piece: whole lines, the numbers of which begin after `above`. `skipped`: duplicates, by their numbers."""

    def __init__(self, forms: Forms, content: bytes, above: int, skipped: frozenset[int], sink: LineSink) -> None:
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

    def _read_alike(self, kind: FormLines) -> None:
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
            self.sink.take_alike(
                EventLines(template, digits, places + (1 + self.above), ts, lines, lines.starts[places])
            )


def _mark_of(reader: LineReader, line: str, event: SilverEvent) -> int:
    """As those of lines that are read together."""
    text = reader.unwrap(line) or ""
    head = None if reader.is_ours else reader.head_of(text)
    message = text if head is None or isinstance(head, str) else head.message
    return mark_of(event.ts_raw, message.encode())
