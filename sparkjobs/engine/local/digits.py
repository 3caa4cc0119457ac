"""The digits of lines of one form, taken out of all of them at once: moments, numbers and marks are made of these.

Lines of one form have their digits at the same places (`parse.templates`), so they are rows of a matrix with a column
for each line. Needs numpy. No I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from sparkjobs.parse.lines import Span
from sparkjobs.parse.templates import ALIKE, Template

NONE: Final = -(2**62)  # what stands for it among numbers
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
    """The same of numbers of 8 bytes each, without taking them apart."""
    beyond = words ^ np.uint64(ord("0") * _EACH_BYTE)  # of digits 0 to 9
    more = ((beyond & np.uint64(0x7F * _EACH_BYTE)) + np.uint64(0x76 * _EACH_BYTE)) | beyond
    is_digit = (~more & np.uint64(0x80 * _EACH_BYTE)) >> np.uint64(7)
    return words & ~(is_digit * np.uint64(0x0F))


class Places(NamedTuple):
    """Where the lines of a form have digits, and which of them make what."""

    offsets: Any
    moment: slice
    message: slice
    of_span: dict[Span, tuple[slice, bool]]  # its digits, and whether as a number it is negative
    factors: Any  # of the message's digits in a mark
    moment_factor: Any
    form_mark: Any  # what the message without its digits adds to a mark


def places_of(template: Template, line: bytes) -> Places:
    """`line` is any of the form."""
    offsets = [place for place, byte in enumerate(line) if 48 <= byte <= 57]

    def rows(start: int, end: int) -> slice:
        return slice(bisect_left(offsets, start), bisect_left(offsets, end))

    message, spans = rows(*template.message), (*template.numbers.values(), *template.texts.values())
    powers = [pow(MIXING_FACTOR, power, 2**64) for power in range(message.stop - message.start + 2, 0, -1)]
    return Places(
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

    def __init__(self, places: Places, rows: Any) -> None:
        self._places = places
        self._rows = rows.T[places.offsets].astype(np.int64)
        self._rows -= ord("0")
        moment = self._rows[places.moment]
        self.minutes, self.millis = _put_together(moment[:12]), _put_together(moment[12:])

    def only(self, chosen: Any) -> None:
        """Forget the other lines."""
        self._rows, self.minutes, self.millis = self._rows[:, chosen], self.minutes[chosen], self.millis[chosen]

    def count(self, span: Span) -> int:
        """How many stand there."""
        rows, _ = self._places.of_span[span]
        return int(rows.stop - rows.start)

    def number(self, span: Span) -> Any:
        """What stands there, with its sign."""
        rows, is_negative = self._places.of_span[span]
        value = _put_together(self._rows[rows])
        return -value if is_negative else value

    def marks(self) -> Any:
        """Equal where moment and message are, and hardly ever else."""
        said = (self._rows[self._places.message].view(np.uint64) * self._places.factors).sum(axis=0)
        moments = (self.minutes * _MILLIS_PART + self.millis).view(np.uint64)
        return said + moments * self._places.moment_factor + self._places.form_mark


def mark_of(moment: str, message: bytes) -> int:
    """The same of one line by itself."""
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
