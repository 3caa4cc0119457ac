"""`klamm status` and `klamm wait`: the cluster's health, its controller, and its live brokers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from controller.cli.brokers import BROKER_COLUMNS, with_roles
from controller.cli.options import example, output_option, show_repeatedly, timeout_option, url_option, watch_option
from controller.cli.output import CliError, Item, Progress, UnreachableClusterError, emit, print_facts, print_table

if TYPE_CHECKING:
    from controller.cli.remote import Remote

POLL_INTERVAL_MS: Final = 200


def register(group: click.Group) -> None:
    group.add_command(status)
    group.add_command(wait)


@click.command(short_help="Is all well? Who is the controller, who is there?", epilog=example("klamm status -o json"))
@url_option
@output_option
@watch_option
def status(url: str | None, output: str, watch: bool) -> None:
    """Controller, brokers, partitions, and whether all is well (exit 1 when not)."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    def show() -> int:
        document = ask_cluster(url, _status_of)
        emit(output, document, lambda wide: _print_status(document, is_wide=wide), [document["id"]])
        return 0 if document["status"] == "green" else 1

    sys.exit(show_repeatedly(show, watch=watch))


async def _status_of(remote: Remote) -> dict[str, Any]:
    health = await _health_of(remote)
    cluster = await remote.get("/v1/cluster")
    del cluster["health"]  # as it was a moment later
    brokers = (await remote.get("/v1/brokers"))["items"]
    servers = bootstrap_servers_of(brokers)
    return {
        **cluster,
        "controller": await remote.controller(),
        **health,
        "bootstrap_servers": servers,
        "brokers": brokers,
    }


def bootstrap_servers_of(brokers: Iterable[Item]) -> str | None:
    """Returns the bootstrap servers of Kafka's clients: the live brokers' addresses of one listener, the first of them
    all that speaks Kafka. None: no broker keeps records."""
    from controller.kafka.protocol.access import PROTOCOLS  # noqa: PLC0415

    endpoints = [each.partition("://") for one in brokers if one["state"] != "gone" for each in one["endpoints"]]
    found = [(name, address) for name, _, address in endpoints if name in PROTOCOLS]
    return ",".join(address for name, address in found if name == found[0][0]) or None


async def _health_of(remote: Remote) -> dict[str, Any]:
    """Returns the controller's own verdict. Any other broker answers `unknown` when there is no controller."""
    health: dict[str, Any] = await remote.get("/healthz/cluster", accept=(200, 503))
    return health


def _print_status(document: dict[str, Any], *, is_wide: bool) -> None:
    counts, verdict = document["counts"], document["status"]
    facts = [("cluster", document["id"], ""), ("controller", _controller_text(document["controller"]), "")]
    facts.append(("health", verdict, verdict))
    facts += [("", reason, verdict) for reason in document["reasons"]]
    facts.append(("partitions", _partitions_text(counts), ""))
    if document["bootstrap_servers"] is not None:
        facts.append(("clients", document["bootstrap_servers"], ""))
    print_facts(facts)
    click.echo()
    print_table(BROKER_COLUMNS, with_roles(document["brokers"], document["controller"]), is_wide=is_wide)


def _controller_text(controller: dict[str, Any]) -> str:
    if controller["phase"] == "vacant":
        return f"none (the last epoch was {controller['controller_epoch']})"
    kafka = "one of Kafka's own, " if controller["kind"] == "kafka" else ""
    text = f"broker {controller['broker_id']}, {kafka}epoch {controller['controller_epoch']}"
    if controller["phase"] != "active":
        text += f", {controller['phase']}"
    if (age_ms := controller.get("age_ms")) is not None:  # older brokers do not tell it
        text += f", for {duration_text(age_ms / 1_000)}"
    return text


def _partitions_text(counts: dict[str, int]) -> str:
    new = f", {counts['new']} never led" if counts["new"] else ""
    return (
        f"{counts['online']} online, {counts['offline']} offline, {counts['under_replicated']} under-replicated, "
        f"{counts['not_preferred']} not led by their first replica{new}"
    )


def duration_text(seconds: float) -> str:
    """Returns the two largest units, as a person would say it."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, size)
        if amount or parts or unit == "s":
            parts.append(f"{amount}{unit}")
    return " ".join(parts[:2])


@click.command(epilog=example("klamm wait --for no-reassignments --timeout 1h"))
@click.option(
    "--for",
    "what",
    type=click.Choice(["healthy", "controller", "no-reassignments"]),
    default="healthy",
    show_default=True,
)
@timeout_option
@url_option
def wait(what: str, timeout_ms: int, url: str | None) -> None:
    """Wait until the cluster is healthy, has a controller, or no reassignment runs any more."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    missing_for = {"healthy": _health_missing, "controller": _controller_missing, "no-reassignments": _reassigning}[
        what
    ]
    started = time.monotonic()
    deadline = started + timeout_ms / 1_000
    with Progress() as progress:
        while True:
            try:
                missing: CliError | None = ask_cluster(url, missing_for)
            except UnreachableClusterError as error:
                missing = error
            if missing is None:
                break
            if time.monotonic() >= deadline:
                raise missing
            progress.say(f"{time.monotonic() - started:.0f} s: {missing.format_message()}")
            time.sleep(POLL_INTERVAL_MS / 1_000)
    click.echo(f"{what} after {time.monotonic() - started:.1f}s")


async def _health_missing(remote: Remote) -> CliError | None:
    health = await _health_of(remote)
    if health["status"] == "green":
        return None
    return CliError(f"still not healthy: {'; '.join(health['reasons'])}; `klamm status` shows more")


async def _controller_missing(remote: Remote) -> CliError | None:
    phase = (await remote.controller())["phase"]
    if phase == "active":
        return None
    return CliError(f"still no active controller, the last one seen is {phase}; `klamm status` shows more")


async def _reassigning(remote: Remote) -> CliError | None:
    page = await remote.get("/v1/reassignments?limit=1", accept=(200, 503))
    if "items" not in page:
        return CliError(f"nobody can say what runs: {page.get('detail')}")
    if not page["items"]:
        return None
    one = page["items"][0]
    return CliError(
        f"reassignments still run, such as {one['topic']}-{one['partition']}; `klamm reassign list` shows all"
    )
