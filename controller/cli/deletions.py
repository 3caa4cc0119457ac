"""`klamm topics delete`, and what is being deleted."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from controller.cli.options import example, output_option, show_repeatedly, timeout_option, url_option, watch_option
from controller.cli.output import Column, Item, Progress, emit, emit_items, print_facts
from controller.cli.topics import path_of, topics

if TYPE_CHECKING:
    from controller.cli.remote import Remote

POLL_INTERVAL_MS: Final = 200

DELETION_COLUMNS = (
    Column("TOPIC", lambda deletion: deletion["topic"]),
    Column("STATUS", lambda deletion: deletion["status"]),
    Column("REPLICAS", lambda deletion: deletion["replicas"], is_number=True),
    Column("DELETED", lambda deletion: deletion["replicas_deleted"], is_number=True),
    Column("FAILURES", lambda deletion: deletion["failures"], is_number=True),
    Column("WAITS-FOR", lambda deletion: deletion["waits_for"] or "-"),
)


def register(group: click.Group) -> None:
    topics.add_command(delete)
    topics.add_command(deletions)


@click.command(epilog=example("klamm topics deletions"))
@url_option
@output_option
@watch_option
def deletions(url: str | None, output: str, watch: bool) -> None:
    """List the topics that are being deleted, and what each waits for."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    def show() -> int:
        items = ask_cluster(url, lambda remote: remote.items("/v1/deletions"))
        emit_items(output, items, DELETION_COLUMNS, lambda deletion: deletion["topic"])
        return 0

    sys.exit(show_repeatedly(show, watch=watch))


@click.command(epilog=example("klamm topics delete orders --wait"))
@click.argument("name")
@click.option("--abandon-offline", is_flag=True, help="Do not wait for brokers that are gone.")
@click.option("--wait", is_flag=True, help="Until it is gone; Ctrl-C ends the waiting, not the deletion.")
@timeout_option
@url_option
@output_option
def delete(name: str, abandon_offline: bool, wait: bool, timeout_ms: int, url: str | None, output: str) -> None:
    """Delete a topic. The deletion goes on by itself; `klamm topics deletions` shows what it waits for."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    deadline = time.monotonic() + timeout_ms / 1_000
    query = "?abandon_offline=true" if abandon_offline else ""

    async def question(remote: Remote) -> Any:
        return (await remote.write(f"{path_of(name)}{query}", {}, timeout_ms, "DELETE"))[1]

    document = ask_cluster(url, question)
    with Progress() as progress:
        while wait and document["status"] != "deleted" and time.monotonic() < deadline:
            why = f", waits for: {document['waits_for']}" if document["waits_for"] else ""
            progress.say(f"{document['replicas_deleted']} of {document['replicas']} replicas deleted{why}")
            time.sleep(POLL_INTERVAL_MS / 1_000)
            document = ask_cluster(url, partial(_progress, document))
    emit(output, document, lambda _: _print_deletion(document), [name])
    sys.exit(1 if wait and document["status"] != "deleted" else 0)


async def _progress(before: Item, remote: Remote) -> Item:
    """Of this deletion; a cluster that is changing its controller is asked again."""
    from controller.cli.errors import RefusedError  # noqa: PLC0415

    try:
        listed = await remote.items("/v1/deletions")
    except RefusedError as error:
        if error.status != 503:
            raise
        return before
    done = {**before, "status": "deleted", "waits_for": None, "replicas_deleted": before["replicas"]}
    return next((one for one in listed if one["topic"] == before["topic"]), done)


def _print_deletion(deletion: Item) -> None:
    is_gone = deletion["status"] == "deleted"
    status = "deleted: there is no such topic now" if is_gone else deletion["status"]
    facts = [("topic", deletion["topic"], ""), ("status", status, "")]
    if not is_gone:
        facts.append(("replicas", f"{deletion['replicas_deleted']} of {deletion['replicas']} deleted", ""))
    if deletion["waits_for"] is not None:
        facts.append(("waits for", deletion["waits_for"], "yellow"))
    print_facts(facts)
