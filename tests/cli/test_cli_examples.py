"""The example in each command's help: it is there, and it runs as it stands."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from _pytest.mark import ParameterSet

from controller.cli.group import klamm
from controller.core.causes import Cause
from controller.core.changes.cluster import BrokerGone, Committed
from controller.core.project.lines import Line
from controller.statelog.journal import RecentLines
from controller.term.term import TermRecord
from sparkjobs.commands.cli import top
from tests.builders import a_cluster
from tests.support.deciding_support import DecidingHandle, a_cluster_to_command, run

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
    "trouble",
    "rates",
}
#: beside real brokers; `integration/test_dedicated_examples.py` runs them
OF_REAL_BROKERS = {"controller", "takeover", "handback"}
#: of `sparkjobs`, handed on to them as a process of their own
OF_THE_JOBS = {"report", "logs", "diff"}
#: of `sparkjobs`, too: questions `--at` a time
OF_RECORDS = {"explain", "what-if kill", "diff"}
RECORD = Path(__file__).parents[1] / "data" / "kraft" / "3.9.1-migration" / "zookeeper"
#: those that start Spark
OF_SPARK = {"logs ingest", "logs stream", "logs warmup"}
#: those that start it where there is Java, which takes ten seconds
BY_SPARK = {"report", "logs analyze", "logs doctor", "logs explain", "logs merge", "logs slo"}
KLAMM = str(Path(sys.executable).with_name("klamm"))
PLAN = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2,1,3]}]}'


def commands(group: click.Group = klamm, *before: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)
        elif group is not klamm or name not in OF_THE_LAB | OF_REAL_BROKERS | OF_THE_JOBS:
            yield " ".join((*before, name)), command


def jobs() -> Iterator[ParameterSet]:
    for name, command in commands(top):
        long = [pytest.mark.java, pytest.mark.long] if name in OF_SPARK else [pytest.mark.long]
        yield pytest.param(name, command, marks=long if name in OF_SPARK | BY_SPARK else [pytest.mark.slow])


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_the_example_of_every_command_runs_as_it_stands(
    name: str, command: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(PLAN)
    example = example_of(name, command)
    assert example in run(*name.split(), "--help", COLUMNS="100").stdout
    cluster = a_cluster(live=(1, 2, 3, 4), orders=[[2, 1, 3], *[[1, 2, 3]] * 5])
    cluster.apply([Committed(BrokerGone(4, 14, "registration gone", Cause.BROKER_GONE))])
    handle = DecidingHandle(cluster)
    handle.has_deleting_brokers = True
    handle.recent_lines = RecentLines(7)
    handle.terms = [TermRecord(7, 1, 1_000, None, None, {"loaded": 8.25})]
    with a_cluster_to_command(cluster, handle) as (command_line, _):
        result = command_line(*shlex.split(example)[1:])
    assert (result.exit_code, result.exception if result.exit_code else None) == (0, None), result.output


def example_of(name: str, command: click.Command) -> str:
    """The last line of a command's help."""
    example = (command.epilog or "").splitlines()[-1].strip()
    assert example.startswith(f"klamm {name}"), f"`klamm {name} --help` ends without an example"
    return example


@pytest.mark.parametrize(("name", "command"), list(jobs()))
def test_the_example_of_every_job_runs_as_it_stands(name: str, command: click.Command, tmp_path: Path) -> None:
    log = tmp_path / "var" / "broker-1" / "state-change.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(msgspec.json.Encoder().encode_lines([a_line(number) for number in range(6)]))
    shutil.copytree(RECORD, tmp_path / "var" / "zookeeper" / "version-2")

    def done(*words: str) -> str:
        told = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 400}
        told["env"] = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        process = subprocess.run([KLAMM, *words], check=False, **told)
        assert process.returncode == 0, f"{words}: {process.stdout}{process.stderr}"
        return process.stdout

    example = example_of(name, command)
    assert example in done(*name.split(), *(["--at=end"] if name in OF_RECORDS - {"diff"} else []), "--help")
    done(*shlex.split(example)[1:])


def a_line(partition: int) -> Line:
    """As a controller wrote it in `var`, where a cluster was started."""
    move = {"source": "NewPartition", "target": "OnlinePartition", "reason": "new"}
    state = {"leader": 1, "leader_epoch": 0, "isr": (1, 2), "version": 0, "zxid": 40 + partition, "topic_id": "id"}
    stamp = {"at_ms": 1_700_000_000_000 + partition, "cluster_id": "c", "controller_id": 1, "controller_epoch": 1}
    return Line(kind="partition", event_id="1-2", topic="orders", partition=partition, **stamp, **move, **state)


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
    assert {name for name, _ in commands(top)} >= {"report", "logs doctor", "logs slo"} | OF_SPARK
