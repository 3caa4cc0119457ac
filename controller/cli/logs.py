"""`klamm logs …` and `klamm report`: handed on, as they stand, to the jobs of `sparkjobs`.

They run in this process's place: the jobs import nothing of the controller, nor it of them.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import click

from controller.cli.errors import CliError

_AS_TYPED = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def register(group: click.Group) -> None:
    for command in (report, logs):
        group.add_command(command)


@click.command(short_help="What happened? A page from logs, ours or Apache Kafka's.", context_settings=_AS_TYPED)
@click.argument("words", metavar="LOGS... --out DIR", nargs=-1, type=click.UNPROCESSED)
def report(words: tuple[str, ...]) -> None:
    """Everything that state-change logs tell, on one page."""
    _hand_on("report", words)


@click.command(short_help="Its single steps: ingest, merge, doctor, explain, ...", context_settings=_AS_TYPED)
@click.argument("words", metavar="COMMAND LOGS...", nargs=-1, type=click.UNPROCESSED)
def logs(words: tuple[str, ...]) -> None:
    """State-change logs, ours or Apache Kafka's: understand, merge, judge."""
    _hand_on("logs", words)


def _hand_on(command: str, words: tuple[str, ...]) -> None:
    if find_spec("sparkjobs") is None:
        raise CliError("the jobs are not installed here: install klamm as a whole, not only its broker")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "sparkjobs", command, *words])
