"""Lines to staged columns on a worker, by their forms: what `parse.templates` knows of a form, numpy takes out of all
its lines of a batch at once. Other lines are read one by one, by the same reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparkjobs.local.digits import NONE, Digits
from sparkjobs.local.forms import Forms, Kind, Lines, moments_in
from sparkjobs.parse.lines import LineReader, id_after, id_head, ints_of
from sparkjobs.parse.templates import Template
from sparkjobs.schemas import LINE_KEPT

_NUMBERS: Final = {pa.int32(): np.int32, pa.int64(): np.int64}
#: texts that hardly two lines share
_OWN: Final = ("event_id", "ts_raw", "line")


class _Numbered(dict[Any, int]):
    """Things by the order in which they were asked for first."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = number = len(self)
        return number


class _Words:
    """A column of which many lines say the same: each thing once, and which of these a line says."""

    def __init__(self, size: int, kind: Any) -> None:
        self._kind, self._which, self._said = kind, np.zeros(size, np.int32), _Numbered({None: 0})

    def put(self, places: Any, value: Any) -> None:
        self._which[places] = self._said[value]

    def put_each(self, places: Any, values: Iterable[Any]) -> None:
        self._which[places] = list(map(self._said.__getitem__, values))

    def is_said(self) -> Any:
        """Of which lines it is known."""
        return self._which != 0

    def at(self, places: Any) -> list[Any]:
        said = list(self._said)
        return [said[which] for which in self._which[places].tolist()]

    def array(self) -> Any:
        return pa.array(list(self._said), type=self._kind).take(pa.array(self._which))


class _Numbers:
    """A column of numbers."""

    def __init__(self, size: int, kind: Any) -> None:
        self._kind, self.values = kind, np.full(size, NONE, np.int64)

    def put(self, places: Any, value: Any) -> None:
        self.values[places] = NONE if value is None else value

    put_each = put

    def array(self) -> Any:
        return pa.array(self.values.astype(_NUMBERS[self._kind]), type=self._kind, mask=self.values == NONE)


class _Texts:
    """A column of texts that differ."""

    def __init__(self, size: int, kind: Any) -> None:
        self._kind, self._values = kind, np.full(size, None, object)

    def put(self, places: Any, value: Any) -> None:
        self._values[places] = value

    put_each = put

    def array(self) -> Any:
        return pa.array(self._values, type=self._kind)


class Staging:
    """The columns of one batch."""

    def __init__(self, schema: Any, size: int, read: Callable[[LineReader, str, int], tuple[Any, ...]]) -> None:
        self.schema, self._read = schema, read
        self.columns: dict[str, Any] = {}
        for field in schema:
            kind = _Numbers if field.type in _NUMBERS else _Texts if field.name in _OWN else _Words
            self.columns[field.name] = kind(size, field.type)

    def fill(self, forms: Forms, places: Any, values: Any, line_nos: Any) -> None:
        """With lines of one file, an array of bytes, which go to these places."""
        lines = _lines_of(values)
        self.columns["line_no"].put(places, line_nos)
        for kind in forms.sort(lines):
            others = kind.places
            if kind.code >= 0 and forms.templates[kind.code].fate is None:
                others = self._fill_alike(forms, kind, lines, places, line_nos)
            self._fill_each(forms.reader, others.tolist(), places, lines, line_nos)

    def _fill_each(self, reader: LineReader, own: Iterable[int], places: Any, lines: Lines, line_nos: Any) -> None:
        for number in own:
            row = self._read(reader, lines[number].decode("utf-8", "replace"), int(line_nos[number]))
            for column, value in zip(self.columns.values(), row, strict=True):
                if value is not None:
                    column.put(places[number], value)

    def _fill_alike(self, forms: Forms, kind: Kind, lines: Lines, places: Any, line_nos: Any) -> Any:
        """Returns those that have to be read by themselves."""
        reader, (code, own, rows) = forms.reader, kind
        template, file = forms.templates[code], reader.file
        digits = Digits(forms.places[code], rows)
        sample = lines[own[0]][template.ts : template.ts + 23].decode("ascii")
        ts = moments_in(digits, template, reader, sample)
        is_other = ts == NONE
        if not file.is_whole:  # the last line, that no newline ends
            is_other |= line_nos[own] == file.lines
        others = own[is_other]
        if len(others):
            own, ts = own[~is_other], ts[~is_other]
            digits.only(~is_other)
        if not len(own):
            return others
        to = places[own]
        self.columns["ts_utc"].put(to, ts)
        for name, value in template.same.items():
            if value is not None:
                self.columns[name].put(to, value)
        for name, span in template.numbers.items():
            self.columns[name].put(to, digits.number(span))
        size = int(lines.ends[own[0]] - lines.starts[own[0]])  # lines of one form are as long as each other
        whole = [lines.content[start : start + size] for start in lines.starts[own].tolist()]
        self._fill_texts(reader, template, to, whole)
        return others

    def _fill_texts(self, reader: LineReader, template: Template, to: Any, lines: Sequence[bytes]) -> None:
        # Arrow takes bytes for text, if that is what they are; a template's lines are of ASCII only
        for name, (start, end) in template.lists.items():
            self.columns[name].put_each(to, [_ints_in(line[start:end]) for line in lines])
        for name, (start, end) in template.texts.items():
            self.columns[name].put_each(to, [line[start:end].decode("ascii") for line in lines])
        (start, end), ts = template.message, template.ts
        moments = [line[ts : ts + 23] for line in lines]
        self.columns["ts_raw"].put_each(to, moments)
        self.columns["line"].put_each(to, lines if len(lines[0]) <= LINE_KEPT else [line[:LINE_KEPT] for line in lines])
        cluster, broker = reader.file.cluster, template.same.get("broker")
        heads: Iterable[bytes] = repeat(id_head(cluster, broker))
        if "broker" in template.numbers:
            heads = [id_head(cluster, one) for one in self.columns["broker"].values[to].tolist()]
        said = [line[start:end] for line in lines]
        self.columns["event_id"].put_each(to, list(map(id_after, heads, moments, said)))

    def give_traces(self, file_nos: Any) -> None:
        """The name of an exception goes to the event above it; that of the first line stays where it stands."""
        heads, fates, traces = (self.columns[name] for name in ("trace_head", "fate", "trace"))
        own = np.flatnonzero(heads.is_said())
        own = own[own > 0]
        is_below = (file_nos[own] == file_nos[own - 1]) & ~fates.is_said()[own - 1]
        traces.put_each(own[is_below] - 1, heads.at(own[is_below]))
        heads.put(own, None)

    def batch(self) -> Any:
        """The rows."""
        return pa.RecordBatch.from_arrays([column.array() for column in self.columns.values()], schema=self.schema)


@lru_cache(maxsize=4_096)
def _ints_in(part: bytes) -> tuple[int, ...] | None:
    return ints_of(part.decode("ascii"))


def _lines_of(values: Any) -> Lines:
    """As Arrow holds them: one after the other, and where each ends."""
    values = values.cast(pa.binary())
    _, offsets, data = values.buffers()
    offsets = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    offsets -= first
    return Lines(b"" if data is None else data.to_pybytes()[first:last], offsets[:-1], offsets[1:])
