"""`klamm elect`: elections by hand."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING

import click

from controller.cli.options import example, output_option, timeout_option, url_option
from controller.cli.output import Item
from controller.cli.selection import PARTITIONS_PER_REQUEST, emit_outcomes, selected, selection_options

if TYPE_CHECKING:
    from controller.cli.remote import Remote


def register(group: click.Group) -> None:
    group.add_command(elect)


@click.command(short_help="Elect leaders by hand.", epilog=example("klamm elect --type preferred --all"))
@click.option("--type", "kind", type=click.Choice(["preferred", "unclean"]), required=True)
@selection_options
@timeout_option
@url_option
@output_option
def elect(
    kind: str,
    topic: str | None,
    partition: int | None,
    file: IO[bytes] | None,
    everything: bool,
    timeout_ms: int,
    url: str | None,
    output: str,
) -> None:
    """Elect the first replica (preferred) or, where nobody in sync is left, any that is online (unclean: data is lost).

    What needs no election is left as it is, which is no failure.
    """
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    names = selected(topic, partition, file, everything)
    starts = range(0, 1 if names is None else len(names), PARTITIONS_PER_REQUEST)
    pieces = [None if names is None else names[start : start + PARTITIONS_PER_REQUEST] for start in starts]

    async def question(remote: Remote) -> list[Item]:
        outcomes: list[Item] = []
        for piece in pieces:
            body = {"type": kind, "partitions": piece}
            outcomes += (await remote.write("/v1/elections", body, timeout_ms))[1]["partitions"]
        return outcomes

    sys.exit(emit_outcomes(output, ask_cluster(url, question)))
