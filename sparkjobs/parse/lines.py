"""One line to one row: the line reader of every engine. Pure.

It knows one file: its layout, wrapper, zone and broker stand in the file's row. `read` takes a line and returns a
`SilverEvent`, a quarantine reason, or a continuation of the event above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from sparkjobs.parse.layouts import Layout, layout_for, second_line, unwrapper
from sparkjobs.parse.ours import row_of_ours
from sparkjobs.parse.patterns import Shape
from sparkjobs.parse.shapes import API_NAMES, KEY_LENGTH, RECOVERY_NAMES, STATE_NAMES, UNLISTED, refusal_in, route
from sparkjobs.parse.timestamps import DAY_MS, LAST_MS, day_of, millis_of
from sparkjobs.tables.silver import (
    LINE_KEPT,
    LINE_LIMIT,
    BronzeFile,
    SilverEvent,
)

#: lines that belong to the event above: stack traces, indented dumps, closing brackets, empty lines
_CONTINUATION: Final = re.compile(r"\s|$|\S*(?:Exception|Error|Throwable)\b|Caused by:|Suppressed:|[)}\]]", re.ASCII)
_TRACE_HEAD: Final = re.compile(r"\S*(?:Exception|Error|Throwable)\b.*", re.ASCII | re.DOTALL)
#: bytes that no text holds; bytes that could not be decoded became U+FFFD
_NOT_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffd]")
#: the broker that speaks, at the end of a bracketed prefix or at the beginning of an old line
_WHO: Final = re.compile(
    r"(?:[iI]d=|broker=|[cC]ontroller |on |Manager |broker )(\d{1,9})(?: epoch=(\d{1,9}))?", re.ASCII
)
_OLD_WHO: Final = re.compile(r"(?:Controller|Broker) (\d{1,9})(?: epoch (\d{1,9}))?(?: |(?='s ))", re.ASCII)
_STATE_LOGGERS: Final = ("state.change.logger", "change.logger", "logger")
_DIGITS: Final = "0123456789"
_BROKER_EPOCHS: Final = re.compile(r"BrokerState\(brokerId=(\d+), brokerEpoch=-?\d+\)")
#: the kinds of lines that are no events
CONTINUES: Final = "continuation"

Span = tuple[int, int]  # from where to where in a text


class Head(NamedTuple):
    """The parts of a line by its layout. `is_open`: it ends before its message does."""

    ts_raw: str
    level: str
    logger: str
    message: str
    is_open: bool
    starts: tuple[int, int]  # of the moment and of the message, in the text


class ParsedMessage(NamedTuple):
    """The meaning that was found in a message. Spans are in the message; without a shape it says nothing of use."""

    who: Span | None
    epoch: Span | None
    shape: Shape | None
    found: re.Match[str] | None
    start: int  # of the text in which the shape was found


@lru_cache(maxsize=4_096)
def ints_of(text: str) -> tuple[int, ...] | None:
    """`1, 2`, `1,2` or a list of BrokerStates; None for none at all."""
    if "B" in text:
        text = _BROKER_EPOCHS.sub(r"\1", text)
    return tuple(int(part) for part in text.split(",") if part.strip()) or None


def zone_of(file: BronzeFile, broker: int | None) -> str:
    """In which that broker's lines in this file are to be read."""
    return _zone_of(file.tz, file.zones, broker, broker == file.broker)


@lru_cache(maxsize=4_096)
def _zone_of(own: str, zones: tuple[str, ...], broker: int | None, is_own: bool) -> str:
    known = dict(one.split("=", 1) for one in zones)
    return known.get(str(broker), own if is_own else known.get("*", own))


