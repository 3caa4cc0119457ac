"""Lines to staged columns on a worker, by their forms: what `parse.templates` knows of a form, numpy and Arrow take out
of all its lines of a batch at once. Other lines are read one by one, by the same reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparkjobs.local.pieces import MOMENT_DIGITS, NONE, Forms, number_at, spans_number
from sparkjobs.parse.lines import LineReader, event_id_of, ints_of
from sparkjobs.parse.templates import ALIKE, Template
from sparkjobs.schemas import LINE_KEPT

_NUMBERS: Final = {pa.int32(): np.int32, pa.int64(): np.int64}


class Staging:
    """The columns of one batch."""

    def __init__(self, schema: Any, size: int, read: Callable[[LineReader, str, int], tuple[Any, ...]]) -> None:
        self.schema, self._read = schema, read
        self.columns: dict[str, Any] = {
            field.name: np.full(size, NONE, np.int64) if field.type in _NUMBERS else np.full(size, None, object)
            for field in schema
        }

    def fill(self, forms: Forms, places: Any, lines: Sequence[bytes], line_nos: Any) -> None:
        """With the lines of one file, which go to these places."""
        file = forms.reader.file
        content = b"\n".join(lines) + b"\n"
        alike = content.translate(ALIKE).split(b"\n")[: len(lines)]
        codes = forms.codes_of(list(lines), alike)
        if not file.is_whole:
            codes[line_nos == file.lines] = -1  # the last one, that no newline ends
        ends = np.cumsum([len(line) + 1 for line in lines])
        starts = np.concatenate(([0], ends[:-1]))
        self.columns["line_no"][places] = line_nos
        order = np.argsort(codes, kind="stable")
        found, firsts = np.unique(codes[order], return_index=True)
        buffer = np.frombuffer(content, np.uint8)
        for code, own in zip(found.tolist(), np.split(order, firsts[1:]), strict=True):
            template = None if code < 0 else forms.templates[code]
            others = own
            if template is not None and template.fate is None:
                others = self._fill_alike(forms, template, own, places, lines, buffer, starts)
            self._fill_each(forms.reader, others.tolist(), places, lines, line_nos)

    def _fill_each(
        self, reader: LineReader, own: Iterable[int], places: Any, lines: Sequence[bytes], line_nos: Any
    ) -> None:
        for number in own:
            row = self._read(reader, lines[number].decode("utf-8", "replace"), int(line_nos[number]))
            for name, value in zip(self.columns, row, strict=True):
                if value is not None:
                    self.columns[name][places[number]] = value

    def _fill_alike(
        self, forms: Forms, template: Template, own: Any, places: Any, lines: Sequence[bytes], buffer: Any, starts: Any
    ) -> Any:
        """Returns those whose moment is none."""
        reader = forms.reader
        raw = number_at(buffer, starts[own], [template.ts + digit for digit in MOMENT_DIGITS])
        sample = lines[own[0]][template.ts : template.ts + 23].decode("ascii")
        ts = forms.millis(raw, reader.file.tz, sample)
        is_none = ts == NONE
        others, own, ts = own[is_none], own[~is_none], ts[~is_none]
        if not len(own):
            return others
        to = places[own]
        self.columns["ts_utc"][to] = ts
        for name, value in template.same.items():
            if value is not None:
                self.columns[name][to] = value
        for name, span in template.numbers.items():
            self.columns[name][to] = spans_number(buffer, starts[own], span)
        texts = [lines[number].decode("ascii") for number in own.tolist()]
        for name, (start, end) in template.lists.items():
            # one by one: numpy would make a second dimension of them
            for place, text in zip(to.tolist(), texts, strict=True):
                self.columns[name][place] = ints_of(text[start:end])
        for name, (start, end) in template.texts.items():
            self.columns[name][to] = [text[start:end] for text in texts]
        self._identify(reader, template, to, texts)
        return others

    def _identify(self, reader: LineReader, template: Template, to: Any, texts: Sequence[str]) -> None:
        cluster, (start, end), ts = reader.file.cluster, template.message, template.ts
        brokers = [None if one == NONE else one for one in self.columns["broker"][to].tolist()]
        moments = [text[ts : ts + 23] for text in texts]
        self.columns["ts_raw"][to] = moments
        self.columns["event_id"][to] = [
            event_id_of(cluster, broker, moment, text[start:end])
            for broker, moment, text in zip(brokers, moments, texts, strict=True)
        ]
        self.columns["line"][to] = [text[:LINE_KEPT] for text in texts]

    def batch(self) -> Any:
        """For Spark."""
        arrays = []
        for field, column in zip(self.schema, self.columns.values(), strict=True):
            if field.type in _NUMBERS:
                arrays.append(pa.array(column.astype(_NUMBERS[field.type]), type=field.type, mask=column == NONE))
            else:
                arrays.append(pa.array(column, type=field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
