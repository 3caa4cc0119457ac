"""Rows of the rules about partitions, and rows in order. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

import msgspec

from sparkjobs.rules import moves, receipts, rules
from sparkjobs.rules.facts import Facts
from sparkjobs.tables.silver import Row, SilverEvent

#: columns that nearly tell rows apart
_HEAD: Final = 4
Answers = Mapping[str, Sequence[Row]]


def partition_rows(
    groups: Iterable[list[SilverEvent]],
    facts: Facts,
    only: Collection[str] = (*rules.OF_PARTITION, *moves.TABLES),
    said: Mapping[tuple[str, int], list[moves.Move]] = MappingProxyType({}),
) -> dict[str, list[Row]]:
    """What the rules about partitions say. `groups`: all events of a partition each; `only`: of these tables; `said`:
    moves that are no events."""
    tables: dict[str, list[Row]] = defaultdict(list)
    wanted = {name: rule for name, rule in rules.OF_PARTITION.items() if name in only}
    book, are_moves_asked = moves.MoveBook(facts), not {*moves.TABLES}.isdisjoint(only)
    done = set[tuple[str, int]]()
    for group in groups:
        found: dict[str, list[Any]] = {
            name: list(rule.rows([event for event in group if event.event in rule.events], facts))
            for name, rule in wanted.items()
        }
        if "leader_changes" in found:
            found["leader_changes"] = list(receipts.with_requests(found["leader_changes"], group, facts))
        for name, rows in found.items():
            tables[name] += rows
        if wanted.keys() >= {"leader_changes", "isr_timeline"}:
            tables["flapping"] += rules.flapping_of(found["leader_changes"], found["isr_timeline"])
        if are_moves_asked:
            key = (str(group[0].topic), group[0].partition or 0)
            own = [move for event in group if (move := moves.move_in(event, facts)) is not None]
            book.take(*key, [*own, *said.get(key, ())])
            done.add(key)
    if are_moves_asked:
        for key in said.keys() - done:
            book.take(*key, said[key])
        tables.update(book.rows())
    return tables


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """By all columns in order, `None` first."""
    rows = list(rows)
    if len(rows) < 2:
        return rows
    first = msgspec.structs.fields(rows[0])[:_HEAD]
    if any(column.default is None and None in set(map(attrgetter(column.name), rows)) for column in first):
        return sorted(rows, key=row_key)
    heads = list(map(attrgetter(*[column.name for column in first]), rows))
    order = sorted(range(len(rows)), key=heads.__getitem__)
    if len(set(heads)) == len(heads):
        return [rows[place] for place in order]
    found: list[Row] = []
    for _, places in groupby(order, key=heads.__getitem__):
        alike = [rows[place] for place in places]
        found += alike if len(alike) == 1 else sorted(alike, key=row_key)
    return found


def row_key(row: Row) -> tuple[Any, ...]:
    """Compares with that of any row of the same table."""
    values: Callable[[str], Any] = row.__getattribute__
    return tuple((value is not None, value) for value in map(values, row.__struct_fields__))
