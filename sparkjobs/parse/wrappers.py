"""What a shipper put around each line: taken off. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from sparkjobs.parse.layouts import JSON_FIELDS, WRAPPERS


def unwrapper(wrapper: str | None) -> Callable[[str], str | None]:
    """What gives a line as it was written; None for one that was not wrapped so."""
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
