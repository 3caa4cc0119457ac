"""Prints the tables of `controller/core/states.py` into the marked region of `docs/state-machines.md`.

`python -m tests.tables` rewrites the page; with `--check` it only says whether the page is current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from controller.core.states import (
    PARTITION_MOVES,
    REPLICA_MOVES,
    WITHOUT_A_MOVE,
    Cost,
    PartitionStatus,
    ReplicaStatus,
)

PAGE = Path(__file__).parents[1] / "docs" / "state-machines.md"
BEGIN, END = "<!-- tables -->", "<!-- /tables -->"

Moves = Mapping[tuple[PartitionStatus, PartitionStatus], Cost] | Mapping[tuple[ReplicaStatus, ReplicaStatus], Cost]


def tables() -> str:
    """All tables as Markdown."""
    partitions = "\n".join(_rows("Partition", PARTITION_MOVES))
    replicas = "\n".join(_rows("Replica", REPLICA_MOVES))
    return f"{partitions}\n\n{replicas}\n\n" + "\n".join(_without())


def page_with_tables(page: str) -> str:
    """The page with its marked region made new."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no region from {BEGIN} to {END}")
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def _rows(title: str, moves: Moves) -> Iterator[str]:
    yield f"| {title}: from | to | writes | tells |"
    yield "|---|---|---|---|"
    for (source, target), cost in moves.items():
        yield f"| {source.value} | {target.value} | {_said(cost)} |"


def _without() -> Iterator[str]:
    yield "| Without a move | writes | tells |"
    yield "|---|---|---|"
    for why, cost in WITHOUT_A_MOVE.items():
        yield f"| {why.value} | {_said(cost)} |"


def _said(cost: Cost) -> str:
    writes = ", ".join(one.value for one in cost.writes)
    tells = ", ".join(f"{one.item.value} ({one.to.value})" for one in cost.tells)
    return f"{writes or '-'} | {tells or '-'}"


def main(arguments: list[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    current = page_with_tables(page)
    if arguments not in ([], ["--check"]):
        raise SystemExit("usage: python -m tests.tables [--check]")
    if arguments and current != page:
        raise SystemExit(f"the tables in {PAGE.name} are stale: python -m tests.tables")
    if current != page:
        PAGE.write_text(current, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
