"""`python -m brokerstub --config server.properties [--set key=value]... [--insecure]`: one broker process, as
`klamm run`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from brokerstub.process import run_broker
from controller.base.config import ConfigError
from controller.kafka.cluster.settings import broker_settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m brokerstub", description="One broker process in the foreground.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--insecure", action="store_true", help="listen where others reach it, guarded or not")
    arguments = parser.parse_args()
    try:
        config, admission = broker_settings(arguments.config, arguments.overrides)
    except (ConfigError, OSError) as error:
        parser.error(f"{arguments.config}: {error}")
    return run_broker(config, admission, is_insecure=arguments.insecure)


if __name__ == "__main__":
    sys.exit(main())
