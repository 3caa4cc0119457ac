"""How lines begin: log4j's conversion patterns, and the text that other tools put around a line.

A layout is written as log4j writes it (`[%d] %p %m (%c)`), so a user can pass the one of their log4j.properties. It
becomes a regular expression that Python and Java read alike. To find a file's layout, its first lines are read with
each: the layout that understands most lines wins, earlier ones at a tie. The text that a shipper put around each line
is taken off here. Data, and the compiler of that data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final

import msgspec

#: dates as Kafka's loggers print them; without a zone they are local time
_DATE = (
    r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{3,9})?(?:Z| ?[+-](?:0\d|1[0-4]):?[0-5]\d)?"
    r"|\d{13}|\d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d[.,]\d{3}"
)
DATE: Final = re.compile(_DATE, re.ASCII)
_PARTS: Final = {
    "d": ("ts", _DATE),
    "p": ("level", r"TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL"),
    "c": ("logger", r"[\w.$-]+(?::\d+)?"),
    "C": ("logger", r"[\w.$-]+"),
    # no date: that stands before the line; no `id=1`: that is how Kafka's own words begin
    "t": (None, r"(?!\d{4}-)[^\]|=]*?"),
    "m": ("message", r".*"),
    "F": (None, r"[\w.$-]+"),
    "L": (None, r"\d+"),
    "M": (None, r"[\w.$]+"),
    "x": (None, r"\S*"),
    "X": (None, r"\S*"),
    "r": (None, r"\d+"),
    "n": (None, ""),
}
_CONVERSION = re.compile(r"%(-?[\d.]*)([a-zA-Z])(?:\{[^}]*\})*")

STOCK: Final = "[%d] %p %m (%c)"
LAYOUTS: Final[tuple[str, ...]] = (
    STOCK,
    "%d %-5p [%t] %c: %m",
    "[%d] %-5p [%t] %m (%c)",
    "[%d] (%c) [%t] %p - %m",
    "[%d] (%c) %p %m",
    "[%d] (%c) %p - %m",
    "%d | %-5p | [%t] | %m | %c (%F:%L)",
    "%d | %-5p | %t | %m | %c (%F:%L)",
    "%d | %-5p | [%t] | %m | %c",
    "%d %-5p %m (%c) [%t]",
    "%d %-5p [%t] %m (%c)",
    "%d %-5p %m (%c)",
    "%d %-5p [%t] %c - %m",
    "%d [%t] %-5p %c - %m",
    "%d [%t] %-5p %c: %m",
    "%d [%t] %-5p %m (%c)",
    "[%d] [%p] [%t] [%c] %m",
    "[%d] [%p] [%t] %c - %m",
    "[%d] [%p] [%t] %c: %m",
    "[%d] [%p] [%c] [%t] %m",
    "[%d] [%p] %m (%c)",
    "[%d] [%p] %c - %m",
    "[%d] [%p] %c: %m",
    "[%d] [%t] %p %m (%c)",
    "[%d] [%t] %p %c - %m",
    "[%d] [%t] %p %c: %m",
    "[%d] %p [%t] %c: %m",
    "[%d] %p [%t] %c - %m",
    "[%d] %p %c: %m",
    "[%d] %p %c - %m",
    "%d [%p] [%t] %c - %m",
    "%d [%p] [%t] %c: %m",
    "%d [%p] [%c] [%t] %m",
    "%d [%p] [%c] %m",
    "%d [%p] %c - %m",
    "%d [%p] %c: %m",
    "%d [%p] %m (%c)",
    "%p [%d] %m (%c)",
    "%p [%d] [%t] %c - %m",
    "%p %d [%t] %c - %m",
    "%p %d [%t] %c: %m",
    "%d %-5p [%c] [%t] %m",
    "%d %-5p [%t] [%c] %m",
    "%d %-5p [%c] %m",
    "%d %-5p %c [%t] - %m",
    "%d %-5p %c [%t] %m",
    "%d %-5p %c - %m",
    "%d %-5p %c: %m",
    "%d %c %-5p %m",
    "%d %-5p (%t) [%c] %m",
    "%d %-5p (%c) [%t] %m",
    "%d %-5p - %m",
    "[%d] %p [%t] %m",
    "[%d] %p %m",
    "%d %-5p [%t] %m",
    "%d %-5p %m",
)

#: the text around a line, as an expression of its beginning; of `json` the line is in a field
WRAPPERS: Final[dict[str, str]] = {
    "docker": r"^[\w.-]+ +\| ",
    "docker-time": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z (?:(?:stdout|stderr) [FP] )?",
    "kubernetes": r"^\[pod/[^\]]*\] ",
    "grep": r"^[^\s:\[\]]+:(?:\d+:)?",
}
JSON_FIELDS: Final = ("message", "log", "msg")


class Layout(msgspec.Struct, frozen=True, dict=True):
    """A conversion pattern and its expression; `places` says which group holds which part."""

    pattern: str
    expression: str
    places: dict[str, int]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.expression, re.ASCII | re.DOTALL)

    @cached_property
    def opening(self) -> re.Pattern[str]:
        """Returns the beginning of a line whose message goes on in the next: the text after the message is not there
        yet."""
        return re.compile(self.opening_expression, re.ASCII | re.DOTALL)

    @property
    def opening_expression(self) -> str:
        return self.expression[: self.expression.index("(.*)") + len("(.*)")]

    @property
    def ends_with_message(self) -> bool:
        """Whether a line cut short still reads like a whole one."""
        return self.expression.endswith("(.*)")


@lru_cache(maxsize=256)
def layout_for(pattern: str) -> Layout:
    """Raises ValueError for a pattern without a date or a message. Kept: each file's first lines are held against all
    of them, and there may be 100,000 files."""
    expression, places, start = "", dict[str, int](), 0
    pattern = pattern.strip().removesuffix("%n")
    for conversion in _CONVERSION.finditer(pattern):
        expression += _literal(pattern[start : conversion.start()])
        start = conversion.end()
        if conversion[2] not in _PARTS:
            raise ValueError(f"%{conversion[2]} in the layout {pattern!r} is not known; log4j's {' '.join(_PARTS)} are")
        name, part = _PARTS[conversion[2]]
        if name is None or name in places:
            expression += f"(?:{part})"
        else:
            places[name] = len(places) + 1
            expression += f"({part})"
    expression += _literal(pattern[start:])
    if not {"ts", "message"} <= places.keys():
        raise ValueError(f"the layout {pattern!r} needs a date (%d) and a message (%m)")
    return Layout(pattern, expression, places)


def _literal(text: str) -> str:
    """Padding makes runs of blanks."""
    return re.sub(r"(?:\\? )+", " +", re.escape(text)) if text else ""


@lru_cache
def unwrapper(wrapper: str | None) -> Callable[[str], str | None]:
    """Returns a function that gives a line as it was written; None for a line that was not wrapped so."""
    if wrapper is None:
        return lambda line: line.removesuffix("\r")
    if wrapper == "json":
        return _first_line
    around = re.compile(WRAPPERS[wrapper], re.ASCII)
    return lambda line: around.sub("", line.removesuffix("\r"), count=1)


def _first_line(line: str) -> str | None:
    """A line, or an event with its stack trace, of which the first line is the event."""
    if not line.strip():
        return line
    text = _text_in(line)
    return None if text is None else text.partition("\n")[0].removesuffix("\r")


def second_line(line: str) -> str | None:
    """Of JSON that holds several; None where there is but one, which costs no look inside."""
    text = _text_in(line) if "\\n" in line else None
    below = "" if text is None else text.partition("\n")[2]
    return below.partition("\n")[0].removesuffix("\r") if below else None


def _text_in(line: str) -> str | None:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return None
    return next((str(fields[name]) for name in JSON_FIELDS if isinstance(fields.get(name), str)), None)
