"""Lines to staged rows, on the workers: the local engine's own reader, over Arrow batches.

A line's meaning is in one place, `sparkjobs.parse.lines`, so both engines read alike whatever a line looks like. Spark
finds the lines and hands them out, a block of a file after the other; their numbers follow from how many stand above
the block, which the survey has counted. Workers need pyarrow and this package.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from sparkjobs.arrow import arrow_type
from sparkjobs.files import BLOCK_BYTES
from sparkjobs.local.forms import Forms, grouped
from sparkjobs.parse.lines import CONTINUES, LineReader, is_trace_head
from sparkjobs.schemas import LINE_KEPT, BronzeFile, SilverEvent, columns_of
from sparkjobs.spark.columns import Staging

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
