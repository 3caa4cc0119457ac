"""Which partitions a command is about, in Kafka's words, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import IO, Any, Final, TypeVar

import click

from controller.cli.output import Column, Item, emit, print_table
from controller.cli.partitions import name_of

#: a body of the API has at most 1 MiB
PARTITIONS_PER_REQUEST: Final = 2_000
#: not done, and nothing is wrong
NEEDLESS: Final = ("NONE", "ELECTION_NOT_NEEDED", "NO_REASSIGNMENT_IN_PROGRESS")

OUTCOME_COLUMNS = (
    Column("PARTITION", name_of),
    Column("RESULT", lambda outcome: "done" if outcome["code"] == "NONE" else outcome["code"]),
    Column("DETAIL", lambda outcome: outcome["detail"].removeprefix(f"{name_of(outcome)}: ") or "-"),
)

_F = TypeVar("_F", bound=Callable[..., Any])


def selection_options(function: _F) -> _F:
    """--topic and --partition, --file, or --all."""
    for option in (
        click.option("--all", "everything", is_flag=True, help="All partitions that need it."),
        click.option("--file", type=click.File("rb"), help="Those that Kafka's JSON file names; - is standard input."),
        click.option("--partition", type=click.IntRange(0), help="Its number."),
        click.option("--topic", help="One partition: its topic."),
    ):
        function = option(function)
    return function


def selected(
    topic: str | None, partition: int | None, file: IO[bytes] | None, everything: bool
) -> list[dict[str, Any]] | None:
    """The partitions by topic and number; None: all."""
    from controller.cli.plans import names_in  # noqa: PLC0415

    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition go together")
    if (topic is not None) + (file is not None) + everything != 1:
        raise click.UsageError("give one of: --topic with --partition, --file, or --all")
    if file is not None:
        return names_in(file.read(), file.name)
    return None if everything else [{"topic": topic, "partition": partition}]


def emit_outcomes(output: str, outcomes: Sequence[Item]) -> int:
    """Print what became of each partition; the exit code: 1 when one was refused."""
    items = sorted(outcomes, key=lambda one: (one["topic"], one["partition"]))
    document = {"partitions": items}
    emit(output, document, lambda is_wide: print_table(OUTCOME_COLUMNS, items, is_wide=is_wide), map(name_of, items))
    if not items and output in ("table", "wide"):
        click.echo("nothing to do", err=True)
    return 0 if all(one["code"] in NEEDLESS for one in items) else 1
