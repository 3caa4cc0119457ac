"""`make test`, `make test-all` and CI: stages one after the other, each even if one before it failed.

A stage is a target of the Makefile, with its variables. Failures are repeated at the end, in the last lines; exit code
1: something failed. The sessions of pytest list their failed tests in a file themselves (`conftest.py`).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: names a file: a session of pytest appends its failed tests, a line each
FAILED_FILE = "KLAMM_FAILED_FILE"


class Done(NamedTuple):
    """The result of a stage."""

    stage: str
    code: int
    minutes: float
    failed: Sequence[str]


def main(stages: Sequence[str]) -> int:
    make, done = os.environ.get("MAKE", "make"), []
    try:
        for stage in stages:
            done.append(run(make, stage))
    finally:
        sys.stdout.write("".join(f"{line}\n" for line in summary(done, stages)))
    return 1 if any(one.code for one in done) else 0


def run(make: str, stage: str) -> Done:
    sys.stdout.write(f"== make {stage}\n")
    sys.stdout.flush()
    begun = time.monotonic()
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as told:
        process = subprocess.Popen([make, *shlex.split(stage)], env={**os.environ, FAILED_FILE: told.name})
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.wait()  # the terminal told it too, and it cleans up
            raise
        return Done(stage, code, (time.monotonic() - begun) / 60, told.read().splitlines())


def summary(done: Sequence[Done], stages: Sequence[str]) -> Iterator[str]:
    """Yields the stages that ran and for how long; at the end the failures."""
    yield "== in all"
    for one in done:
        yield f"{'failed' if one.code else 'passed'} {one.minutes:6.1f} min  make {one.stage}"
    for stage in stages[len(done) :]:
        yield f"not run            make {stage}"
    for one in done:
        if one.code:
            yield f"FAILED: make {one.stage}"
            yield from (f"  {name}" for name in one.failed)
    if len(done) == len(stages) and not any(one.code for one in done):
        yield "Nothing failed."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
