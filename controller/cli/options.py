"""The parts that many commands share: their options, durations, and the loop behind --watch."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from controller.cli.output import CliError

#: where `--interval` keeps its seconds
_INTERVAL: Final = "controller.cli.interval_s"
FORMATS: Final = ("table", "wide", "json", "yaml", "name")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "": 1_000, "m": 60_000, "h": 3_600_000}


class Duration(click.ParamType[int]):
    """`30s`, `500ms`, `2m`, or seconds as a plain number; the value is in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", value.strip())
        if match is None:
            self.fail(f"{value!r} is no duration; write it like 30s, 500ms or 2m", param, ctx)
        return round(float(match[1]) * _UNITS_MS[match[2]])


_F = TypeVar("_F", bound=Callable[..., Any])


def url_option(function: _F) -> _F:
    return click.option(
        "--url",
        envvar="KLAMM_URL",
        show_envvar=True,
        help="Address of any broker, such as http://127.0.0.1:8081. Without it: the local cluster.",
    )(function)


def output_option(function: _F) -> _F:
    return click.option(
        "-o",
        "--output",
        envvar="KLAMM_OUTPUT",
        show_envvar=True,
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print.",
    )(function)


def watch_option(function: _F) -> _F:
    """--watch, and how often; `show_repeatedly` gets the one, and finds the other."""
    for option in (
        click.option(
            "--interval",
            type=Duration(),
            default="1s",
            show_default=True,
            expose_value=False,
            callback=_keep_interval,
            help="With --watch: how often.",
        ),
        click.option("--watch", is_flag=True, help="Print again and again, until Ctrl-C."),
    ):
        function = option(function)
    return function


def _keep_interval(ctx: click.Context, param: click.Parameter, value: int) -> None:
    ctx.meta[_INTERVAL] = value / 1_000


def timeout_option(function: _F) -> _F:
    return click.option(
        "--timeout",
        "timeout_ms",
        envvar="KLAMM_TIMEOUT",
        show_envvar=True,
        type=Duration(),
        default="30s",
        show_default=True,
        help="How long to try.",
    )(function)


def example(words: str) -> str:
    """Returns the last words of a command's help: a line that can be run as it stands."""
    return f"\b\nExample:\n  {words}"


def pairs_of(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """A callback: `key=value`, several times."""
    pairs = [value.partition("=") for value in values]
    wrong = next((value for value, (_, separator, _) in zip(values, pairs, strict=True) if not separator), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r}; write it like retention.ms=60000")
    return {key: value for key, _, value in pairs}


def assignment_of(ctx: click.Context, param: click.Parameter, value: str | None) -> list[list[int]] | None:
    """A callback: Kafka's notation, partitions divided by commas, their replicas by colons."""
    if value is None:
        return None
    try:
        return [[int(broker_id) for broker_id in part.split(":")] for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{value!r}; write it like 1:2,2:3 (the first on 1 and 2, the next on 2 and 3)"
        ) from None


def ids_of(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """A callback: broker ids divided by commas."""
    if value is None:
        return None
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r}; write it like 1,2,3") from None


def partition_of(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    """A callback: `orders-3`."""
    topic, separator, number = value.rpartition("-")
    if not (topic and separator and number.isdecimal() and number.isascii()):
        raise click.BadParameter(f"{value!r}; write it like orders-0")
    return topic, int(number)


def show_repeatedly(show: Callable[[], int], *, watch: bool) -> int:
    """Show once, or with --watch until interrupted; trouble in between is said and does not end the watching."""
    if not watch:
        return show()
    try:
        while True:
            click.clear()
            try:
                show()
            except CliError as error:
                error.show()
            time.sleep(click.get_current_context().meta[_INTERVAL])
    except KeyboardInterrupt:
        return 0
