"""`make mutants`: every patch applied to a copy of the tree, simulated until a rule is broken; a table of broken rules.

A patch that no longer applies fails, and so does one that nothing shows. The copy is run. The first line of a patch
names its bug, `test:` on the second names a test to run instead of the simulation. Mutants
of the tables of states are made, not written: `rows.py`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.faults.mutants import rows
from tests.stages import FAILED_FILE

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
#: the files of a copy
PARTS = ("controller", "brokerstub", "sparkjobs", "tests", "pyproject.toml")
SEEDS = 150
PYTEST_FAILED = 1


class Verdict(NamedTuple):
    """The result of one mutant."""

    name: str
    why: str
    caught_by: str | None
    seed: str = ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    patches = sorted(path for path in HERE.glob("*.patch") if not options.names or path.stem in options.names)
    verdicts = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for verdict in pool.map(verdict_on, patches):
            verdicts.append(verdict)
            sys.stdout.write(row_of(verdict))
            sys.stdout.flush()
    caught = sum(one.caught_by is not None for one in verdicts)
    sys.stdout.write(f"{caught} of {len(verdicts)} mutants caught\n")
    left = [] if options.names else list(rows.survivors())
    if not options.names:
        sys.stdout.write("".join(f"NOT CAUGHT, of the tables: {one}\n" for one in left))
        count = len(list(rows.mutants()))
        sys.stdout.write(f"{count - len(left)} of {count} mutants of the tables caught\n")
    return 0 if verdicts and caught == len(verdicts) and not left else 1


def row_of(verdict: Verdict) -> str:
    return f"{verdict.name:30} {verdict.caught_by or 'NOT CAUGHT':50} seed {verdict.seed or '-':4} {verdict.why}\n"


def verdict_on(patch: Path) -> Verdict:
    """Apply and simulate."""
    why = patch.read_text(encoding="utf-8").partition("\n")[0]
    with tempfile.TemporaryDirectory(prefix=f"mutant-{patch.stem}-") as folder:
        copy = Path(folder)
        copy_tree(copy)
        apply(patch, copy)
        test = test_named_in(patch)
        hunt = ["tests.faults.simulate.seed_search", str(SEEDS)]
        command = hunt if test is None else ["pytest", "-q", "-x", "-p", "no:cacheprovider", test]
        command = [sys.executable, "-m", *command]
        done = subprocess.run(command, cwd=copy, env=environment_of(copy), capture_output=True, text=True, check=False)
    if test is not None:
        return Verdict(patch.stem, why, test if done.returncode == PYTEST_FAILED else None)
    rule, _, seed = done.stdout.strip().partition(" ")
    if done.returncode and not rule:
        raise RuntimeError(f"{patch.name}: the hunt itself failed:\n{done.stderr[-2000:]}")
    return Verdict(patch.stem, why, rule or None, seed)


def test_named_in(patch: Path) -> str | None:
    """Returns the test for a bug that random schedules meet too seldom."""
    second = patch.read_text(encoding="utf-8").splitlines()[1]
    return second.removeprefix("test: ") if second.startswith("test: ") else None


def environment_of(copy: Path) -> dict[str, str]:
    """So that imports come from the copy, and its failures stay its own."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    environment.pop(FAILED_FILE, None)
    return environment


def copy_tree(copy: Path) -> None:
    """With compiled files: times are copied, so only patched files are compiled anew."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("kafka-3.*", "kafka-older"))
        else:
            shutil.copy(source, copy / part)


def apply(patch: Path, copy: Path) -> None:
    """By git, which finds the place when lines above were added, and refuses when the place itself is another."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
    command = ["git", "apply", str(patch)]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{patch.name} does not apply any more: {done.stderr}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
