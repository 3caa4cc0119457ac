"""Mutants of the tables in `controller/core/states.py`: each row removed, each of its things left out, and one more
thing in it. The stories under `tests/scenarios` kill them, judged by `tests/core/rows.py`.

They are tables and no patches: each is in force while all stories are told once more, in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from controller.core import states
from controller.core.states import NEVER_MADE, Cost, Item, Receivers, TellingWithoutMove, Tells
from tests.core.rows import Row, judging, name_of
from tests.core.test_states import PARTITION_SOURCES, REPLICA_SOURCES
from tests.scenarios.test_scenarios import DASHES, STORIES, transcript_of

#: the kind of the mutation, the row, and its new content (None: nothing)
Mutant = tuple[str, Row, Cost | None]

_TABLES: Final[tuple[dict[Any, Cost], ...]] = (states.PARTITION_MOVES, states.REPLICA_MOVES, states.WITHOUT_A_MOVE)
_TOLD: Final = (Item.LEADER_AND_ISR, Item.UPDATE_METADATA, Item.STOP, Item.DELETE)


def mutants() -> Iterator[Mutant]:
    """Of every row."""
    for table in _TABLES:
        for row, cost in table.items():
            if not isinstance(row, TellingWithoutMove):
                yield "removed", row, None
            for place in range(len(cost.writes)):
                writes = (*cost.writes[:place], *cost.writes[place + 1 :])
                yield "left out", row, msgspec.structs.replace(cost, writes=writes)
            for place in range(len(cost.tells)):
                tells = (*cost.tells[:place], *cost.tells[place + 1 :])
                yield "left out", row, msgspec.structs.replace(cost, tells=tells)
            more = next(one for one in _TOLD if one not in {each.item for each in cost.tells})
            tells = (*cost.tells, Tells(more, Receivers.ALL))
            yield "added", row, msgspec.structs.replace(cost, tells=tells)


def survivors() -> Iterator[str]:
    """Those that nothing shows, in words; empty, if the tables are held."""
    for kind, row, cost in mutants():
        with in_force(row, cost):
            if complaint() is None:
                yield f"{name_of(row)}: {kind}"


@contextmanager
def in_force(row: Row, cost: Cost | None) -> Iterator[None]:
    """Meanwhile the tables have this row instead, or none."""
    table = next(one for one in _TABLES if row in one)
    before = dict(table)
    if cost is None:
        del table[row]
    else:
        table[row] = cost
    try:
        yield
    finally:
        table.clear()
        table.update(before)


def complaint() -> str | None:
    """The first thing that is wrong with the tables, by all stories; None if they are exact."""
    with judging() as judge:
        for path in STORIES:
            script, _, expected = path.read_text(encoding="utf-8").partition(DASHES)
            try:
                happened = transcript_of(script)
            except (AssertionError, LookupError) as trouble:  # a command does not find its subject any more
                return f"{path.stem} does not go on: {type(trouble).__name__}"
            if happened.splitlines() != expected.strip().splitlines():
                return f"{path.stem} goes otherwise"
            if judge.outside:
                return f"{path.stem}: {judge.outside[0]}"
    for table in _TABLES:
        for row, cost in table.items():
            for item in (*cost.writes, *(one.item for one in cost.tells)):
                if (row, item) not in judge.carried:
                    return f"{name_of(row)}: nothing shows {item.value}"
    rows = {*states.PARTITION_MOVES, *states.REPLICA_MOVES}
    if judge.made != rows - NEVER_MADE:
        return f"made and in no row, or never made: {judge.made ^ (rows - NEVER_MADE)}"
    sources: dict[Any, Any] = {**PARTITION_SOURCES, **REPLICA_SOURCES}
    kafkas = {(source, target) for target, some in sources.items() for source in some}
    return None if rows == kafkas else f"not Kafka's: {rows ^ kafkas}"
