"""Events on their way between processes, without the columns that no rule reads. They also lack the names of columns,
which would be most of them. They are made as tuples, and become objects where rules walk through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec

from sparkjobs.engine.local.forms import EventLines
from sparkjobs.parse.lines import id_after, id_head, ints_of
from sparkjobs.tables.silver import UNREAD, BronzeFile, SilverEvent


class PackedEvent(SilverEvent, frozen=True, kw_only=True, array_like=True):
    """To the rules an event like any other."""


#: the columns of one, in order
Values = tuple[Any, ...]
_FIELDS: Final = SilverEvent.__struct_fields__
BROKER: Final = _FIELDS.index("broker")
CAUSE_ID: Final = _FIELDS.index("cause_id")
EVENT: Final = _FIELDS.index("event")
LINE_NO: Final = _FIELDS.index("line_no")
PEER_BROKER: Final = _FIELDS.index("peer_broker")
TOPIC: Final = _FIELDS.index("topic")
PARTITION: Final = _FIELDS.index("partition")
_TRACE: Final = _FIELDS.index("trace")
_DEFAULTS: Final = {
    **{field.name: field.default for field in msgspec.structs.fields(SilverEvent) if not field.required},
    **UNREAD,
}

PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder(list[PackedEvent])


class StretchContext(NamedTuple):
    """Facts that a stretch's own events lack: their broker, how many lines of the file stand above, and the lines whose
    exception stands where the next portion or stretch begins, by their numbers in it."""

    file_id: str
    lines: int
    traces: Mapping[int, str]


def unpacked(packed: Iterable[tuple[bytes, StretchContext]]) -> list[SilverEvent]:
    """Events of stretches."""
    events: list[SilverEvent] = []
    for content, above in packed:
        some: list[Any] = _UNPACK.decode(content)
        if above.traces and some and (trace := above.traces.get(some[-1].line_no)) is not None:
            some[-1] = msgspec.structs.replace(some[-1], trace=trace)
        if above.lines:
            some = [msgspec.structs.replace(event, line_no=event.line_no + above.lines) for event in some]
        events += some
    return events


def values_of(event: SilverEvent) -> Values:
    """Of a line that was read by itself."""
    return tuple(UNREAD.get(name, value) for name, value in zip(_FIELDS, msgspec.structs.astuple(event), strict=True))


def with_trace(values: Values, trace: str) -> Values:
    """The exception stands below it."""
    return (*values[:_TRACE], trace, *values[_TRACE + 1 :])


def values_in(alike: EventLines, file: BronzeFile) -> list[Values]:
    """Returns `Template.event` of each line of one form, without the columns that are not read."""
    template, moments = alike.template, alike.ts_utc.tolist()
    columns: dict[str, Iterable[Any]] = {name: repeat(value) for name, value in template.same.items()}
    columns |= {name: alike.number(name).tolist() for name in template.numbers}
    columns |= {name: map(ints_in, alike.parts(span)) for name, span in template.lists.items()}
    columns |= {name: map(_text_in, alike.parts(span)) for name, span in template.texts.items()}
    columns |= {"ts_utc": moments, "ts_adj": moments, "line_no": alike.line_no.tolist()}
    columns["event_id"] = event_ids(alike, file)
    columns |= {name: repeat(value) for name, value in UNREAD.items()}
    return list(zip(*[columns[name] if name in columns else repeat(_DEFAULTS[name]) for name in _FIELDS], strict=False))


def event_ids(alike: EventLines, file: BronzeFile) -> Iterable[str]:
    """Of each line."""
    template, broker = alike.template, alike.number("broker")
    brokers = broker.tolist() if "broker" in template.numbers else repeat(broker)
    moments = alike.parts((template.ts, template.ts + 23))
    return map(id_after, map(id_head, repeat(file.cluster), brokers), moments, alike.parts(template.message))


@lru_cache(maxsize=4_096)
def ints_in(part: bytes) -> tuple[int, ...] | None:
    """Returns a list of numbers; many lines have the same."""
    return ints_of(part.decode("ascii"))


@lru_cache(maxsize=65_536)
def _text_in(part: bytes) -> str:
    return part.decode("ascii")
