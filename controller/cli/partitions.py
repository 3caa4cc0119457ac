"""`klamm partitions`: all of them, or those that are not as they should be. Nothing is cut short."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from controller.cli.options import example, output_option, show_repeatedly, url_option, watch_option
from controller.cli.output import Column, Item, emit_items

if TYPE_CHECKING:
    from controller.cli.remote import Remote


def ids_text(ids: list[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def number_text(number: int) -> str:
    """Of a partition that was never led there is no such number."""
    return "-" if number < 0 else str(number)


def name_of(partition: Item) -> str:
    return f"{partition['topic']}-{partition['partition']}"


PARTITION_COLUMNS = (
    Column("PARTITION", name_of),
    Column("STATE", lambda partition: partition["state"]),
    Column("LEADER", lambda partition: "none" if partition["leader"] < 0 else partition["leader"], is_number=True),
    Column("EPOCH", lambda partition: number_text(partition["leader_epoch"]), is_number=True),
    Column("ISR", lambda partition: ids_text(partition["isr"])),
    Column("REPLICAS", lambda partition: ids_text(partition["replicas"])),
    Column("ADDING", lambda partition: ids_text(partition["adding"]), is_wide=True),
    Column("REMOVING", lambda partition: ids_text(partition["removing"]), is_wide=True),
    Column("VERSION", lambda partition: number_text(partition["version"]), is_number=True, is_wide=True),
    Column(
        "CONTROLLER-EPOCH",
        lambda partition: number_text(partition["controller_epoch"]),
        is_number=True,
        is_wide=True,
    ),
)


def register(group: click.Group) -> None:
    group.add_command(partitions)


@click.command(
    short_help="List partitions, or those in a given state.", epilog=example("klamm partitions --offline -o name")
)
@click.option("--offline", "states", flag_value="offline", multiple=True, help="Those without a live leader.")
@click.option("--new", "states", flag_value="new", multiple=True, help="Those that were never led (NewPartition).")
@click.option(
    "--under-replicated", "states", flag_value="under-replicated", multiple=True, help="Those with a replica behind."
)
@click.option(
    "--not-preferred", "states", flag_value="not-preferred", multiple=True, help="Those not led by their first replica."
)
@click.option("--topic", help="Of this topic only.")
@click.option("--broker", type=int, help="With a replica on this broker only.")
@url_option
@output_option
@watch_option
def partitions(
    states: tuple[str, ...], topic: str | None, broker: int | None, url: str | None, output: str, watch: bool
) -> None:
    """List partitions: all, or those to which any of the given states applies."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    wanted = {"topic": topic, "broker": broker}
    query: dict[str, object] = {key: value for key, value in wanted.items() if value is not None}

    async def question(remote: Remote) -> Any:
        if topic is not None:
            await remote.get(f"/v1/topics/{quote(topic, safe='')}")  # that it is there
        if broker is not None:
            await remote.get(f"/v1/brokers/{broker}")
        found: dict[tuple[str, int], Item] = {}
        for filters in [{**query, "state": state} for state in sorted(set(states))] or [query]:
            for partition in await remote.items("/v1/partitions", filters):
                found[partition["topic"], partition["partition"]] = partition
        return [partition for _, partition in sorted(found.items())]

    def show() -> int:
        emit_items(output, ask_cluster(url, question), PARTITION_COLUMNS, name_of)
        return 0

    sys.exit(show_repeatedly(show, watch=watch))
