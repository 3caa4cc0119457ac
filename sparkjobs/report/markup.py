"""The report's parts as markup: moments in words, tables, small pictures as SVG, a heat map as a PNG in an address.
Pure.

No library is needed: pictures open from a file, and print. Their positions come from `Span`, which maps moments onto a
width. Every mark carries its words in a `<title>`, which browsers show as a tool-tip and screen readers read aloud.
Moments carry their day where the logs are of more than one day. Numbers in tables stand to the right and sort by value.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from html import escape
from typing import Any, Final

from sparkjobs.parse.timestamps import DAY_MS
from sparkjobs.rules.rules import Answers

LABEL_WIDTH: Final = 170
WIDTH: Final = 1_080
ROW: Final = 22
_STEPS_MS: Final = (
    *(1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000),
    *(7_200_000, 21_600_000, 43_200_000, DAY_MS, 604_800_000),
)


def clock(at_ms: int | None, *, with_day: bool = False) -> str:
    """Returns a moment as people read it, in UTC."""
    if at_ms is None:
        return "-"
    shown = "%Y-%m-%d %H:%M:%S" if with_day else "%H:%M:%S"
    at = datetime.fromtimestamp(at_ms // 1_000, UTC)
    return f"{at.strftime(shown)}.{at_ms % 1_000:03d}"


def lasting(length_ms: float | None) -> str:
    """Returns a length of time as people say it."""
    if length_ms is None:
        return "-"
    if length_ms < 1_000:
        return f"{length_ms:.0f} ms"
    if length_ms < 120_000:
        return f"{length_ms / 1_000:.1f} s"
    if length_ms < 7_200_000:
        return f"{length_ms / 60_000:.1f} min"
    return f"{length_ms / 3_600_000:.1f} h"


def counted(number: int, what: str) -> str:
    """Returns a number of things as people say it."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def named(what: str, numbers: Sequence[int]) -> str:
    """Several of a kind, by their numbers: broker 1; brokers 1, 2."""
    return f"{what if len(numbers) == 1 else what + 's'} {', '.join(map(str, numbers))}"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time across a picture."""

    from_ms: int
    to_ms: int
    width: int = WIDTH - LABEL_WIDTH - 10

    @property
    def is_of_days(self) -> bool:
        """Whether a time of day may be that of another day."""
        return self.from_ms // DAY_MS != self.to_ms // DAY_MS

    def clock(self, at_ms: int | None) -> str:
        """Returns a moment in it, as people read it."""
        return clock(at_ms, with_day=self.is_of_days)

    def brief(self, at_ms: int) -> str:
        """Returns it in short, where there is little room."""
        return clock(at_ms, with_day=True)[5:16] if self.is_of_days else clock(at_ms)[:8]

    def x(self, at_ms: int) -> float:
        share = (at_ms - self.from_ms) / max(1, self.to_ms - self.from_ms)
        return round(LABEL_WIDTH + min(1.0, max(0.0, share)) * self.width, 1)

    def axis(self, height: int) -> str:
        """Lines at round times, with their names below."""
        step = next((s for s in _STEPS_MS if (self.to_ms - self.from_ms) / s <= 9), _STEPS_MS[-1])
        marks = []
        for at_ms in range(-(-self.from_ms // step) * step, self.to_ms + 1, step):
            x = self.x(at_ms)
            marks.append(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="{height}"/>')
            has_room = step >= 43_200_000 or (self.is_of_days and step >= 60_000)
            name = clock(at_ms, with_day=True)[5:16] if has_room else clock(at_ms)[:8]
            marks.append(f'<text class="tick" x="{x}" y="{height + 14}">{name}</text>')
        return "".join(marks)

    def bar(self, row: int, from_ms: int, to_ms: int, kind: str, words: str) -> str:
        """Returns a stretch in a row; never thinner than can be seen."""
        x = self.x(from_ms)
        width = max(2.0, round(self.x(to_ms) - x, 1))
        y = row * ROW + 4
        return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{ROW - 8}">{title(words)}</rect>'

    def mark(self, row: int, at_ms: int, kind: str, words: str) -> str:
        """Returns a moment in a row."""
        return f'<circle class="{kind}" cx="{self.x(at_ms)}" cy="{row * ROW + ROW // 2}" r="4">{title(words)}</circle>'


def title(words: str) -> str:
    return f"<title>{escape(words)}</title>"


def label(row: int, words: str) -> str:
    """Returns the name of a row, to its left."""
    return f'<text class="label" x="{LABEL_WIDTH - 8}" y="{row * ROW + 15}">{escape(words)}</text>'


def picture(span: Span, rows: Sequence[str], marks: Iterable[str], words: str) -> str:
    """Rows with their names, an axis below."""
    height = len(rows) * ROW
    names = "".join(label(row, name) for row, name in enumerate(rows))
    box = f'viewBox="0 0 {WIDTH} {height + 20}" role="img" aria-label="{escape(words)}"'
    return framed(f"<svg {box}>{span.axis(height)}{names}{''.join(marks)}</svg>")


def framed(drawing: str) -> str:
    """On a narrow page a picture keeps its size and is moved under the finger."""
    return f'<div class="wide" tabindex="0">{drawing}</div>'


def legend(kinds: Iterable[tuple[str, str]]) -> str:
    """Returns the meaning of the colours: classes with their words."""
    keys = "".join(
        f'<span><svg class="key" viewBox="0 0 12 12" aria-hidden="true">{_key(kind)}</svg> {escape(words)}</span>'
        for kind, words in kinds
    )
    return f'<p class="legend">{keys}</p>' if keys else ""


def _key(kind: str) -> str:
    is_moment = kind.startswith("end ")
    return (
        f'<circle class="{kind}" cx="6" cy="6" r="5"/>'
        if is_moment
        else f'<rect class="{kind}" width="12" height="12"/>'
    )


def heat_map(cells: Sequence[Sequence[int]], palette: Sequence[tuple[int, int, int]]) -> str:
    """Returns an indexed PNG, a pixel for each cell, as a data address: 100,000 cells are a few kilobytes."""
    height, width = len(cells), len(cells[0]) if cells else 0
    colours = b"".join(bytes(colour) for colour in palette)
    raw = b"".join(b"\0" + bytes(row) for row in cells)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", colours),
        (b"tRNS", b"\0" + b"\xff" * (len(palette) - 1)),  # nothing happened: the page's own colour
        (b"IDAT", zlib.compress(raw, 9)),
        (b"IEND", b""),
    )
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


Clock = Callable[[int | None], str]


def span_of(answers: Answers) -> Span | None:
    """From the first to the last thing that is known."""
    spans: Sequence[Any] = answers["log_spans"]
    if not spans or not answers["broker_lives"]:
        return None
    return Span(min(one.from_ms for one in spans), end_of(answers))


def end_of(answers: Answers) -> int:
    """Returns when the last line was written."""
    spans: Sequence[Any] = answers["log_spans"]
    return max((one.to_ms for one in spans), default=0)


def clock_for(answers: Answers) -> Clock:
    """Returns the clock for sentences, which are read without their surroundings."""
    span = span_of(answers)
    return partial(clock, with_day=False) if span is None else span.clock


#: rows of a table that are shown; the rest is in the JSON and Parquet beside the page
ROWS_SHOWN: Final = 300


def worst(rows: Sequence[Any], how_bad: Callable[[Any], Any]) -> list[Any]:
    """As many as a page shows, in their own order."""
    chosen = sorted(range(len(rows)), key=lambda place: how_bad(rows[place]), reverse=True)[:ROWS_SHOWN]
    return [rows[place] for place in sorted(chosen)]


def row_of(*cells: str | tuple[float, str]) -> str:
    """A cell is its words, or a value and its words."""
    shown = (
        f"<td>{escape(cell)}</td>"
        if isinstance(cell, str)
        else f'<td class="n" data-v="{cell[0]}">{escape(cell[1])}</td>'
        for cell in cells
    )
    return f"<tr>{''.join(shown)}</tr>"


_CELL: Final = re.compile(r'<td( class="n")?')


def table_of(heads: Sequence[str], rows: Sequence[str], count: int) -> str:
    """`count` is how many there are, when not all are shown."""
    if not rows:
        return '<p class="soft">None.</p>'
    more = (
        f'<p class="soft">{count - len(rows)} more are in report.json beside this page.</p>'
        if count > len(rows)
        else ""
    )
    kinds = _CELL.findall(rows[0])
    head = "".join(f"<th{kind}>{escape(one)}</th>" for one, kind in zip(heads, kinds, strict=True))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>{more}'
