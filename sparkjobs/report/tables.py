"""Tables as markup; numbers stand to the right and sort by their value. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Final


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
        f'<p class="soft">{count - len(rows)} more are in the files beside this page.</p>' if count > len(rows) else ""
    )
    kinds = _CELL.findall(rows[0])
    head = "".join(f"<th{kind}>{escape(one)}</th>" for one, kind in zip(heads, kinds, strict=True))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>{more}'
