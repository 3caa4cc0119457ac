"""Simulate seed after seed until a rule is broken, and say which: for code that is known to be wrong."""

from __future__ import annotations

import sys

from tests.faults.checker.history import HistoryError
from tests.faults.simulate.run import run


def hunt(seeds: int) -> tuple[str, int] | None:
    """The first rule broken, with its seed; evidence that contradicts itself counts."""
    for seed in range(seeds):
        try:
            findings = run(str(seed)).findings
        except HistoryError:
            return "HistoryError", seed
        if findings:
            return findings[0].rule, seed
    return None


if __name__ == "__main__":
    found = hunt(int(sys.argv[1]))
    if found is not None:
        sys.stdout.write(f"{found[0]} {found[1]}\n")
    sys.exit(0 if found is None else 1)
