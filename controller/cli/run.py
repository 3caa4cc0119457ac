"""Processes in the foreground: `klamm run` (a broker with its controller) and `klamm controller` (a dedicated
controller for real Kafka brokers), with `takeover` and `handback` for the latter.

The module owns the words and how the properties come together. The broker is `brokerstub`'s, the dedicated process is
`controller.kafka`'s; taking the seat and giving it back is asked of that process over HTTP.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from controller.cli.options import example, output_option, timeout_option, url_option
from controller.cli.output import Item, UnreachableClusterError, WrongUsageError, emit


def register(group: click.Group) -> None:
    for command in (run, controller, takeover, handback):
        group.add_command(command)


@click.command(
    short_help="One broker process in the foreground.", epilog=example("klamm run --config server.properties")
)
@click.option("--config", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    envvar="KLAMM_SET",  # several: between blanks
    show_envvar=True,
    help="A property over the file's.",
)
@click.option("--insecure", is_flag=True, envvar="KLAMM_INSECURE", help="Listen where others reach it, guarded or not.")
def run(config: Path, overrides: tuple[str, ...], insecure: bool) -> None:
    """Run one broker from Kafka's server.properties until SIGTERM or Ctrl-C."""
    from controller.base.config import ConfigError  # noqa: PLC0415
    from controller.kafka.cluster.settings import broker_settings  # noqa: PLC0415

    try:
        broker_config, admission = broker_settings(config, overrides)
    except ConfigError as error:
        raise WrongUsageError(f"{config}: {error}") from None

    from brokerstub.process import run_broker  # noqa: PLC0415

    sys.exit(run_broker(broker_config, admission, is_insecure=insecure))


KAFKA_PORT, HTTP_PORT = 9100, 9101


@click.command(
    short_help="A dedicated controller beside real Kafka brokers.",
    epilog=example(
        "klamm controller --zookeeper 127.0.0.1:2181/kafka --listen kafka://127.0.0.1:9100,http://127.0.0.1:9101"
    ),
)
@click.option("--zookeeper", required=True, metavar="HOST:PORT/CHROOT", help="The brokers' zookeeper.connect.")
@click.option("--id", "controller_id", type=click.IntRange(0), default=100, show_default=True, help="No broker's id.")
@click.option(
    "--listen",
    default=f"kafka://127.0.0.1:{KAFKA_PORT},http://127.0.0.1:{HTTP_PORT}",
    show_default=True,
    help="Where brokers and clients find it (kafka, ssl, sasl_plaintext, sasl_ssl: in the protocols of the brokers' "
    "listeners), and where its API and dashboard are (http or https).",
)
@click.option("--protocol", default="3.9", show_default=True, help="The brokers' inter.broker.protocol.version.")
@click.option("--listener-name", help="Their listener to speak to, if not the first one that can be spoken to.")
@click.option(
    "--prefer/--no-prefer",
    default=None,
    help="Take the seat from a broker that got it while none of ours had it: always, or never.  "
    "[default: once one of ours was seen to have it]",
)
@click.option("--insecure", is_flag=True, help="Listen beyond loopback, though nobody is asked for credentials.")
@click.option("--no-authorizer", is_flag=True, help="Brokers have none, though one has left an empty /kafka-acl.")
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), default=Path("var/controller"))
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of properties that brokers have, too: ssl.*, sasl.*, zookeeper.session.timeout.ms, ...",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A property over the file's.")
def controller(
    zookeeper: str,
    controller_id: int,
    listen: str,
    protocol: str,
    listener_name: str | None,
    prefer: bool | None,
    insecure: bool,
    no_authorizer: bool,
    data_dir: Path,
    config: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Run a controller that is no broker, until SIGTERM or Ctrl-C.

    It claims the seat when it is vacant, as brokers do; `klamm takeover` claims it from a broker that is active.
    Brokers go on racing for the seat behind it: if it is gone, one of them is the controller again.
    """
    from controller.base.config import ConfigError  # noqa: PLC0415
    from controller.kafka.cluster.settings import config_for  # noqa: PLC0415
    from controller.kafka.process import run_controller  # noqa: PLC0415
    from controller.security.secrets import secrets_from  # noqa: PLC0415

    try:
        settings = config_for(
            zookeeper=zookeeper,
            controller_id=controller_id,
            listen=listen,
            protocol=protocol,
            listener=listener_name,
            is_preferred=prefer,
            is_insecure=insecure,
            is_without_authorizer=no_authorizer,
            directory=data_dir,
            file=config,
            overrides=overrides,
            secrets=secrets_from(os.environ),
        )
    except ConfigError as error:
        raise WrongUsageError(str(error)) from None
    sys.exit(run_controller(settings))


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
    from controller.cli.remote import Remote, ask_cluster, lab_addresses  # noqa: PLC0415

    async def question(remote: Remote) -> Any:
        return (await remote.write(path, body, timeout_ms))[1]

    of_lab = lab_addresses().get("controller")  # that of `make kafka-up`
    wanted = url or of_lab or f"http://127.0.0.1:{HTTP_PORT}"
    try:
        document: dict[str, Any] = ask_cluster(wanted, question)
    except UnreachableClusterError as error:
        reason = error.format_message().partition("; ")[0]
        hint = "start a controller beside the brokers with `klamm controller`, or name one with --url"
        raise UnreachableClusterError(f"{reason}; {hint}") from None
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
    none = "none" if check["reasons"] else "none: everything is as it should be"
    lines.append(f"first writes {count or none}")
    lines += [f"             {path}" for path in check["writes"]]
    lines += [f"decided      {decision}" for decision in check["decisions"]]
    if document["taken"]:
        lines.append(f"taken over: the controller is ours, epoch {document['controller_epoch']}")
    return "\n".join(lines)
