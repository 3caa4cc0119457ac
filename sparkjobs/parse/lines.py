"""One line to one row: the reader of both engines. Pure.

It knows one file: its layout, wrapper, zone and broker stand in the file's row. `read` takes a line and says what it
is: a `SilverEvent`, a quarantine reason, or a continuation of what stands above.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import msgspec

from sparkjobs.parse.layouts import JSON_FIELDS, WRAPPERS, Layout, layout_for
from sparkjobs.parse.moments import LAST_MS, day_of, millis_of
from sparkjobs.parse.ours import row_of_ours
from sparkjobs.parse.patterns import Shape
from sparkjobs.parse.shapes import API_NAMES, KEY_LENGTH, RECOVERY_NAMES, REFUSALS, STATE_NAMES, UNLISTED, route
from sparkjobs.schemas import LINE_KEPT, LINE_LIMIT, BronzeFile, SilverEvent

#: what belongs to the event above: stack traces, indented dumps, closing brackets, nothing
_CONTINUATION: Final = re.compile(r"\s|$|\S*(?:Exception|Error|Throwable)\b|Caused by:|Suppressed:|[)}\]]", re.ASCII)
_TRACE_HEAD: Final = re.compile(r"\S*(?:Exception|Error|Throwable)\b.*", re.ASCII | re.DOTALL)
#: bytes that no text holds; what could not be decoded became U+FFFD
_NOT_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffd]")
#: who speaks, at the end of a bracketed prefix or at the beginning of an old line
_WHO: Final = re.compile(
    r"(?:[iI]d=|broker=|[cC]ontroller |on |Manager |broker )(\d{1,9})(?: epoch=(\d{1,9}))?", re.ASCII
)
_OLD_WHO: Final = re.compile(r"(?:Controller|Broker) (\d{1,9})(?: epoch (\d{1,9}))?(?: |(?='s ))", re.ASCII)
_STATE_LOGGERS: Final = ("state.change.logger", "change.logger", "logger")
_DIGITS: Final = "0123456789"
_BROKER_EPOCHS: Final = re.compile(r"BrokerState\(brokerId=(\d+), brokerEpoch=-?\d+\)")

#: what a line is when it is no event
CONTINUES: Final = "continuation"


@lru_cache(maxsize=4_096)
def ints_of(text: str) -> tuple[int, ...] | None:
    """`1, 2`, `1,2` or a list of BrokerStates; None for none at all."""
    if "B" in text:
        text = _BROKER_EPOCHS.sub(r"\1", text)
    return tuple(int(part) for part in text.split(",") if part.strip()) or None


class LineReader:
    """For one file. `read` gives a row without its trace, or why there is none."""

    def __init__(self, file: BronzeFile) -> None:
        self._file = file
        self._layout: Layout | None = None
        if file.layout is not None and file.layout != "klamm":
            self._layout = layout_for(file.layout)
        self._is_ours = file.layout == "klamm"
        self.unwrap = _unwrapper(file.wrapper)
        places = self._layout.places if self._layout else {}
        self._ts, self._message = places.get("ts", 0), places.get("message", 0)
        self._level, self._logger = places.get("level"), places.get("logger")
        self._who: dict[str, tuple[int | None, int | None]] = {}

    def read(self, line: str, line_no: int, *, is_cut: bool = False) -> SilverEvent | str:
        """`is_cut`: the file's last line, without a newline."""
        if len(line) > LINE_LIMIT:
            return "too_long"
        if not self._file.is_text and _NOT_TEXT.search(line) is not None:
            return "encoding"
        text = self.unwrap(line)
        if self._is_ours:
            return self._read_ours(text, line, line_no, is_cut=is_cut)
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
        ts_raw, message = found[self._ts], found[self._message]
        ts_utc = millis_of(ts_raw, self._file.tz)
        if ts_utc is None:
            return "bad_timestamp"
        level = found[self._level] if self._level and not (is_open and self._level > self._message) else ""
        logger = found[self._logger].partition(":")[0] if self._logger and not is_open else ""
        row = self._row_of(message, logger, is_open=is_open)
        if row is None and is_open:
            return "torn"
        if row is None:
            return "unknown_shape"
        event_id = self._event_id(self._file.cluster, row["broker"], ts_raw, message)
        return self._event(row, ts_raw, ts_utc, line, line_no, event_id=event_id, level=level)

    def _event(
        self, row: dict[str, Any], ts_raw: str, ts_utc: int, line: str, line_no: int, **more: Any
    ) -> SilverEvent:
        return SilverEvent(
            cluster=self._file.cluster,
            dt=day_of(ts_utc // 86_400_000),
            ts_raw=ts_raw,
            ts_utc=ts_utc,
            ts_adj=ts_utc,
            file_id=self._file.file_id,
            line_no=line_no,
            line=line[:LINE_KEPT],
            **more,
            **row,
        )

    @staticmethod
    def _event_id(cluster: str, broker: int | None, ts_raw: str, message: str) -> str:
        who = "" if broker is None else broker
        return sha256(f"{cluster}\x1f{who}\x1f{ts_raw}\x1f{message}".encode()).hexdigest()[:32]

    def _read_ours(self, text: str | None, line: str, line_no: int, *, is_cut: bool) -> SilverEvent | str:
        if not text or not text.strip():
            return CONTINUES
        row = row_of_ours(text, self._file.broker)
        if row is None:
            return "torn" if is_cut or text.startswith("{") else "no_header"
        at_ms = row.pop("at_ms")
        if not 0 <= at_ms < LAST_MS:
            return "bad_timestamp"
        event_id = self._event_id(self._file.cluster, row["broker"], str(at_ms), text)
        return self._event(row, str(at_ms), at_ms, line, line_no, event_id=event_id, level="INFO")

    def _row_of(self, message: str, logger: str, *, is_open: bool) -> dict[str, Any] | None:
        """The columns that the message fills; None for what must be known and is not.

        `is_open`: the line ends before its message does. What Kafka says in one line is then cut short.
        """
        who, epoch, body = self._said_by(message)
        key = body[:KEY_LENGTH].lower()
        if key[:1] in _DIGITS and key:
            key = "#" + body.lstrip(_DIGITS)[:KEY_LENGTH].lower()
        if logger.endswith("KafkaServer") or message.startswith("[KafkaServer "):
            key = f"kafkaserver: {key}"
        shape = route(key, body)
        if is_open and shape is not None:
            return None
        found = None if shape is None else shape.regex.fullmatch(message if shape.is_on_message else body)
        broker = self._file.broker if who is None else who
        if shape is None or found is None:
            if logger in _STATE_LOGGERS or (not logger and self._file.kind == "state-change"):
                return None
            return {"broker": broker, "role": "server", "event": "other", "shape_id": UNLISTED}
        row = _slots_of(shape, found)
        row["broker"] = broker
        if shape.role == "controller" and "controller" not in row:
            row["controller"] = who
        if "controller_epoch" not in row:
            row["controller_epoch"] = epoch
        return row

    def _said_by(self, message: str) -> tuple[int | None, int | None, str]:
        """Broker, controller epoch and what stands after the prefix."""
        who = epoch = None
        body = message
        if message.startswith("["):
            prefix, bracket, rest = message.partition("]")
            if bracket:
                body = rest.lstrip(":, ")
                if prefix not in self._who:
                    found = _WHO.search(prefix)
                    self._who[prefix] = _numbers_in(found)
                who, epoch = self._who[prefix]
        if body.startswith(("Controller ", "Broker ")):
            found = _OLD_WHO.match(body)
            if found is not None:
                body = body[found.end() :]
                who = int(found[1]) if who is None else who
                epoch = int(found[2]) if epoch is None and found[2] else epoch
        return who, epoch, body


def _numbers_in(found: re.Match[str] | None) -> tuple[int | None, int | None]:
    if found is None:
        return None, None
    return int(found[1]), int(found[2]) if found[2] else None


def _slots_of(shape: Shape, found: re.Match[str]) -> dict[str, Any]:
    row: dict[str, Any] = shape.fixed.copy()
    texts = found.groups()
    for slot, is_number, is_list, first, others in shape.places:
        text = texts[first]
        if text is None and others:
            text = next((texts[other] for other in others if texts[other] is not None), None)
        if text:
            row[slot] = int(text) if is_number else ints_of(text) if is_list else text
    return _in_words(row) if shape.has_words else row


def _in_words(row: dict[str, Any]) -> dict[str, Any]:
    """Old names and numbers as what they mean today."""
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
        row["error"] = next(error for words, error in REFUSALS if words in row.get("reason", ""))
    if row["event"] == "response_received" and row.get("error") == "0":
        del row["error"]
    return row


def is_trace_head(line: str) -> bool:
    """Whether this continuation names the exception of the event above."""
    return _TRACE_HEAD.fullmatch(line) is not None


def _unwrapper(wrapper: str | None) -> Callable[[str], str | None]:
    if wrapper is None:
        return lambda line: line.removesuffix("\r")
    if wrapper == "json":
        return _from_json
    around = re.compile(WRAPPERS[wrapper], re.ASCII)
    return lambda line: around.sub("", line.removesuffix("\r"), count=1)


def _from_json(line: str) -> str | None:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None if line.strip() else line
    for name in JSON_FIELDS:
        if isinstance(fields.get(name), str):
            return str(fields[name]).rstrip("\r\n")
    return None
