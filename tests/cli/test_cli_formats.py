"""The machine formats of the command are pinned: every key and type of every command's JSON, in `cli_formats.json`.

`KLAMM_REWRITE=1` writes that file anew; then a person reads the diff: fields may be added, never renamed.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.core.belief.duties import Deletion
from controller.core.events import ReassignAsked
from controller.core.project.lines import Stamp, phase_line
from controller.statelog.journal import RecentLines
from controller.term.term import TermRecord
from tests.builders import a_broker, a_cluster, a_leadership
from tests.cli.test_cli_examples import commands
from tests.support.deciding_support import DecidingHandle, a_cluster_to_command

PINNED = Path(__file__).with_name("cli_formats.json")
PLAN = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2,1]}]}'
COMMANDS = (
    "status",
    "brokers list",
    "brokers config 1",
    "brokers forget 9",
    "topics list",
    "topics describe orders",
    "topics config orders",
    "topics create new --partitions 1 --replication-factor 1",
    "topics grow orders --partitions 3",
    "topics delete orders",
    "topics deletions",
    "partitions",
    "reassign list",
    "reassign generate --topic orders --brokers 1,2 --seed 1",
    "reassign execute plan.json",
    "reassign verify plan.json",
    "reassign cancel --all",
    "elect --type preferred --all",
    "drain 2",
    "drain 2 --show",
    "undrain 2",
    "explain orders-0",
    "what-if kill 2",
    "history",
    "events --last 1",
    "ps",
)


def shape_of(value: Any) -> Any:
    """Returns keys and types; of a list the shape of its first item."""
    if isinstance(value, dict):
        return {key: shape_of(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape_of(value[0])] if value else []
    return "null" if value is None else type(value).__name__


def shapes(folder: Path) -> dict[str, Any]:
    (folder / "plan.json").write_text(PLAN)
    found = {}
    for command in COMMANDS:
        cluster = a_cluster(orders=[[1, 2], [2, 1]], old=[[1, 2]], moving=[[1, 2]], live=(1, 2, 3))
        cluster.gone[9] = a_broker(9)
        cluster.duties.deletions["old"] = Deletion(is_queued=True, waits_for="broker 3 is gone")
        handle = DecidingHandle(cluster)
        handle.decide(ReassignAsked({("moving", 0): (1, 3)}))
        handle.terms = [TermRecord(7, 1, 1_000, 2_000, "session gone", {"loaded": 8.25})]
        handle.recent_lines = RecentLines(7)
        handle.recent_lines.accept([phase_line(Stamp(1_000, "c", 1, 7, "7-1"), "claimed", 4.5)])
        with a_cluster_to_command(cluster, handle) as (klamm, _):
            result = klamm(*shlex.split(command), "-o", "json")
            assert result.exit_code in (0, 1), f"{command}: {result.output}"
            assert not result.stderr, f"{command}: {result.stderr}"
            found[command] = shape_of(json.loads(result.stdout))
    return found


def test_every_key_and_type_is_as_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = shapes(tmp_path)
    if os.environ.get("KLAMM_REWRITE") == "1":
        PINNED.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(PINNED.read_text())


def test_every_command_with_a_machine_format_is_pinned() -> None:
    formatted = {name for name, command in commands() if any(one.name == "output" for one in command.params)}
    assert {name for name in formatted if not any(f"{one} ".startswith(f"{name} ") for one in COMMANDS)} == set()


@pytest.mark.parametrize("command", ["status", "brokers list", "topics list", "partitions", "history"])
def test_yaml_equals_json_and_names_are_one_a_line(command: str) -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 1]], states={"orders-0": a_leadership(1, [1])}, live=(1, 2))
    handle = DecidingHandle(cluster)
    handle.terms = [TermRecord(7, 1, 1_000, None, None, {})]
    with a_cluster_to_command(cluster, handle) as (klamm, _):
        as_json = json.loads(klamm(*command.split(), "-o", "json").stdout)
        assert yaml.safe_load(klamm(*command.split(), "-o", "yaml").stdout) == as_json
        names = klamm(*command.split(), "-o", "name").stdout.splitlines()
    assert len(names) == (len(as_json) if isinstance(as_json, list) else 1)
    assert all(name and " " not in name for name in names)
