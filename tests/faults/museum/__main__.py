"""`make museum`: each exhibit played on the code as it is, and on its mutant, which has to fail; a table of both."""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import run as run_process

from tests.faults.checker.history import HistoryError
from tests.faults.museum.exhibits import EXHIBITS, Exhibit
from tests.faults.mutants.__main__ import HERE, apply, copy_tree, environment_of
from tests.faults.story import staged


def play(name: str) -> str:
    """Why it failed; empty when it held."""
    exhibit = next(one for one in EXHIBITS if one.name == name)
    try:
        findings = staged(exhibit.scene).findings
    except (AssertionError, HistoryError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return findings[0].rule if findings else ""


def on_mutant(exhibit: Exhibit) -> str:
    with tempfile.TemporaryDirectory(prefix=f"museum-{exhibit.mutant}-") as folder:
        copy = Path(folder)
        copy_tree(copy)
        apply(HERE / f"{exhibit.mutant}.patch", copy)
        command = [sys.executable, "-m", "tests.faults.museum", exhibit.name]
        done = run_process(command, cwd=copy, env=environment_of(copy), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{exhibit.name} on {exhibit.mutant}: {done.stderr[-2000:]}")
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    if arguments:
        trouble = play(arguments[0])
        sys.stdout.write(trouble + "\n")
        return 1 if trouble else 0
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for exhibit, caught_by in zip(EXHIBITS, pool.map(on_mutant, EXHIBITS), strict=True):
            trouble = play(exhibit.name)
            failed += bool(trouble) or not caught_by
            verdict = f"FAILED: {trouble}" if trouble else "holds"
            mutant = f"{exhibit.mutant} caught by {caught_by}" if caught_by else f"{exhibit.mutant} NOT CAUGHT"
            sys.stdout.write(
                f"{exhibit.name:28} {exhibit.kafka}\n{'':28} {verdict}: {exhibit.klamm}\n{'':28} {mutant}\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"{len(EXHIBITS) - failed} of {len(EXHIBITS)} exhibits hold and bite\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
