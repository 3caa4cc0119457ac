"""`klamm explain`, `klamm what-if` and `klamm history`: the reasons of the present, predictions, and past terms."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from controller.cli.logs import AtTimeCommand
from controller.cli.options import example, output_option, partition_of, show_repeatedly, url_option, watch_option
from controller.cli.output import (
    Column,
    Item,
    columns_for,
    emit,
    emit_document,
    emit_items,
    print_facts,
    print_table,
    time_text,
)
from controller.cli.partitions import ids_text, name_of

if TYPE_CHECKING:
    from controller.cli.remote import Remote


def _phase_text(phase: str, term: Item) -> str:
    """Returns how long the phase itself took: the record has when each was over, counted from the same start."""
    over = list(term["phases"].items())
    before_ms = dict(zip([name for name, _ in over], [0.0, *(at_ms for _, at_ms in over)], strict=False))
    return f"{term['phases'][phase] - before_ms[phase]:.1f}" if phase in term["phases"] else "-"


def _took_text(term: Item) -> str:
    """From the vacant seat to the last acknowledgement."""
    return f"{max(term['phases'].values()):.1f}" if term["phases"] else "-"


#: of a failover, in their order; whether each is shown with -o wide only
PHASES: Final = dict.fromkeys(("claimed", "loaded", "decided", "committed", "told", "acknowledged"), True)
TERM_COLUMNS = (
    Column("EPOCH", lambda term: term["controller_epoch"], is_number=True),
    Column("CONTROLLER", lambda term: term["broker_id"], is_number=True),
    Column("FROM", lambda term: time_text(term["from_ms"])),
    Column("TO", lambda term: "now" if term["to_ms"] is None else time_text(term["to_ms"])),
    Column("WHY-IT-ENDED", lambda term: term["why"] or "-"),
    Column("TOOK-MS", _took_text, is_number=True),
    *(
        Column(f"{phase.upper()}-MS", partial(_phase_text, phase), is_number=True, is_wide=is_wide)
        for phase, is_wide in PHASES.items()
    ),
)
#: so many partitions are named; -o wide and json name all
NAMED_MAX: Final = 20
MOVE_COLUMNS = (
    Column("PARTITION", name_of),
    Column("LEADER-NOW", lambda move: move["source"], is_number=True),
    Column("LEADER-THEN", lambda move: move["target"], is_number=True),
    Column("ISR-THEN", lambda move: ids_text(move["isr"])),
)


def register(group: click.Group) -> None:
    for command in (explain, what_if, history):
        group.add_command(command)


@click.command(
    cls=AtTimeCommand,
    jobs_name="explain",
    short_help="Why a partition is led as it is.",
    epilog=example("klamm explain orders-0"),
)
@click.argument("partition", metavar="TOPIC-PARTITION", callback=partition_of)
@url_option
@output_option
@watch_option
def explain(partition: tuple[str, int], url: str | None, output: str, watch: bool) -> None:
    """Tell a partition's story: who led when and why, who was eligible and who was not.

    Of brokers that keep records also how far each log is, and what an unclean election lost.

    With --at TIME RECORDS...: as of that time, from ZooKeeper's or KRaft's own files (explain --at end --help).
    """
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    topic, number = partition
    path = f"/v1/partitions/{quote(topic, safe='')}/{number}"

    async def asked(remote: Remote) -> Any:
        story, logs = await remote.get(f"{path}/story"), await remote.get(f"{path}/log")
        kept = {"records_lost": logs["records_lost"], "logs": logs["replicas"], "truncations": logs["truncations"]}
        return {**story, **(kept if logs["kept"] else {})}

    def show() -> int:
        emit_document(output, ask_cluster(url, asked), [f"{topic}-{number}"])
        return 0

    sys.exit(show_repeatedly(show, watch=watch))


@click.group("what-if", short_help="What would happen?")
def what_if() -> None:
    """What would happen, decided by the same code; nothing is written."""


@what_if.command(cls=AtTimeCommand, jobs_name="what-if kill", epilog=example("klamm what-if kill 2 3"))
@click.argument("brokers", metavar="N...", type=click.IntRange(0), nargs=-1, required=True)
@url_option
@output_option
def kill(brokers: tuple[int, ...], url: str | None, output: str) -> None:
    """If these brokers died now, all at once: which partitions would move, and which would go offline?

    With --at TIME RECORDS...: at that time, from ZooKeeper's or KRaft's own files (what-if kill --at end --help).
    """
    from controller.cli.remote import READ_TIMEOUT_MS, ask_cluster  # noqa: PLC0415

    async def question(remote: Remote) -> Any:
        return (await remote.write("/v1/what-if", {"kill": sorted(set(brokers))}, READ_TIMEOUT_MS))[1]

    document = ask_cluster(url, question)
    emit(output, document, lambda wide: _print_prediction(document, is_wide=wide), brokers)


def _print_prediction(document: Item, *, is_wide: bool) -> None:
    """The counts first; then the partitions concerned, the worst first."""
    dead = ids_text(document["kill"])
    offline, alone, moves = document["offline"], document["last_in_sync"], document["moves"]
    print_facts(
        [
            ("killed", dead, ""),
            ("offline", _count_text(len(offline), "nobody in sync is left to lead"), "red" if offline else "green"),
            ("last in sync", _count_text(len(alone), "one in-sync replica is left"), "yellow" if alone else "green"),
            ("leader moves", _count_text(len(moves), "another broker leads"), ""),
            ("unclean", _count_text(document["unclean_elections"], "led by a replica that was not in sync"), ""),
            (
                "work",
                f"{document['state_writes']} states written in {document['transactions']} transactions, "
                f"{document['requests']} requests to brokers",
                "",
            ),
        ]
    )
    for title, names in (("offline", offline), ("last in sync", alone)):
        if names:
            shown = names if is_wide else names[:NAMED_MAX]
            click.echo(f"\n{title}: {' '.join(shown)}{_more_text(len(names) - len(shown))}")
    if moves:
        shown = moves if is_wide else moves[:NAMED_MAX]
        click.echo()
        print_table(MOVE_COLUMNS, shown, is_wide=is_wide)
        click.echo(_more_text(len(moves) - len(shown)).strip(), nl=len(moves) > len(shown))
    if document["state_moves"]:
        click.echo()
        print_table(columns_for(document["state_moves"]), document["state_moves"], is_wide=is_wide)


def _count_text(count: int, meaning: str) -> str:
    return f"{count} partition{'' if count == 1 else 's'}" + (f": {meaning}" if count else "")


def _more_text(count: int) -> str:
    return f" and {count} more; -o wide names all" if count else ""


@click.command(short_help="The controllers of the past.", epilog=example("klamm history -o wide"))
@url_option
@output_option
def history(url: str | None, output: str) -> None:
    """Who was the controller from when to when, why it ended, and how long each phase of the failover took."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    def name(term: Item) -> object:
        return term["controller_epoch"]

    document = ask_cluster(url, lambda remote: remote.get("/v1/controller/history"))
    emit_items(output, document["items"], TERM_COLUMNS, name)
