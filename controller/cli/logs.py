"""`klamm logs`, `klamm report`, `klamm diff` and the questions `--at` a time: handed on, unchanged, to `sparkjobs`.

They run in this process's place: the jobs import nothing of the controller, nor it of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import click

from controller.cli.output import CliError

_AS_TYPED = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def register(group: click.Group) -> None:
    for command in (report, logs, diff):
        group.add_command(command)


@click.command(short_help="What happened? A page from logs, ours or Apache Kafka's.", context_settings=_AS_TYPED)
@click.argument("words", metavar="LOGS... --out DIR", nargs=-1, type=click.UNPROCESSED)
def report(words: tuple[str, ...]) -> None:
    """Everything that state-change logs tell, on one page."""
    hand_on("report", words)


@click.command(short_help="Its single steps: ingest, merge, doctor, explain, ...", context_settings=_AS_TYPED)
@click.argument("words", metavar="COMMAND LOGS...", nargs=-1, type=click.UNPROCESSED)
def logs(words: tuple[str, ...]) -> None:
    """State-change logs, ours or Apache Kafka's: understand, merge, judge."""
    hand_on("logs", words)


@click.command(short_help="What differs between two times, from records.", context_settings=_AS_TYPED)
@click.argument("words", metavar="TIME TIME RECORDS...", nargs=-1, type=click.UNPROCESSED)
def diff(words: tuple[str, ...]) -> None:
    """What differs between two moments, from ZooKeeper's transaction logs or KRaft's metadata log."""
    hand_on("diff", words)


class AtTimeCommand(click.Command):
    """A command about the running cluster that is handed on when it is asked `--at` a time: records answer then."""

    def __init__(self, *args: Any, jobs_name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.jobs_name = jobs_name

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(word == "--at" or word.startswith("--at=") for word in args):
            hand_on(self.jobs_name, args)
        return super().parse_args(ctx, args)


def hand_on(command: str, words: Sequence[str]) -> None:
    """Replaces this process by the job, with the words as they were typed."""
    if find_spec("sparkjobs") is None:
        raise CliError("the jobs are not installed here: install klamm as a whole, not only its broker")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "sparkjobs", *command.split(), *words])
