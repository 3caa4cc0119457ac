"""Every column of every event, typed, as a table of silver has them; and what is no event, with the reason.

Lines of one form become columns at once, by what is known of the form; other lines are read one by one. Workers need
pyarrow and this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkjobs.engine.local.digits import NONE
from sparkjobs.engine.local.packed_events import event_ids, ints_in
from sparkjobs.engine.local.pieces import Alike
from sparkjobs.tables.arrow import arrow_type, batch_of
from sparkjobs.tables.silver import LINE_KEPT, BronzeFile, SilverEvent, SilverQuarantine, columns_of

#: what of a silver row is not a line's own to say
_DERIVED: Final = frozenset({"dt", "ts_adj", "skew_ms", "skew_err_ms", "catalog_version"})
#: an event's columns that a line fills
STAGED: Final[dict[str, str]] = {name: kind for name, kind in columns_of(SilverEvent).items() if name not in _DERIVED}
SCHEMA: Final = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in STAGED.items()])
_FIELDS: Final = SilverEvent.__struct_fields__


class EventColumns:
    """Takes what is read of a stretch. `above`: lines of its file before its first. `traces`: exceptions that stand
    where the next portion of it begins, or the next stretch, by the numbers of their events' lines."""

    def __init__(self, file: BronzeFile, above: int, traces: Mapping[int, str]) -> None:
        self._file, self._above, self._heads = file, above, {number + 1: head for number, head in traces.items()}
        self._alike: list[Any] = []
        self._events: list[SilverEvent] = []
        self._others: list[SilverQuarantine] = []

    def take_alike(self, alike: Alike) -> None:
        self._alike.append(_columns_of(alike, self._file))

    def take_event(self, event: SilverEvent, mark: int) -> None:
        self._events.append(event)

    def take_other(self, line_no: int, why: str, line: str) -> None:
        row = SilverQuarantine(
            cluster=self._file.cluster,
            file_id=self._file.file_id,
            line_no=line_no + self._above,
            reason=why,
            line=line[:LINE_KEPT],
        )
        self._others.append(row)

    def take_continuations(self, count: int, heads: dict[int, str]) -> None:
        self._heads |= heads

    def events(self) -> Any:
        """A table of `SCHEMA`."""
        one_by_one = batch_of(SilverEvent, self._events).select(SCHEMA.names)
        table = pa.Table.from_batches([*self._alike, one_by_one], SCHEMA)
        line_nos = table["line_no"].to_numpy()
        if self._heads and len(own := np.flatnonzero(np.isin(line_nos + 1, [*self._heads]))):
            traces = table["trace"].to_pylist()
            for place in own.tolist():
                traces[place] = self._heads[int(line_nos[place]) + 1]
            table = _with(table, "trace", traces)
        return _with(table, "line_no", line_nos + self._above) if self._above else table

    def others(self) -> Any:
        """A table of quarantine."""
        return pa.Table.from_batches([batch_of(SilverQuarantine, self._others)])


def _with(table: Any, name: str, values: Any) -> Any:
    field = SCHEMA.field(name)
    return table.set_column(SCHEMA.names.index(name), field, [pa.array(values, field.type)])


def write_whole(table: Any, path: Path) -> None:
    """The file is there under its name when all of it is; who writes it again writes the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"_{path.name}-{uuid4().hex[:12]}")
    pq.write_table(table, unfinished, compression="zstd")
    unfinished.replace(path)


def _columns_of(alike: Alike, file: BronzeFile) -> Any:
    template, size = alike.template, len(alike)
    start, lines = template.ts, alike.whole()
    known: dict[str, Any] = {
        "ts_utc": alike.ts_utc,
        "line_no": alike.line_no,
        "ts_raw": alike.parts((start, start + 23)),
        "event_id": list(event_ids(alike, file)),
        "line": lines if len(lines[0]) <= LINE_KEPT else [line[:LINE_KEPT] for line in lines],
    }
    return pa.RecordBatch.from_arrays([_column(field, alike, known, size) for field in SCHEMA], schema=SCHEMA)


def _column(field: Any, alike: Alike, known: Mapping[str, Any], size: int) -> Any:
    name, template = field.name, alike.template
    if name in template.numbers:
        values = alike.number(name)
        return pa.array(values, pa.int64(), mask=values == NONE).cast(field.type)
    if name in template.lists:
        return pa.array(list(map(ints_in, alike.parts(template.lists[name]))), field.type)
    if name in template.texts:
        said, which = alike.words(name)
        return pa.array(said, field.type).take(pa.array(which))
    if name in known:
        return pa.array(known[name], field.type)  # Arrow takes bytes for text; a template's lines are of ASCII only
    value = template.same.get(name)
    return pa.nulls(size, field.type) if value is None else pa.array([value], field.type).take(_zeros(size))


def _zeros(size: int) -> Any:
    return pa.array(np.zeros(size, np.int8))
