"""`klamm brokers`: the brokers, their load, and forgetting one that is gone."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from controller.cli.options import (
    example,
    output_option,
    show_repeatedly,
    timeout_option,
    url_option,
    watch_option,
)
from controller.cli.output import Column, Item, RefusedError, emit, emit_items

if TYPE_CHECKING:
    from controller.cli.remote import Remote


def address_of(broker: Item) -> str:
    """Of a broker that only assignments name, nothing but its id is known."""
    return "-" if broker["host"] is None else f"{broker['host']}:{broker['port']}"


BROKER_COLUMNS = (
    Column("BROKER", lambda broker: broker["id"], is_number=True),
    Column("STATE", lambda broker: broker["state"]),
    Column("ROLE", lambda broker: broker.get("role", "")),
    Column("LEADERS", lambda broker: broker["leaders"], is_number=True),
    Column("REPLICAS", lambda broker: broker["replicas"], is_number=True),
    Column("ADDRESS", address_of),
    Column("RACK", lambda broker: broker["rack"] or "-", is_wide=True),
    Column("EPOCH", lambda broker: broker["broker_epoch"], is_number=True, is_wide=True),
    Column("ENDPOINTS", lambda broker: ",".join(broker["endpoints"]), is_wide=True),
)


def with_roles(brokers: Iterable[Item], controller: Item) -> list[Item]:
    """Returns the brokers, the controller marked."""
    return [{**broker, "role": "controller" if broker["id"] == controller["broker_id"] else ""} for broker in brokers]


def register(group: click.Group) -> None:
    group.add_command(brokers)


@click.group()
def brokers() -> None:
    """The brokers of the cluster."""


@brokers.command("list", epilog=example("klamm brokers list -o wide"))
@url_option
@output_option
@watch_option
def list_brokers(url: str | None, output: str, watch: bool) -> None:
    """List the brokers; those that are gone stay listed."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    async def question(remote: Remote) -> Any:
        controller = await remote.get("/v1/controller")
        return with_roles((await remote.get("/v1/brokers"))["items"], controller)

    def show() -> int:
        emit_items(output, ask_cluster(url, question), BROKER_COLUMNS, lambda broker: broker["id"])
        return 0

    sys.exit(show_repeatedly(show, watch=watch))


@brokers.command(epilog=example("klamm brokers forget 4"))
@click.argument("broker", metavar="N", type=click.IntRange(0))
@timeout_option
@url_option
@output_option
def forget(broker: int, timeout_ms: int, url: str | None, output: str) -> None:
    """Forget broker N, which is gone for good: it is listed no more. It must be in no assignment."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    async def question(remote: Remote) -> Any:
        answer = (await remote.write(f"/v1/brokers/{broker}", {}, timeout_ms, "DELETE"))[1]
        if not (answer.get("was_known", True) or remote.has_repeated):
            raise RefusedError(404, "BROKER_ID_NOT_REGISTERED", f"there is no broker {broker}")
        return answer

    document: dict[str, Any] = ask_cluster(url, question)
    emit(output, document, lambda _: click.echo(f"broker {broker} is forgotten"), [broker])
