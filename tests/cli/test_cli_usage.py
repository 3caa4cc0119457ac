"""Wrong usage, help, completion, and how fast the command starts."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import click
import pytest
from click.testing import CliRunner, Result

from controller.cli.group import OTHERS, SECTIONS, klamm
from controller.cli.options import Duration
from tests.waiting import DEADLINE_S


def run(*words: str, **env: str) -> Result:
    return CliRunner().invoke(klamm, words, env={"COLUMNS": "80", **env}, prog_name="klamm")


@pytest.mark.parametrize(
    "words",
    [
        "nonsense",
        "topics nonsense",
        "topics create",
        "topics create a --partitions x --replication-factor 1",
        "topics create a --partitions 1 --replication-factor 1 --assignment 1:2",
        "topics create a --assignment 1:x",
        "topics create a --partitions 1 --replication-factor 1 --config nonsense",
        "status -o xml",
        "status --nonsense",
        "wait --for tea",
        "topics grow a",
        "topics config a --set nonsense",
        "topics config a --set x=1 --unset x",
        "brokers config x",
        "reassign execute",
        "reassign execute no-such-file.json",
        "reassign generate",
        "reassign generate --topic a --brokers 1,x",
        "reassign cancel",
        "elect --all",
        "elect --type fair --all",
        "elect --type preferred",
        "elect --type preferred --all --topic a --partition 0",
        "elect --type preferred --topic a",
        "drain",
        "drain x",
        "drain -- -1",
        "explain orders",
        "explain orders-x",
        "what-if kill",
        "what-if kill x",
        "wait --timeout soon",
        "completion csh",
    ],
)
def test_wrong_usage_is_exit_2_and_one_line_that_names_the_help(words: str) -> None:
    result = run(*words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("klamm: ")
    assert result.stderr.endswith("--help`.\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["--help", "status -h", "topics --help", "reassign --help", "what-if --help"])
def test_help_is_there_for_every_command(words: str) -> None:
    result = run(*words.split())
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: klamm ")


def test_the_help_has_every_command_under_the_heading_of_its_subject() -> None:
    blocks = run("--help").stdout.split("\n\n")
    headings = {block.splitlines()[0].rstrip(":"): block.splitlines()[1:] for block in blocks}
    assert list(headings)[-5:] == [*SECTIONS, OTHERS]
    shown = {heading: [line.split()[0] for line in lines] for heading, lines in headings.items() if heading in SECTIONS}
    assert shown["A cluster on this machine"][:3] == ["up", "down", "ps"]
    assert shown["Logs and records"] == ["report", "logs", "diff"]
    assert {name for names in shown.values() for name in names} == klamm.commands.keys() - {"completion"}


def test_the_version_is_the_installed_one() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"klamm {version('klamm')}\n")


@pytest.mark.parametrize(("shell", "sign"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")])
def test_completion_code_is_printed_for_each_shell(shell: str, sign: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert sign in result.stdout
    assert "_KLAMM_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("shell", "words", "at", "sign"),
    [
        ("bash", "klamm to", "1", "plain,topics"),
        ("zsh", "klamm topics cr", "2", "plain\ncreate\nCreate a topic"),
        ("fish", "klamm elect --type pre", "pre", "plain,preferred"),
    ],
)
def test_each_shell_is_told_how_a_word_goes_on(shell: str, words: str, at: str, sign: str) -> None:
    result = run(_KLAMM_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=at)
    assert result.stdout.startswith(sign)


@pytest.mark.parametrize(("text", "ms"), [("30s", 30_000), ("500ms", 500), ("2m", 120_000), ("1.5", 1_500), ("0", 0)])
def test_durations_are_written_with_a_unit_or_in_seconds(text: str, ms: int) -> None:
    assert Duration().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "soon"])
def test_a_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


def test_starting_the_command_imports_nothing_heavy() -> None:
    heavy = ("aiohttp", "asyncio", "rich", "yaml", "msgspec", "brokerstub")
    code = f"import sys, controller.cli.group; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert found.stdout == "[]\n"
