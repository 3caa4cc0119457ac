"""`klamm topics config` and `klamm brokers config`: the values in force, where each comes from, and changing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from controller.cli.brokers import brokers
from controller.cli.options import example, output_option, pairs_of, timeout_option, url_option
from controller.cli.output import Column, emit, print_table
from controller.cli.topics import path_of, topics

if TYPE_CHECKING:
    from controller.cli.remote import Remote

VALUE_COLUMNS = (
    Column("NAME", lambda value: value["name"]),
    Column("VALUE", lambda value: value["value"]),
    Column("SOURCE", lambda value: value["source"]),
)

set_option = click.option("--set", "values", multiple=True, callback=pairs_of, metavar="KEY=VALUE", help="Override.")
unset_option = click.option("--unset", "unset", multiple=True, metavar="KEY", help="Remove an override.")


def register(group: click.Group) -> None:
    topics.add_command(topic_config)
    brokers.add_command(broker_config)


@click.command("config", epilog=example("klamm topics config orders --set unclean.leader.election.enable=true"))
@click.argument("name")
@set_option
@unset_option
@timeout_option
@url_option
@output_option
def topic_config(
    name: str, values: dict[str, str], unset: tuple[str, ...], timeout_ms: int, url: str | None, output: str
) -> None:
    """Show a topic's configuration, or change it first."""
    _configure(f"{path_of(name)}/config", values, unset, timeout_ms, url, output)


@click.command("config", epilog=example("klamm brokers config --set unclean.leader.election.enable=false"))
@click.argument("broker", metavar="[N]", type=click.IntRange(0), required=False)
@set_option
@unset_option
@timeout_option
@url_option
@output_option
def broker_config(
    broker: int | None, values: dict[str, str], unset: tuple[str, ...], timeout_ms: int, url: str | None, output: str
) -> None:
    """Show the configuration of broker N or, without N, of the whole cluster; or change it first."""
    path = "/v1/cluster/config" if broker is None else f"/v1/brokers/{broker}/config"
    _configure(path, values, unset, timeout_ms, url, output)


def _configure(
    path: str, values: Mapping[str, str], unset: tuple[str, ...], timeout_ms: int, url: str | None, output: str
) -> None:
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    if both := sorted(set(values) & set(unset)):
        raise click.UsageError(f"{both[0]} is both set and unset")
    body = {"values": {**values, **dict.fromkeys(unset)}}

    async def question(remote: Remote) -> Any:
        return (await remote.write(path, body, timeout_ms, "PATCH"))[1] if body["values"] else await remote.get(path)

    document = ask_cluster(url, question)
    items = document["values"]
    emit(
        output,
        document,
        lambda is_wide: print_table(VALUE_COLUMNS, items, is_wide=is_wide),
        [item["name"] for item in items],
    )
