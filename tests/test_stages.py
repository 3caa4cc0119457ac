"""`make test` and CI run all of their stages, and list at the end the failures of all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAKEFILE = """\
first:
\t@$(PYTHON) -m pytest -q -p tests.conftest -p no:cacheprovider test_it.py
second:
\t@echo second ran with $(WORD)
third:
\t@exit 3
"""
TESTS = """\
def test_good(): pass
def test_bad(): assert False
"""


def stages(folder: Path, *names: str) -> tuple[int, list[str]]:
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "test_it.py").write_text(TESTS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.stages", *names]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_a_failed_stage_keeps_no_other_from_running_and_is_named_in_the_last_lines(tmp_path: Path) -> None:
    code, said = stages(tmp_path, "first", "second WORD=hello", "third")
    assert code == 1
    assert "second ran with hello" in said
    assert said[-3:] == ["FAILED: make first", "  test_it.py::test_bad", "FAILED: make third"]


def test_without_a_failure_it_says_so(tmp_path: Path) -> None:
    code, said = stages(tmp_path, "second")
    assert (code, said[-1]) == (0, "Nothing failed.")
