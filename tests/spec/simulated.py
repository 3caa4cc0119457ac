"""Simulated schedules as traces: of this tree, or of a copy of it that a mutant has broken."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import Pool
from pathlib import Path

import msgspec

from tests.faults.checker.verdict import Finding
from tests.faults.mutants.__main__ import HERE as MUTANTS
from tests.faults.mutants.__main__ import apply, copy_tree, environment_of
from tests.faults.simulate.run import run
from tests.spec.following import Followed, Spec, follow
from tests.spec.records import watching
from tests.spec.traces import Trace, of_partitions, of_seat

#: so many schedules a mutant is given, and so many of them that a rule of the checker condemns
MUTANT_SEEDS = 150
_CONDEMNED = 3

#: mutants that are rejected at the step where they go wrong
IN_SCOPE = (
    "acknowledge-before-replication",
    "add-members-on-election",
    "bump-twice",
    "claim-without-a-new-epoch",
    "claim-without-a-note",
    "drop-the-fence",
    "drop-the-seat-check",
    "elect-who-drains",
    "end-a-move-when-anybody-is-in-sync",
    "erase-without-the-dead",
    "forget-to-bump",
    "keep-the-epoch-when-an-isr-shrinks",
    "obey-an-older-controller",
    "prefer-outside-the-isr",
    "read-above-the-watermark",
    "release-a-foreign-seat",
    "stamp-the-old-epoch",
    "truncate-a-batch-too-far",
    "truncate-by-offset",
    "watermark-of-the-leader-alone",
    "write-whatever-the-version",
)


class Schedule(msgspec.Struct):
    """One schedule: the seat's trace, those of partitions, and where brokers kept records those of records."""

    seat: Trace
    partitions: list[Trace]
    records: list[Trace]


def schedule(seed: str) -> Schedule:
    return _played(seed)[0]


def _played(seed: str) -> tuple[Schedule, list[Finding]]:
    with watching() as scribe:
        outcome = run(seed)
    name, history = f"seed {seed}", outcome.history
    traces = Schedule(of_seat(name, history), of_partitions(name, history), scribe.traces(name, history))
    return traces, outcome.findings


def schedules(seeds: Iterable[int], jobs: int = 2) -> Iterator[Schedule]:
    with Pool(jobs) as pool:
        yield from pool.imap_unordered(schedule, map(str, seeds), chunksize=5)


def followed(some: Sequence[Schedule]) -> dict[Spec, list[Followed]]:
    """All their traces, each held against its specification."""
    return {
        "Seat": follow("Seat", [one.seat for one in some]),
        "Partitions": follow("Partitions", [trace for one in some for trace in one.partitions]),
        "Records": follow("Records", [trace for one in some for trace in one.records]),
    }


def rejected_mutant(name: str) -> Followed | None:
    """The first trace of a mutant that goes wrong, in schedules that the checker condemns; None if none does."""
    with tempfile.TemporaryDirectory(prefix=f"spec-{name}-") as folder:
        copy = Path(folder)
        copy_tree(copy)
        apply(MUTANTS / f"{name}.patch", copy)
        command = [sys.executable, "-m", "tests.spec.simulated", str(MUTANT_SEEDS)]
        done = subprocess.run(command, cwd=copy, env=environment_of(copy), capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: no traces came of it:\n{done.stderr[-2_000:].decode()}")
    for some in msgspec.json.decode(done.stdout, type=list[Schedule]):
        for one in (each for of_spec in followed([some]).values() for each in of_spec):
            if not one.is_accepted:
                return one
    return None


def condemned(seeds: Iterable[int]) -> Iterator[Schedule]:
    """The first schedules in which a rule is broken."""
    count = 0
    for seed in map(str, seeds):
        traces, findings = _played(seed)
        if findings:
            yield traces
            count += 1
            if count == _CONDEMNED:
                return


def main(arguments: Sequence[str]) -> None:
    """Traces as JSON: for `rejected_mutant`, inside of a copy."""
    sys.stdout.buffer.write(msgspec.json.encode(list(condemned(range(int(arguments[0]))))))


if __name__ == "__main__":
    main(sys.argv[1:])
