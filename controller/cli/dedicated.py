"""`klamm controller`, `takeover` and `handback`: a controller of ours for real Kafka brokers.

It owns the words. The process is `controller.kafka`'s; taking the seat and giving it back is asked of it over HTTP.
"""

from __future__ import annotations

import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from controller.cli.errors import WrongUsageError
from controller.cli.options import example, output_option, timeout_option, url_option
from controller.cli.output import Item, emit

KAFKA_PORT, HTTP_PORT = 9100, 9101


def register(group: click.Group) -> None:
    for command in (controller, takeover, handback):
        group.add_command(command)


@click.command(short_help="A dedicated controller beside real Kafka brokers.")
@click.option("--zookeeper", required=True, metavar="HOST:PORT/CHROOT", help="The brokers' zookeeper.connect.")
@click.option("--id", "controller_id", type=click.IntRange(0), default=100, show_default=True, help="No broker's id.")
@click.option(
    "--listen",
    default=f"kafka://127.0.0.1:{KAFKA_PORT},http://127.0.0.1:{HTTP_PORT}",
    show_default=True,
    help="Where brokers and clients find it, and where its API and dashboard are.",
)
@click.option("--protocol", default="3.9", show_default=True, help="The brokers' inter.broker.protocol.version.")
@click.option("--listener-name", help="Their listener to speak to, if not the first one that is PLAINTEXT.")
@click.option("--prefer", is_flag=True, help="Take the seat from a broker that got it while all of ours were away.")
@click.option("--insecure", is_flag=True, help="Listen beyond loopback, though it asks nobody for credentials.")
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), default=Path("var/controller"))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A property that brokers have, too.")
def controller(
    zookeeper: str,
    controller_id: int,
    listen: str,
    protocol: str,
    listener_name: str | None,
    prefer: bool,
    insecure: bool,
    data_dir: Path,
    overrides: tuple[str, ...],
) -> None:
    """Run a controller that is no broker, until SIGTERM or Ctrl-C.

    It claims the seat when it is vacant, as brokers do; `klamm takeover` claims it from a broker that is active.
    Brokers go on racing for the seat behind it: if it is gone, one of them is the controller again.
    """
    from controller.config import ConfigError, broker_config_for, parse_properties  # noqa: PLC0415
    from controller.dialects.kafka_levels import level_for  # noqa: PLC0415
    from controller.kafka.process import DedicatedConfig, run_controller  # noqa: PLC0415

    addresses = dict(map(_address_in, listen.split(",")))
    if addresses.keys() != {"kafka", "http"}:
        raise WrongUsageError(f"--listen {listen}: name one kafka:// and one http:// address")
    for scheme, address in addresses.items():
        trouble = _trouble_with(address.host, insecure=insecure)
        if trouble is not None:
            raise WrongUsageError(f"--listen {scheme}://{address.host}:{address.port}: {trouble}")
    try:
        properties = {
            "broker.id": str(controller_id),
            "zookeeper.connect": zookeeper,
            "log.dirs": str(data_dir),
            "listeners": f"HTTP://{addresses['http'].host}:{addresses['http'].port}",
            **parse_properties("\n".join(overrides)),
        }
        config = DedicatedConfig(
            controller_id=controller_id,
            kafka=addresses["kafka"],
            http=addresses["http"],
            level=level_for(protocol),
            listener=listener_name,
            is_preferred=prefer,
            directory=data_dir,
            broker=broker_config_for(properties),
        )
    except (ConfigError, ValueError) as error:
        raise WrongUsageError(str(error)) from None
    sys.exit(run_controller(config))


@click.command(
    short_help="Claim the seat from Kafka's controller.",
    epilog=example("klamm takeover --dry-run --url http://127.0.0.1:9101"),
)
@click.option("--dry-run", is_flag=True, help="Only say what it would meet, and what it would decide first.")
@timeout_option
@url_option
@output_option
def takeover(dry_run: bool, timeout_ms: int, url: str | None, output: str) -> None:
    """Have the controller at --url claim the seat from the broker that holds it, in one transaction.

    First it checks what it would meet, and refuses with reasons.
    """
    document = _asked("/v1/takeover", {"dry_run": dry_run}, timeout_ms, url)
    emit(output, document, lambda _: click.echo(_taken_text(document)), [])
    sys.exit(1 if dry_run and document["check"] and document["check"]["reasons"] else 0)


@click.command(
    short_help="Give the seat back to Kafka's brokers.", epilog=example("klamm handback --url http://127.0.0.1:9101")
)
@timeout_option
@url_option
@output_option
def handback(timeout_ms: int, url: str | None, output: str) -> None:
    """Have the active controller of ours resign to Kafka's brokers; none of ours claims until the next takeover."""
    document = _asked("/v1/handback", {}, timeout_ms, url)
    emit(output, document, lambda _: click.echo("handed back: one of the brokers is the controller now"), [])


def _asked(path: str, body: dict[str, Any], timeout_ms: int, url: str | None) -> dict[str, Any]:
    from controller.cli.remote import Remote, ask_cluster  # noqa: PLC0415

    async def question(remote: Remote) -> Any:
        return (await remote.write(path, body, timeout_ms))[1]

    document: dict[str, Any] = ask_cluster(url or f"http://127.0.0.1:{HTTP_PORT}", question)
    return document


def _taken_text(document: Item) -> str:
    check = document["check"]
    if check is None:
        return f"it is the controller already, epoch {document['controller_epoch']}"
    holder = "nobody" if check["controller"] is None else f"broker {check['controller']}"
    lines = [
        f"controller   {holder}, epoch {check['controller_epoch']}",
        f"brokers      {', '.join(map(str, check['brokers'])) or '-'}",
        f"topics       {check['topics']}, {check['partitions']} partitions",
    ]
    lines += [f"refused      {reason}" for reason in check["reasons"]]
    count = check["writes_count"]
    lines.append(f"first writes {count or 'none: everything is as it should be'}")
    lines += [f"             {path}" for path in check["writes"]]
    if document["taken"]:
        lines.append(f"taken over: the controller is ours, epoch {document['controller_epoch']}")
    return "\n".join(lines)


def _trouble_with(host: str, *, insecure: bool) -> str | None:
    """Why it must not listen there; brokers and clients are told this very address."""
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None  # a name: it is somewhere
    if address is not None and address.is_unspecified:
        return "name the one address that brokers and clients reach it at"
    if insecure or (address is not None and address.is_loopback):
        return None
    return "whoever reaches it may command the cluster; say --insecure if only the right ones do"


def _address_in(text: str) -> tuple[str, Any]:
    from controller.kafka.process import Address  # noqa: PLC0415

    parts = urlsplit(text.strip())
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        raise WrongUsageError(f"--listen {text}: write it like kafka://127.0.0.1:{KAFKA_PORT}")
    return parts.scheme, Address(host, port)
