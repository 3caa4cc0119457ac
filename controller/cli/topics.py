"""`klamm topics`: list, describe, create, grow and delete; `configs.py` adds the configuration."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from controller.cli.options import (
    assignment_of,
    example,
    output_option,
    pairs_of,
    show_repeatedly,
    timeout_option,
    url_option,
    watch_option,
)
from controller.cli.output import Column, Item, Progress, RefusedError, emit, emit_items, print_facts, print_table
from controller.cli.partitions import PARTITION_COLUMNS

if TYPE_CHECKING:
    from controller.cli.remote import Remote


def state_of(topic: Item) -> str:
    """Returns the worst that is true of any of its partitions."""
    worst_first = ("offline", "new", "under_replicated", "not_preferred")
    return next((state.replace("_", "-") for state in worst_first if topic[state]), "online")


TOPIC_COLUMNS = (
    Column("TOPIC", lambda topic: topic["name"]),
    Column("STATE", state_of),
    Column("PARTITIONS", lambda topic: topic["partitions"], is_number=True),
    Column("REPLICAS", lambda topic: topic["replication_factor"], is_number=True),
    Column("OFFLINE", lambda topic: topic["offline"], is_number=True),
    Column("NEW", lambda topic: topic["new"], is_number=True, is_wide=True),
    Column("UNDER-REPLICATED", lambda topic: topic["under_replicated"], is_number=True),
    Column("NOT-PREFERRED", lambda topic: topic["not_preferred"], is_number=True, is_wide=True),
    Column("TOPIC-ID", lambda topic: topic["topic_id"] or "-", is_wide=True),
)


def path_of(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"


def register(group: click.Group) -> None:
    topics.add_command(delete)
    topics.add_command(deletions)
    group.add_command(topics)


@click.group()
def topics() -> None:
    """The topics of the cluster."""


@topics.command("list", epilog=example("klamm topics list -o name"))
@url_option
@output_option
@watch_option
def list_topics(url: str | None, output: str, watch: bool) -> None:
    """List the topics, each with the worst that is true of its partitions."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    def show() -> int:
        items = ask_cluster(url, lambda remote: remote.items("/v1/topics"))
        emit_items(output, items, TOPIC_COLUMNS, lambda topic: topic["name"])
        return 0

    sys.exit(show_repeatedly(show, watch=watch))


@topics.command(epilog=example("klamm topics describe orders"))
@click.argument("name")
@url_option
@output_option
@watch_option
def describe(name: str, url: str | None, output: str, watch: bool) -> None:
    """Describe a topic and all its partitions."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    def show() -> int:
        _emit_topic(output, ask_cluster(url, lambda remote: _described(remote, name)))
        return 0

    sys.exit(show_repeatedly(show, watch=watch))


async def _described(remote: Remote, name: str) -> dict[str, Any]:
    path = path_of(name)
    return {"topic": await remote.get(path), "partitions": await remote.items(f"{path}/partitions")}


def _emit_topic(output: str, document: dict[str, Any]) -> None:
    def table(is_wide: bool) -> None:
        topic = document["topic"]
        counts = f"{topic['partitions']}, each with {topic['replication_factor']} replicas"
        state = state_of(topic)
        print_facts(
            [
                ("topic", topic["name"], ""),
                ("topic id", topic["topic_id"] or "-", ""),
                ("partitions", counts, ""),
                ("state", state, state),
            ]
        )
        click.echo()
        print_table(PARTITION_COLUMNS, document["partitions"], is_wide=is_wide)

    emit(output, document, table, [document["topic"]["name"]])


@topics.command(epilog=example("klamm topics create orders --partitions 6 --replication-factor 3"))
@click.argument("name")
@click.option("--partitions", type=int, help="How many partitions; default: the controller's num.partitions.")
@click.option("--replication-factor", type=int, help="How many replicas each; default: its default.replication.factor.")
@click.option("--assignment", callback=assignment_of, help="Or who has what: 1:2,2:3 (partitions by comma).")
@click.option("--config", "configs", multiple=True, callback=pairs_of, help="key=value; may be given several times.")
@timeout_option
@url_option
@output_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    assignment: list[list[int]] | None,
    configs: dict[str, str],
    timeout_ms: int,
    url: str | None,
    output: str,
) -> None:
    """Create a topic. If it is there already and just so, nothing is changed; a failover meanwhile is waited out."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    if assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--assignment says it all: leave out --partitions and --replication-factor")
    body: dict[str, Any] = {"name": name, "configs": configs}
    if assignment is None:
        counts = {"partitions": partitions, "replication_factor": replication_factor}
        body |= {key: value for key, value in counts.items() if value is not None}
    else:
        body["assignment"] = {str(number): replicas for number, replicas in enumerate(assignment)}
    status, document = ask_cluster(url, lambda remote: _made(remote, "/v1/topics", body, name, timeout_ms))
    if output in ("table", "wide"):
        click.echo(f"created {name}" if status == 201 else f"{name} is there already, just so: nothing was changed")
        click.echo()
    _emit_topic(output, document)


async def _made(remote: Remote, path: str, body: object, name: str, timeout_ms: int) -> tuple[int, dict[str, Any]]:
    """Writes, then reads the topic."""
    status, topic = await remote.write(path, body, timeout_ms)
    page = await remote.get(f"{path_of(name)}/partitions?limit=10000", accept=(200, 404))
    return status, {"topic": topic, "partitions": page.get("items", [])}


@topics.command(epilog=example("klamm topics grow orders --partitions 12"))
@click.argument("name")
@click.option("--partitions", type=int, required=True, help="How many it shall have.")
@click.option("--assignment", callback=assignment_of, help="Who has the new ones: 1:2,2:3 (partitions by comma).")
@timeout_option
@url_option
@output_option
def grow(
    name: str, partitions: int, assignment: list[list[int]] | None, timeout_ms: int, url: str | None, output: str
) -> None:
    """Give a topic more partitions; those it has stay as they are."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    body: dict[str, Any] = {"count": partitions}
    if assignment is not None:
        first = partitions - len(assignment)
        body["assignment"] = {str(number): replicas for number, replicas in enumerate(assignment, start=first)}
    path = f"{path_of(name)}/partitions"
    status, document = ask_cluster(url, lambda remote: _made(remote, path, body, name, timeout_ms))
    if output in ("table", "wide"):
        news = (
            f"{name} has grown to {partitions} partitions"
            if status == 201
            else f"{name} has them already: nothing was changed"
        )
        click.echo(f"{news}\n")
    _emit_topic(output, document)


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
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no mistake.")
@click.option("--wait", is_flag=True, help="Until it is gone; Ctrl-C ends the waiting, not the deletion.")
@timeout_option
@url_option
@output_option
def delete(
    name: str, abandon_offline: bool, if_exists: bool, wait: bool, timeout_ms: int, url: str | None, output: str
) -> None:
    """Delete a topic. The deletion goes on by itself; `klamm topics deletions` shows what it waits for."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    deadline = time.monotonic() + timeout_ms / 1_000
    query = "?abandon_offline=true" if abandon_offline else ""

    async def question(remote: Remote) -> Any:
        answer = (await remote.write(f"{path_of(name)}{query}", {}, timeout_ms, "DELETE"))[1]
        if not (answer.get("was_there", True) or if_exists or remote.has_repeated):
            raise RefusedError(404, "UNKNOWN_TOPIC_OR_PARTITION", f"there is no topic {name}")
        return answer

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
