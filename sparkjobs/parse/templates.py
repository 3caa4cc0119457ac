"""Lines that differ only in digits are understood once: where in them which number stands. Pure.

No expression of a layout, and only one of a shape, names a digit (a test holds them to it), so the kind of a line and
the places of its parts follow from its *form*: the line with all digits alike. Of most logs a few hundred forms are
nearly all lines. A `Template` holds the meaning of a form; lines whose reading hangs on a digit have none and are read
one by one, by the same `LineReader` that made the template of the others.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from sparkjobs.parse.layouts import WRAPPERS
from sparkjobs.parse.lines import LineReader, ParsedMessage, Span, event_id_of, groups_taken, in_words, ints_of
from sparkjobs.parse.patterns import WORD_SLOTS
from sparkjobs.parse.shapes import UNLISTED
from sparkjobs.parse.timestamps import DAY_MS, day_of
from sparkjobs.tables.silver import LINE_KEPT, LINE_LIMIT, SilverEvent

#: makes all digits alike; bytes to bytes, so that a form is as long as its line
ALIKE: Final = bytes.maketrans(b"123456789", b"000000000")
#: a moment to the millisecond, without a zone
_MOMENT: Final = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}", re.ASCII)
#: text after a moment that could make a zone with other digits
_ZONE: Final = re.compile(r"Z| ?[+-]\d", re.ASCII)
#: the one place of the catalogue where a digit counts (`session 0x...`)
_DIGIT_COUNTS: Final = re.compile(r"[Ss]ession \dx", re.ASCII)
_HAS_DIGIT: Final = re.compile(r"\d", re.ASCII)


class Template(NamedTuple):
    """All lines of one form. Spans are in the line."""

    fate: str | None  # why it is no event: a reason of the quarantine, or a continuation
    ts: int = 0  # where the moment begins; it has 23 characters
    message: Span = (0, 0)
    same: dict[str, Any] = {}  # columns that are the same in all of them
    numbers: dict[str, Span] = {}
    lists: dict[str, Span] = {}
    texts: dict[str, Span] = {}  # with digits in them

    def event(self, reader: LineReader, line: str, line_no: int, ts_utc: int) -> SilverEvent:
        """Returns the same as `LineReader.read`."""
        values = self.same.copy()
        for slot, (start, end) in self.numbers.items():
            values[slot] = int(line[start:end])
        for slot, (start, end) in self.lists.items():
            values[slot] = ints_of(line[start:end])
        for slot, (start, end) in self.texts.items():
            values[slot] = line[start:end]
        ts_raw = line[self.ts : self.ts + 23]
        message = line[self.message[0] : self.message[1]]
        return SilverEvent(
            dt=day_of(ts_utc // DAY_MS),
            event_id=event_id_of(reader.file.cluster, values["broker"], ts_raw, message),
            ts_raw=ts_raw,
            ts_utc=ts_utc,
            ts_adj=ts_utc,
            line_no=line_no,
            line=line[:LINE_KEPT],
            **values,
        )


#: events of which the numbers in a column stand for a word
_WORDED: Final = {"response_received": "error", "request_ignored": "reason"}


def template_for(reader: LineReader, line: str) -> Template | None:
    """Of the form of this line; None where each line has to be read by itself."""
    file = reader.file
    if reader.is_ours or not file.is_text or len(line) > LINE_LIMIT or not line.isascii():
        return None
    if file.wrapper is not None and file.wrapper not in WRAPPERS:
        return None
    text = reader.unwrap(line)
    if text is None or _DIGIT_COUNTS.search(text) is not None:
        return None
    head = reader.head_of(text)
    if isinstance(head, str):
        alike = reader.unwrap(_HAS_DIGIT.sub("0", line))
        return Template(head) if reader.head_of(alike) == head else None
    ts = head.starts[0]
    if _MOMENT.fullmatch(head.ts_raw) is None or _ZONE.match(text, ts + 23) is not None:
        return None
    said = reader.said_in(head)
    at = len(line.removesuffix("\r")) - len(text)
    start = at + head.starts[1]
    if isinstance(said, str):
        return Template(said, at + ts, (start, start + len(head.message)))
    same: dict[str, Any] = {"cluster": file.cluster, "file_id": file.file_id, "level": head.level}
    template = Template(None, at + ts, (start, start + len(head.message)), same, {}, {}, {})
    return template if _fill(template, reader, said, head.message) else None


def _fill(template: Template, reader: LineReader, said: ParsedMessage, message: str) -> bool:
    """Returns the columns; False where a number stands for a word."""
    same, start = template.same, template.message[0]
    if said.who is None:
        same["broker"] = reader.file.broker
    else:
        template.numbers["broker"] = _moved(said.who, start)
    if said.shape is None or said.found is None:
        same.update(role="server", event="other", shape_id=UNLISTED)
        return True
    row: dict[str, Any] = said.shape.fixed.copy()
    for slot, is_number, is_list, group in groups_taken(said.shape, said.found):
        text, span = said.found[group], _moved(said.found.span(group), start + said.start)
        if is_number or is_list or _HAS_DIGIT.search(text) is not None:
            of_kind = template.numbers if is_number else template.lists if is_list else template.texts
            of_kind[slot] = span
        row[slot] = int(text) if is_number else text
    varying = {*template.numbers, *template.lists, *template.texts}
    if not varying.isdisjoint(WORD_SLOTS) or _WORDED.get(row["event"]) in varying:
        return False
    row = in_words(row) if said.shape.has_words else row
    same.update({slot: value for slot, value in row.items() if slot not in varying})
    if said.shape.role == "controller" and "controller" not in row:
        _from_prefix(template, "controller", said.who, start)
    if "controller_epoch" not in row:
        _from_prefix(template, "controller_epoch", said.epoch, start)
    return True


def _from_prefix(template: Template, slot: str, span: Span | None, start: int) -> None:
    if span is not None:
        template.numbers[slot] = _moved(span, start)


def _moved(span: Span, by: int) -> Span:
    return span[0] + by, span[1] + by
