"""`make museum`: each exhibit's test on the code as it is, and on its mutant, which has to fail it; a table of both."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.faults.museum.exhibits import Exhibit, exhibits
from tests.faults.mutants.__main__ import PYTEST_FAILED, ROOT, apply, copy_tree, environment_of

#: of a test's output when it failed
SAID_CHARS = 110


class Verdict(NamedTuple):
    """How an exhibit fared: the output of its test on our code (None: it passed), and on the mutant."""

    trouble: str | None
    caught_by: str | None

    @property
    def is_good(self) -> bool:
        return self.trouble is None and self.caught_by is not None


def caught_by(exhibit: Exhibit) -> str | None:
    """Returns the test's output on the mutant; None when it passes."""
    with tempfile.TemporaryDirectory(prefix=f"museum-{exhibit.patch.stem}-") as folder:
        copy = Path(folder)
        copy_tree(copy)
        apply(exhibit.patch, copy)
        return failures([exhibit.test], copy).get(exhibit.test)


def failures(tests: Sequence[str], tree: Path) -> dict[str, str]:
    """Returns the tests that fail in this tree, with their output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-rf", *tests]
    environment = {**environment_of(tree), "COLUMNS": "400"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, PYTEST_FAILED):
        raise RuntimeError(f"{tests} were not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    said = {}
    for line in done.stdout.splitlines():
        if line.startswith("FAILED "):
            test, _, why = line.removeprefix("FAILED ").partition(" - ")
            said[test.partition("[")[0]] = (why or "it failed")[:SAID_CHARS]
    return said


def row_of(exhibit: Exhibit, verdict: Verdict) -> str:
    holds = "we hold" if verdict.trouble is None else f"FAILED ({verdict.trouble})"
    caught = "NOT CAUGHT" if verdict.caught_by is None else f"caught: {verdict.caught_by}"
    rows = (exhibit.wrong, f"{holds}: {exhibit.klamm}", f"test: {exhibit.test}",
            f"mutant {exhibit.patch.stem} {caught}")  # fmt: skip
    return exhibit.entry + "".join(f"\n    {row}" for row in rows) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make museum")
    parser.add_argument("entries", nargs="*", help="only these, like M01 or 6082")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    shown = [one for one in exhibits() if not options.entries or any(word in one.entry for word in options.entries)]
    verdicts = []
    with ThreadPoolExecutor(options.jobs) as pool:
        ours = pool.submit(failures, sorted({one.test for one in shown}), ROOT)
        for exhibit, caught in zip(shown, pool.map(caught_by, shown), strict=True):
            verdict = Verdict(ours.result().get(exhibit.test), caught)
            verdicts.append(verdict)
            sys.stdout.write(row_of(exhibit, verdict))
            sys.stdout.flush()
    good = sum(verdict.is_good for verdict in verdicts)
    sys.stdout.write(f"{good} of {len(shown)} exhibits hold and bite\n")
    return 0 if shown and good == len(shown) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
