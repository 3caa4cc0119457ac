"""`python -m brokerstub.lab`: one supervisor in the foreground. `klamm up` runs it in the background.

Owns the flags and the one line that says why there is no lab. It must never start anything itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from brokerstub.lab.java import JavaMissingError
from brokerstub.lab.settings import BROKERS_MAX, LabError, LabSettings, properties_for
from brokerstub.lab.supervisor import run_lab
from brokerstub.lab.zookeeper import ZooKeeperError
from controller.base import log


@click.command()
@click.option("--var", type=click.Path(file_okay=False, path_type=Path), default=Path("var"), show_default=True)
@click.option("--brokers", type=click.IntRange(1, BROKERS_MAX), default=3, show_default=True)
@click.option("--port-base", type=click.IntRange(1, 65_000), default=8080, show_default=True)
@click.option("--kafka-port-base", type=click.IntRange(1, 65_000), help="Brokers keep records, and serve clients.")
@click.option("--zookeeper", metavar="HOST:PORT/CHROOT", help="Use this one instead of an embedded one.")
@click.option("--zookeeper-port", type=click.IntRange(1, 65_535), default=2181, show_default=True)
@click.option("--session-timeout-ms", type=click.IntRange(1_000, 60_000), default=4_000, show_default=True)
@click.option("--set", "properties", multiple=True, metavar="KEY=VALUE", help="A property of every broker.")
@click.option("--aggregate", is_flag=True, help="A Spark job keeps sums of the brokers' logs.")
@click.option("--broker-command", metavar="COMMAND", help="What runs as a broker.")
def main(var: Path, properties: tuple[str, ...], **settings: Any) -> None:
    """Run a lab until SIGTERM or SIGINT: ZooKeeper, brokers, and proxies between them."""
    os.umask(0o077)  # logs, znodes and records of the lab and its children are for its owner
    log.configure(sys.stderr)
    try:
        run_lab(LabSettings(var=var.resolve(), properties=properties_for(properties), **settings))
    except (LabError, JavaMissingError, ZooKeeperError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
