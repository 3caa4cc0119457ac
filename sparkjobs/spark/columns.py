"""Lines to staged columns on a worker, by their forms: what `parse.templates` knows of a form, numpy and Arrow take out
of all its lines of a batch at once. Other lines are read one by one, by the same reader. Rows come in no order: each
has its number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkjobs.local.digits import NONE, Digits
from sparkjobs.local.forms import Forms, Lines, moments_of
from sparkjobs.parse.lines import LineReader, Span, id_after, id_head, ints_of
from sparkjobs.parse.templates import Template
from sparkjobs.schemas import LINE_KEPT

#: of the numbers of a template; Arrow's own conversion from 64 bits looks at each for what does not fit
_NUMBERS: Final = {pa.int32(): np.int32, pa.int64(): np.int64}


class Staging:
    """The columns of one batch."""

    def __init__(self, schema: Any, read: Callable[[LineReader, str, int], tuple[Any, ...]]) -> None:
        self.schema, self._read = schema, read
        self._parts: list[Any] = []

    def fill(self, forms: Forms, values: Any, line_nos: Any) -> None:
        """With lines of one file: an array of bytes, and their numbers."""
        file, lines = forms.reader.file, _lines_of(values)
        for code, own in forms.sort(lines):
            template = None if code < 0 else forms.templates[code]
            others = own
            if template is not None and template.fate is None:
                # the last line of a file may be one that no newline ends
                is_cut = np.full(len(own), False) if file.is_whole else line_nos[own] == file.lines
                whole = own[~is_cut]
                digits = Digits(forms.places[code], lines.buffer, lines.starts[whole])
                others = np.append(own[is_cut], self._fill_alike(forms, template, digits, values, whole, line_nos))
            self._fill_each(forms.reader, [lines[number] for number in others.tolist()], line_nos[others].tolist())

    def _fill_each(self, reader: LineReader, lines: Sequence[bytes], line_nos: Sequence[int]) -> None:
        rows = [
            self._read(reader, line.decode("utf-8", "replace"), no) for line, no in zip(lines, line_nos, strict=True)
        ]
        if rows:
            columns = zip(*rows, strict=True)
            arrays = [pa.array(column, type=field.type) for column, field in zip(columns, self.schema, strict=True)]
            self._parts.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))

    def _fill_alike(
        self, forms: Forms, template: Template, digits: Digits, values: Any, own: Any, line_nos: Any
    ) -> Any:
        """Returns those whose moment is none."""
        if not len(own):
            return own
        reader = forms.reader
        sample = values[int(own[0])].as_py()[template.ts : template.ts + 23].decode("ascii")
        ts = moments_of(digits, reader.file.tz, sample)
        is_none = ts == NONE
        others = own[is_none]
        if len(others):
            own, ts = own[~is_none], ts[~is_none]
            digits.only(~is_none)
        if not len(own):
            return others
        # templates are of ASCII lines only, so letters are bytes
        texts = values.take(pa.array(own)).cast(pa.string())
        found: dict[str, Any] = {"ts_utc": ts, "line_no": line_nos[own], "line": _part(texts, (0, LINE_KEPT))}
        found["ts_raw"] = _part(texts, (template.ts, template.ts + 23))
        for name, span in template.numbers.items():
            found[name] = digits.number(span)
        for name, span in template.texts.items():
            found[name] = _part(texts, span)
        for name, span in template.lists.items():
            found[name] = _lists(_part(texts, span), self.schema.field(name).type)
        broker: Any = found.get("broker", template.same.get("broker"))
        brokers = broker.tolist() if "broker" in found else repeat(broker)
        heads = map(id_head, repeat(reader.file.cluster), brokers)
        said = _part(texts, template.message)
        found["event_id"] = list(map(id_after, heads, _raw(found["ts_raw"]), _raw(said)))
        self._parts.append(self._batch(found, template.same, len(own)))
        return others

    def _batch(self, found: dict[str, Any], same: dict[str, Any], size: int) -> Any:
        arrays = []
        for field in self.schema:
            value = found.get(field.name)
            if value is None:
                said = same.get(field.name)
                value = pa.nulls(size, field.type) if said is None else pa.repeat(pa.scalar(said, field.type), size)
            elif isinstance(value, np.ndarray):
                value = pa.array(value.astype(_NUMBERS[field.type]))
            elif isinstance(value, list):
                value = pa.array(value, type=field.type)
            arrays.append(value)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def batch(self) -> Any:
        """For Spark."""
        [whole] = pa.Table.from_batches(self._parts, self.schema).combine_chunks().to_batches()
        return whole


def _lines_of(values: Any) -> Lines:
    """As Arrow holds them: one after the other, and where each ends."""
    values = values.cast(pa.binary())
    _, offsets, data = values.buffers()
    offsets = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return Lines(b"" if data is None else data.to_pybytes(), offsets[:-1], offsets[1:])


def _part(texts: Any, span: Span) -> Any:
    return pc.utf8_slice_codeunits(texts, *span)


def _raw(texts: Any) -> Iterable[bytes]:
    parts: list[bytes] = texts.cast(pa.binary()).to_pylist()
    return parts


def _lists(texts: Any, kind: Any) -> Any:
    """Numbers as they stand; most lines say the same ones."""
    each = texts.dictionary_encode()
    known: Iterator[Any] = (ints_of(text) for text in each.dictionary.to_pylist())
    return pa.array([None if one is None else list(one) for one in known], kind).take(each.indices)