class LineReader:
    """For one file. `read` gives a row without its trace, or why there is none."""

    def __init__(self, file: BronzeFile) -> None:
        self.file = file
        self._layout: Layout | None = None
        if file.layout is not None and file.layout != "klamm":
            self._layout = layout_for(file.layout)
        self.is_ours = file.layout == "klamm"
        self.unwrap = unwrapper(file.wrapper)
        places = self._layout.places if self._layout else {}
        self._ts, self._message = places.get("ts", 0), places.get("message", 0)
        self._level, self._logger = places.get("level"), places.get("logger")
        self._who: dict[str, tuple[Span | None, Span | None]] = {}

    def read(self, line: str, line_no: int, *, is_cut: bool = False) -> SilverEvent | str:
        """`is_cut`: the file's last line, without a newline."""
        if len(line) > LINE_LIMIT:
            return "too_long"
        if not self.file.is_text and _NOT_TEXT.search(line) is not None:
            return "encoding"
        text = self.unwrap(line)
        if self.is_ours:
            return self._read_ours(text, line, line_no, is_cut=is_cut)
        head = self.head_of(text, is_cut=is_cut)
        if isinstance(head, str):
            return head
        ts_utc = millis_of(head.ts_raw, self.file.tz)
        if ts_utc is None:
            return "bad_timestamp"
        said = self.said_in(head)
        if isinstance(said, str):
            return said
        row = self.columns_of(said, head.message)
        if self.file.zones and (zone := zone_of(self.file, row["broker"])) != self.file.tz:
            ts_utc = millis_of(head.ts_raw, zone)
            if ts_utc is None:
                return "bad_timestamp"
        event_id = event_id_of(self.file.cluster, row["broker"], head.ts_raw, head.message)
        trace = self._trace_in(line)
        return self._event(row, head.ts_raw, ts_utc, line, line_no, event_id=event_id, level=head.level, trace=trace)

    def _trace_in(self, line: str) -> str | None:
        """Of an event that a shipper joined with its stack trace."""
        below = second_line(line) if self.file.wrapper == "json" else None
        return below[:LINE_KEPT] if below is not None and is_trace_head(below) else None

    def head_of(self, text: str | None, *, is_cut: bool = False) -> Head | str:
        """Of a line without its wrapper; or why it has none."""
        found = None if self._layout is None or text is None else self._layout.regex.fullmatch(text)
        is_open = False
        if found is None or text is None:
            if is_cut and text:
                return "torn"
            found = None if self._layout is None or text is None else self._layout.opening.fullmatch(text)
            if found is None or text is None:
                return CONTINUES if text is not None and _CONTINUATION.match(text) else "no_header"
            is_open = True
        assert self._layout is not None
        if is_cut and self._layout.ends_with_message:
            return "torn"
        level = found[self._level] if self._level and not (is_open and self._level > self._message) else ""
        logger = found[self._logger].partition(":")[0] if self._logger and not is_open else ""
        starts = (found.start(self._ts), found.start(self._message))
        return Head(found[self._ts], level, logger, found[self._message], is_open, starts)

    def _event(
        self, row: dict[str, Any], ts_raw: str, ts_utc: int, line: str, line_no: int, **more: Any
    ) -> SilverEvent:
        return SilverEvent(
            cluster=self.file.cluster,
            dt=day_of(ts_utc // DAY_MS),
            ts_raw=ts_raw,
            ts_utc=ts_utc,
            ts_adj=ts_utc,
            file_id=self.file.file_id,
            line_no=line_no,
            line=line[:LINE_KEPT],
            **more,
            **row,
        )

    def _read_ours(self, text: str | None, line: str, line_no: int, *, is_cut: bool) -> SilverEvent | str:
        if text is not None and not text.strip():
            return CONTINUES
        row = None if text is None else row_of_ours(text, self.file.broker)
        if row is None or text is None:
            return "torn" if is_cut or (text or "").startswith("{") else "no_header"
        at_ms = row.pop("at_ms")
        if not 0 <= at_ms < LAST_MS:
            return "bad_timestamp"
        event_id = event_id_of(self.file.cluster, row["broker"], str(at_ms), text)
        return self._event(row, str(at_ms), at_ms, line, line_no, event_id=event_id, level="INFO")

    def said_in(self, head: Head) -> ParsedMessage | str:
        """Returns the meaning of the message; or the reason why it has none, though it must be known.

        A message that Kafka writes in one line is cut short where the line ends before its message does.
        """
        message = head.message
        who, epoch, start = self._said_by(message)
        body = message[start:]
        key = body[:KEY_LENGTH].lower()
        if key[:1] in _DIGITS and key:
            key = "#" + body.lstrip(_DIGITS)[:KEY_LENGTH].lower()
        if head.logger.endswith("KafkaServer") or message.startswith("[KafkaServer "):
            key = f"kafkaserver: {key}"
        elif message.startswith("[QuorumController "):
            key = f"quorumcontroller: {key}"
        elif message.startswith("[ControllerServer "):
            key = f"controllerserver: {key}"
        shape = route(key, body)
        if head.is_open and shape is not None:
            return "torn"
        if shape is not None and shape.is_on_message:
            body, start = message, 0
        found = None if shape is None else shape.regex.fullmatch(body)
        if found is not None:
            return ParsedMessage(who, epoch, shape, found, start)
        if head.logger in _STATE_LOGGERS or (not head.logger and self.file.kind == "state-change"):
            return "torn" if head.is_open else "unknown_shape"
        return ParsedMessage(who, epoch, None, None, start)

    def columns_of(self, said: ParsedMessage, message: str) -> dict[str, Any]:
        """Returns the columns that the message fills."""
        who = None if said.who is None else int(message[slice(*said.who)])
        broker = self.file.broker if who is None else who
        if said.shape is None or said.found is None:
            return {"broker": broker, "role": "server", "event": "other", "shape_id": UNLISTED}
        row = _slots_of(said.shape, said.found)
        row["broker"] = broker
        if said.shape.role == "controller" and "controller" not in row:
            row["controller"] = who
        if "controller_epoch" not in row:
            row["controller_epoch"] = None if said.epoch is None else int(message[slice(*said.epoch)])
        return row

    def _said_by(self, message: str) -> tuple[Span | None, Span | None, int]:
        """Returns where the broker and the controller epoch stand, and where the text after the prefix begins."""
        who = epoch = None
        start = 0
        if message.startswith("["):
            prefix, bracket, rest = message.partition("]")
            if bracket:
                start = len(message) - len(rest.lstrip(":, "))
                if prefix not in self._who:
                    self._who[prefix] = _spans_in(_WHO.search(prefix))
                who, epoch = self._who[prefix]
        if message.startswith(("Controller ", "Broker "), start):
            found = _OLD_WHO.match(message, start)
            if found is not None:
                start = found.end()
                who = found.span(1) if who is None else who
                epoch = found.span(2) if epoch is None and found[2] else epoch
        return who, epoch, start


def event_id_of(cluster: str, broker: int | None, ts_raw: str, message: str) -> str:
    """The same line has the same, whichever copy of it was read."""
    return id_after(id_head(cluster, broker), ts_raw.encode(), message.encode())


@lru_cache(maxsize=4_096)
def id_head(cluster: str, broker: int | None) -> bytes:
    """Returns the bytes with which the ids of a broker's lines begin."""
    return f"{cluster}\x1f{'' if broker is None else broker}\x1f".encode()


def id_after(head: bytes, ts_raw: bytes, message: bytes) -> str:
    """Returns the id of a line, from its bytes."""
    return sha256(head + ts_raw + b"\x1f" + message).digest()[:16].hex()


def _spans_in(found: re.Match[str] | None) -> tuple[Span | None, Span | None]:
    if found is None:
        return None, None
    return found.span(1), found.span(2) if found[2] else None


def groups_taken(shape: Shape, found: re.Match[str]) -> Iterator[tuple[str, bool, bool, int]]:
    """Of each slot that says something: is it a number, is it a list, its group."""
    for slot, is_number, is_list, first, others in shape.places:
        group = first + 1
        if found[group] is None and others:
            group = next((other + 1 for other in others if found[other + 1] is not None), group)
        if found[group]:
            yield slot, is_number, is_list, group


def _slots_of(shape: Shape, found: re.Match[str]) -> dict[str, Any]:
    row: dict[str, Any] = shape.fixed.copy()
    for slot, is_number, is_list, group in groups_taken(shape, found):
        text = found[group]
        row[slot] = int(text) if is_number else ints_of(text) if is_list else text
    return in_words(row) if shape.has_words else row


def in_words(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the row with old names and numbers replaced by their present names."""
    for slot in ("from_state", "to_state"):
        if slot in row:
            row[slot] = STATE_NAMES.get(row[slot], row[slot])
    if "recovery" in row:
        row["recovery"] = RECOVERY_NAMES.get(row["recovery"], row["recovery"])
    if "api" in row:
        row["api"] = API_NAMES.get(row["api"], row["api"])
    if "elapsed_ms" in row:
        row["elapsed_ms"] = float(row["elapsed_ms"])
    if "n_more" in row:
        row["n_partitions"] += row.pop("n_more")
    if row["event"] == "request_ignored" and "error" not in row:
        row["error"] = refusal_in(row.get("reason", ""))
    if row["event"] == "response_received" and row.get("error") == "0":
        del row["error"]
    return row


def is_trace_head(line: str) -> bool:
    """Returns whether this continuation names the exception of the event above."""
    return _TRACE_HEAD.fullmatch(line) is not None
