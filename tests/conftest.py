"""The base of every test: tools that the machine may lack, and how long hypothesis searches. No fixtures."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from brokerstub.lab.java import JavaMissingError, find_java
from tests.stages import FAILED_FILE

settings.register_profile("check", max_examples=500, deadline=None, derandomize=False, database=None, print_blob=True)
settings.register_profile("full", settings.get_profile("check"), max_examples=1_500)
settings.load_profile(os.environ.get("KLAMM_HYPOTHESIS", "check"))

# in the background of a script SIGINT is ignored, and processes that the tests start would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)

# a cluster that the user named for `klamm` is none of the tests'
for name in ("KLAMM_VAR", "KLAMM_URL", "KLAMM_OUTPUT"):
    os.environ.pop(name, None)

# the log of the code under test is not the output of the command under test
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

TOOLS = ("java", "docker", "chromium", "maven", "go")
FAILED_TOLD = os.environ.pop(FAILED_FILE, None)  # processes that the tests start are not this session
REQUIRED = {name.strip() for name in os.environ.get("KLAMM_REQUIRE", "").split(",")} - {""}


@functools.cache
def reason_missing(tool: str) -> str | None:
    """Why the machine cannot run tests marked with it; None if it can."""
    if tool == "java":
        try:
            find_java()
        except JavaMissingError as error:
            return str(error)
        return None
    if tool == "docker":
        return _reason_without_docker()
    if tool == "go" and (Path(sys.executable).parent / "go").exists():  # by `make go`
        return None
    commands = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "maven": ("mvn",), "go": ("go",)}[tool]
    return None if any(map(shutil.which, commands)) else f"none of these is in the PATH: {', '.join(commands)}"


def _reason_without_docker() -> str | None:
    if shutil.which("docker") is None:
        return "there is no `docker` in the PATH"
    for words, reason in (
        (["docker", "info"], "no Docker engine answers `docker info`; `make docker-test` starts one"),
        (["docker", "compose", "version"], "docker has no compose plugin"),
    ):
        try:
            if subprocess.run(words, capture_output=True, timeout=10, check=False).returncode != 0:
                return reason
        except subprocess.TimeoutExpired:
            return reason
    return None


def pytest_configure() -> None:
    if unknown := REQUIRED - set(TOOLS):
        raise pytest.UsageError(f"KLAMM_REQUIRE knows {', '.join(TOOLS)}; not {', '.join(sorted(unknown))}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A caller that runs several sessions lists at the end the failures of all of them."""
    if FAILED_TOLD is None:
        return
    failed = [report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
    with Path(FAILED_TOLD).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}\n" for name in failed)


@pytest.hookimpl(tryfirst=True)  # before any fixture that needs the tool
def pytest_runtest_setup(item: pytest.Item) -> None:
    for tool in TOOLS:
        if item.get_closest_marker(tool) is None or (reason := reason_missing(tool)) is None:
            continue
        if tool in REQUIRED:
            pytest.fail(f"KLAMM_REQUIRE lists {tool}: {reason}", pytrace=False)
        pytest.skip(f"{tool}: {reason}")
