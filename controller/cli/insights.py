"""`klamm explain`, `klamm what-if` and `klamm history`: the reasons of the present, predictions, and past terms."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from controller.cli.logs import AtTimeCommand
from controller.cli.options import example, output_option, partition_of, show_repeatedly, url_option, watch_option
from controller.cli.output import Column, Item, emit_document, emit_items

if TYPE_CHECKING:
    from controller.cli.remote import Remote

TERM_COLUMNS = (
    Column("EPOCH", lambda term: term["controller_epoch"], is_number=True),
    Column("CONTROLLER", lambda term: term["broker_id"], is_number=True),
    Column("FROM", lambda term: time_text(term["from_ms"])),
    Column("TO", lambda term: "now" if term["to_ms"] is None else time_text(term["to_ms"])),
    Column("WHY-IT-ENDED", lambda term: term["why"] or "-"),
    Column("PHASES-MS", lambda term: _phases_text(term["phases"])),
)


def register(group: click.Group) -> None:
    for command in (explain, what_if, history):
        group.add_command(command)


def time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _phases_text(phases: Item) -> str:
    return ", ".join(f"{phase} {took_ms:.1f}" for phase, took_ms in phases.items()) or "-"


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

    emit_document(output, ask_cluster(url, question), brokers)


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
