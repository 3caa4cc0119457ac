"""The commands: `klamm logs …` and `klamm report`, run as a process of their own (`python -m sparkjobs`).

They read options, call one function each, and print. Exit codes as everywhere in klamm: 0 good, 1 not healthy or
refused, 2 wrong usage. pyspark is imported only when the engine is Spark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])
#: each has `register(logs, top)`
MODULES: Final = ("log_lines", "reports", "spark", "as_of")


def main() -> None:
    """Called `klamm`, so that usage and environment variables read as the user typed them."""
    from sparkjobs.commands.inputs import BadZoneError  # noqa: PLC0415
    from sparkjobs.engine.spark.session import NoSparkError  # noqa: PLC0415 - needs no pyspark by itself
    from sparkjobs.input.files import NoLogsError  # noqa: PLC0415

    try:
        top(prog_name="klamm", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        command = "klamm" if error.ctx is None else error.ctx.command_path
        _fail(f"{error.format_message().rstrip('.')}. See `{command} --help`.", 2)
    except (NoLogsError, BadZoneError) as error:
        _fail(str(error), 2)
    except NoSparkError as error:
        _fail(str(error), 1)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()


def _fail(words: str, exit_code: int) -> None:
    click.echo(f"klamm: {' '.join(words.split())}", err=True)
    sys.exit(exit_code)


@click.group(context_settings={"auto_envvar_prefix": "KLAMM", "help_option_names": ["-h", "--help"]})
def top() -> None:
    """What happened? Answers from state-change logs, ours and Apache Kafka's."""


@top.group()
def logs() -> None:
    """State-change logs, ours and Apache Kafka's 0.8 to 4.3: understand, merge, judge.

    LOGS are files, folders or globs, compressed or not, here or where Spark reads (hdfs://, s3a://); without any,
    those of the cluster that `klamm up` started here. The answer to all of it at once: `klamm report`.
    """


def lab_folder() -> Path:
    """Returns the folder in which `klamm up` keeps its processes' files."""
    return Path(os.environ.get("KLAMM_VAR", "var"))


def _or_the_labs(ctx: click.Context, param: click.Parameter, named: tuple[str, ...]) -> tuple[str, ...]:
    """Without LOGS: those of the cluster that `klamm up` started here, and of its files only these."""
    if named:
        return named
    found = tuple(sorted(str(path) for path in lab_folder().glob("broker-*/state-change.log*")))
    if not found:
        raise click.UsageError("name the logs: files, folders or globs; no cluster of `klamm up` has logged here")
    return found


def input_options(function: _F) -> _F:
    """Adds the options of every command that reads logs."""
    options = (
        click.argument("named", metavar="[LOGS]...", nargs=-1, callback=_or_the_labs),
        click.option("--cluster", default="kafka", show_default=True, help="What to call the cluster."),
        click.option(
            "--timezone",
            "zones",
            multiple=True,
            metavar="[BROKER=]ZONE",
            help="Zone of times that name none: Europe/Berlin, or 2=Europe/Berlin for one broker. Default: UTC.",
        ),
        click.option("--layout", metavar="PATTERN", help="log4j's conversion pattern. Default: found from the lines."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def engine_options(function: _F) -> _F:
    """Which engine, and where."""
    function = click.option("--master", metavar="URL", help="A Spark cluster; implies --engine spark.")(function)
    return click.option(
        "--engine",
        type=click.Choice(["auto", "spark", "local"]),
        default="auto",
        show_default=True,
        help="auto: Spark where it starts. local: processes of this machine, sooner done with little.",
    )(function)


for _module in MODULES:
    import_module(f"sparkjobs.commands.{_module}").register(logs, top)
