"""`klamm drain` and `klamm undrain`: take leaderships off a broker without stopping it, and let it lead again."""

from __future__ import annotations

import sys
from typing import Any

import click

from controller.cli.options import example, output_option, timeout_option, url_option
from controller.cli.output import Item, emit

REMAINING_NAMED_MAX = 5


def register(group: click.Group) -> None:
    group.add_command(drain)
    group.add_command(undrain)


@click.command(short_help="Move all leaderships off broker N.", epilog=example("klamm drain 2"))
@click.argument("broker", metavar="N", type=click.IntRange(0))
@click.option("--show", is_flag=True, help="Only say how far it is.")
@timeout_option
@url_option
@output_option
def drain(broker: int, show: bool, timeout_ms: int, url: str | None, output: str) -> None:
    """Move all leaderships off broker N, and keep them off until it is undrained or registers anew.

    Partitions that nobody else can lead stay where they are; then the exit code is 1.
    """
    document = _asked(broker, None if show else "POST", timeout_ms, url)
    emit(output, document, lambda _: click.echo(_text(document)), [broker])
    sys.exit(1 if document["remaining_count"] else 0)


@click.command(short_help="Let broker N lead again.", epilog=example("klamm undrain 2"))
@click.argument("broker", metavar="N", type=click.IntRange(0))
@timeout_option
@url_option
@output_option
def undrain(broker: int, timeout_ms: int, url: str | None, output: str) -> None:
    """Let broker N lead again; `klamm elect --type preferred --all` gives it back what it should lead."""
    document = _asked(broker, "DELETE", timeout_ms, url)
    emit(output, document, lambda _: click.echo(_text(document)), [broker])


def _asked(broker: int, method: str | None, timeout_ms: int, url: str | None) -> dict[str, Any]:
    from controller.cli.remote import Remote, ask_cluster  # noqa: PLC0415

    path = f"/v1/brokers/{broker}/drain"

    async def question(remote: Remote) -> Any:
        return await remote.get(path) if method is None else (await remote.write(path, {}, timeout_ms, method))[1]

    document: dict[str, Any] = ask_cluster(url, question)
    return document


def _text(drain: Item) -> str:
    broker, count = drain["broker_id"], drain["remaining_count"]
    if not drain["draining"]:
        return f"broker {broker} is not drained; it leads {_counted(drain['leaders'])}"
    why = "shuts down" if drain["is_shutdown"] else f"is drained, until `klamm undrain {broker}`"
    text = f"broker {broker} {why}; it leads {_counted(drain['leaders'])}"
    if alone := drain["leaders"] - count:
        text += f", {alone} of them without another replica"
    if not count:
        return text
    named = ", ".join(f"{one['topic']}-{one['partition']}" for one in drain["remaining"][:REMAINING_NAMED_MAX])
    more = "" if count <= REMAINING_NAMED_MAX else f" and {count - REMAINING_NAMED_MAX} more"
    return f"{text}; nobody else can lead {named}{more} now"


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'' if partitions == 1 else 's'}"
