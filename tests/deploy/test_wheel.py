"""The wheel: it holds all files that the program needs besides its modules, and building it gives no warning."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_tidy import ROOT, project_files

pytestmark = pytest.mark.slow

#: files that a part of the program opens by name
NEEDED = ("controller/dashboard/", "controller/api/docs/", "sparkjobs/report/")
#: files for the clone only
NOT_WANTED = ("tests/", "deploy/", "docs/", "typings/")


def test_the_wheel_has_the_page_the_documentation_and_the_report_and_setuptools_has_no_complaint(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    for path in project_files():
        if path.relative_to(ROOT).parts[0] not in ("tests", "docs", "deploy"):
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-v"]
    done = subprocess.run(
        [*build, "-w", str(tmp_path), str(source)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if "Warning" in line or "absent from" in line] == []

    [wheel] = tmp_path.glob("klamm-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    parts = {str(path.relative_to(ROOT)) for path in project_files()}
    assert {part for part in parts if part.startswith(NEEDED) and not part.endswith(".py")} <= packed
    assert {
        part for part in parts if part.startswith(("controller/", "brokerstub/")) and part.endswith(".py")
    } <= packed
    assert [part for part in packed if part.startswith(NOT_WANTED)] == []
