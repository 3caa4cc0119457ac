"""Lines to staged rows, on the workers: the local engine's own reader, over Arrow batches.

A line's meaning is in one place, `sparkjobs.parse.lines`, so both engines read alike whatever a line looks like. Spark
finds the lines and hands them out, a block of a file after the other; their numbers follow from how many stand above
the block, which the survey has counted. Workers need pyarrow and this package. Of lines of one form numpy takes the
columns out of a whole batch at once, by what `parse.templates` knows of the form; other lines are read one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from sparkjobs.engine.local.digits import NONE, Digits
from sparkjobs.engine.local.forms import (
    Forms,
    Kind,
    Lines,
    grouped,
    moments_in,
)
from sparkjobs.input.files import BLOCK_BYTES
from sparkjobs.parse.lines import CONTINUES, LineReader, id_after, id_head, ints_of, is_trace_head
from sparkjobs.parse.templates import Template
from sparkjobs.tables.arrow import arrow_type
from sparkjobs.tables.silver import (
    LINE_KEPT,
    BronzeFile,
    SilverEvent,
    columns_of,
)

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


#: what of a silver row is not a line's own to say
_DERIVED: Final = frozenset({"dt", "ts_adj", "skew_ms", "skew_err_ms", "catalog_version"})
#: an event's columns that the parser fills; why a line is none; of the first line of a batch, what it says of the
#: exception of the event above
STAGED: Final[dict[str, str]] = {
    **{name: kind for name, kind in columns_of(SilverEvent).items() if name not in _DERIVED},
    "fate": "string",
    "trace_head": "string",
}
SCHEMA: Final = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in STAGED.items()])
_KEPT: Final = [number for number, name in enumerate(SilverEvent.__struct_fields__) if name not in _DERIVED]
_PLACE: Final = {name: list(STAGED).index(name) for name in ("cluster", "file_id", "line_no", "line")}

#: of each block of a file, by the file's place and where the block starts: how many lines stand above its first
Bases = Mapping[tuple[int, int], int]


def staged_schema() -> str:
    """Of the staging table, as Spark writes schemas."""
    return ", ".join(f"{name} {kind}" for name, kind in STAGED.items())


def bases_of(files: Sequence[BronzeFile], above: Mapping[str, int]) -> Bases:
    """`above`: of pieces of logs, by their first path. A line that begins where a block does is the last of the block
    before: so the first line of all is above each further block, besides one for each newline."""
    bases = {}
    for number, file in enumerate(files):
        bases[number, 0] = first = above.get(file.paths[0], 0)
        for block, newlines in enumerate(file.blocks, start=1):
            bases[number, block * BLOCK_BYTES] = first + 1 + newlines
    return bases


def read_batches(batches: Iterable[Any], files: Sequence[BronzeFile], bases: Bases) -> Iterator[Any]:
    """Rows of staged lines. `batches`: value, file_no (its place in `files`), block_start; in the order of the files'
    lines. What was appended to a file since it was surveyed is not looked at."""
    forms = [Forms(LineReader(file)) for file in files]
    so_far: dict[tuple[int, int], int] = defaultdict(int)
    for batch in batches:
        values, numbers, blocks = (batch.column(name) for name in ("value", "file_no", "block_start"))
        numbers, line_nos = numbers.to_numpy(), _line_nos(numbers.to_numpy(), blocks.to_numpy(), bases, so_far)
        if (is_new := line_nos < 0).any():
            known = np.flatnonzero(~is_new)
            values, numbers, line_nos = values.take(pa.array(known)), numbers[known], line_nos[known]
        if not len(numbers):
            continue
        staging = Staging(SCHEMA, len(values), row_of)
        for places in grouped(numbers):
            own = values if len(places) == len(values) else values.take(pa.array(places))
            staging.fill(forms[numbers[places[0]]], places, own, line_nos[places])
        staging.give_traces(numbers)
        yield staging.batch()


def _line_nos(numbers: Any, blocks: Any, bases: Bases, so_far: dict[tuple[int, int], int]) -> Any:
    """Of lines that come block by block; -1 for those of a block that was not there."""
    line_nos = np.full(len(numbers), -1, np.int64)
    cuts = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(blocks) != 0)) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True):
        if start == end:
            continue
        block = int(numbers[start]), int(blocks[start])
        base = bases.get(block)
        if base is not None:
            line_nos[start:end] = np.arange(base + so_far[block] + 1, base + so_far[block] + 1 + end - start)
        so_far[block] += end - start
    return line_nos


def row_of(reader: LineReader, line: str, line_no: int) -> tuple[Any, ...]:
    file = reader.file
    read = reader.read(line, line_no, is_cut=line_no == file.lines and not file.is_whole)
    if isinstance(read, SilverEvent):
        values = msgspec.structs.astuple(read)
        return (*[values[number] for number in _KEPT], None, None)
    head = None
    if read is CONTINUES:
        text = reader.unwrap(line) or ""
        head = text[:LINE_KEPT] if is_trace_head(text) else None
    row: list[Any] = [None] * len(STAGED)
    for name, value in (("cluster", file.cluster), ("file_id", file.file_id), ("line_no", line_no)):
        row[_PLACE[name]] = value
    row[_PLACE["line"]] = line[:LINE_KEPT]
    row[-2:] = read, head
    return tuple(row)
