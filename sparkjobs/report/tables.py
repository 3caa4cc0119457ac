"""Tables as markup; numbers stand to the right and sort by their value. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final

#: rows of a table that are shown; the rest is in the JSON and Parquet beside the page
ROWS_SHOWN: Final = 300


def worst(rows: Sequence[Any], how_bad: Callable[[Any], Any]) -> list[Any]:
    """As many as a page shows, in their own order."""
    chosen = sorted(range(len(rows)), key=lambda place: how_bad(rows[place]), reverse=True)[:ROWS_SHOWN]
    return [rows[place] for place in sorted(chosen)]


def row_of(*cells: str | tuple[float, str]) -> str:
    """A cell is its words, or a value and its words."""
    shown = (
        f"<td>{escape(cell)}</td>"
        if isinstance(cell, str)
        else f'<td class="n" data-v="{cell[0]}">{escape(cell[1])}</td>'
        for cell in cells
    )
    return f"<tr>{''.join(shown)}</tr>"


_CELL: Final = re.compile(r'<td( class="n")?')


def table_of(heads: Sequence[str], rows: Sequence[str], count: int) -> str:
    """`count` is how many there are, when not all are shown."""
    if not rows:
        return '<p class="soft">None.</p>'
    more = (
        f'<p class="soft">{count - len(rows)} more are in report.json beside this page.</p>'
        if count > len(rows)
        else ""
    )
    kinds = _CELL.findall(rows[0])
    head = "".join(f"<th{kind}>{escape(one)}</th>" for one, kind in zip(heads, kinds, strict=True))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>{more}'
