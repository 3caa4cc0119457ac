"""The example in each command's help: it is there, and it runs as it stands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from controller.chronicle import Chronicle
from controller.cli.group import klamm
from controller.daemon import TermRecord
from tests.builders import a_cluster
from tests.shell.deciding_support import DecidingDoor, a_cluster_to_command, run

#: those act on the processes of this machine; `integration/test_lab_examples.py` runs them
OF_THE_LAB = {
    "up",
    "down",
    "ps",
    "run",
    "kill",
    "stop",
    "start",
    "freeze",
    "thaw",
    "cut",
    "heal",
    "break-disk",
    "mend-disk",
    # and of real brokers: `tests/kafka` runs them
    "controller",
    "takeover",
    "handback",
    # and of `sparkjobs`, handed on to them: `tests/spark` runs them
    "report",
    "logs",
}
PLAN = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2,1,3]}]}'


def commands(group: click.Group = klamm, *before: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)
        elif name not in OF_THE_LAB or before:
            yield " ".join((*before, name)), command


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_the_example_of_every_command_runs_as_it_stands(
    name: str, command: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(PLAN)
    example = (command.epilog or "").splitlines()[-1].strip()
    assert example.startswith(f"klamm {name}")
    assert example in run(*name.split(), "--help", COLUMNS="100").stdout
    cluster = a_cluster(orders=[[2, 1, 3], *[[1, 2, 3]] * 5])
    door = DecidingDoor(cluster)
    door.has_deleting_brokers = True
    door.chronicle = Chronicle(7)
    door.terms = [TermRecord(7, 1, 1_000, None, None, {"loaded": 8.25})]
    with a_cluster_to_command(cluster, door) as (command_line, _):
        result = command_line(*shlex.split(example)[1:])
    assert (result.exit_code, result.exception if result.exit_code else None) == (0, None), result.output


def test_there_are_commands_to_show() -> None:
    names = {name for name, _ in commands()}
    assert names >= {
        "status",
        "topics grow",
        "reassign execute",
        "what-if kill",
        "explain",
        "history",
        "drain",
        "elect",
    }
