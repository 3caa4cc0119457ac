"""What a report rests on: where the lines of each file went, what was not understood, what clocks were worth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparkjobs.clocks.skew import zone_hint
from sparkjobs.report.tables import row_of, table_of, worst
from sparkjobs.tables.silver import (
    BronzeFile,
    SilverCount,
    SilverQuarantine,
    SilverSkew,
)

#: lines in quarantine that a page quotes
_ODD_SHOWN = 50


class Input(NamedTuple):
    """Where the lines went."""

    counts: Sequence[SilverCount] = ()
    quarantine: Sequence[SilverQuarantine] = ()
    skew: Sequence[SilverSkew] = ()
    files: Sequence[BronzeFile] = ()


def accounting(read: Input) -> str:
    """Three tables; files that could not be read first."""
    odd = [row_of(one.reason, str(one.line_no), one.line[:200]) for one in read.quarantine[:_ODD_SHOWN]]
    return (
        _files(read)
        + (table_of(("not understood", "line", ""), odd, len(read.quarantine)) if odd else "")
        + (_clocks(read.skew) if read.skew else "")
    )


def _files(read: Input) -> str:
    troubles = {file.file_id: file.trouble or file.status for file in read.files}

    def is_whole(count: SilverCount) -> bool:
        return troubles.get(count.file_id, "read") == "read"

    rows = [
        row_of(
            one.path,
            *((n, str(n)) for n in (one.lines, one.events, one.continuations, one.duplicates, one.quarantined)),
            troubles.get(one.file_id, "read"),
        )
        for one in worst(sorted(read.counts, key=is_whole), lambda one: (not is_whole(one), one.quarantined))
    ]
    heads = ("file", "lines", "events", "continuations", "duplicates", "not understood", "as it was")
    return table_of(heads, rows, len(read.counts))


def _clocks(skew: Sequence[SilverSkew]) -> str:
    rows = [
        row_of(
            f"broker {one.broker}",
            (one.offset_ms, f"{one.offset_ms} ms"),
            "-" if one.err_ms is None else f"± {one.err_ms} ms",
            one.method,
            zone_hint(one) or "",
        )
        for one in worst(skew, lambda one: abs(one.offset_ms))
    ]
    return table_of(("clock of", "was ahead by", "known to", "from", ""), rows, len(skew))
