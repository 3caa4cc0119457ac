"""`klamm run`: one broker process, with its controller, in the foreground.

It owns how the properties come together; the broker is `brokerstub`'s.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from controller.cli.errors import WrongUsageError
from controller.cli.options import example


def register(group: click.Group) -> None:
    group.add_command(run)


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
