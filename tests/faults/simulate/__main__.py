"""`make simulate`: so many seeds, judged; a failing one is told with how to play it again."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pool
from typing import NamedTuple

from tests.faults.checker.verdict import report
from tests.faults.simulate.run import run
from tests.faults.simulate.schedule import play_beside_a_hostile_tool, play_schedule

PROGRESS_EVERY_S = 10.0
#: so many failures are told with their story, the others with what was found
FAILURES_TOLD = 5


class Result(NamedTuple):
    """The result that a worker returns for one seed."""

    seed: str
    trace: str
    found: list[str]
    said: list[str]
    faults: Counter[str]
    calls: Counter[str]
    virtual_s: float
    claims: int


def play(seed: str, *, is_hostile: bool = False, keeps_records: bool | None = None) -> Result:
    outcome = run(seed, play_beside_a_hostile_tool if is_hostile else play_schedule, records=keeps_records)
    history = outcome.history
    found = [str(one) for one in outcome.findings]
    said = list(report(history, outcome.findings)) if outcome.findings else []
    faults = Counter(one.kind for one in history.faults)
    calls = Counter(f"{one.what} {one.outcome}" for one in history.calls)
    claims = sum(write.path == "/controller" and write.kind == "create" for c in history.commits for write in c.writes)
    return Result(seed, outcome.trace, found, said, faults, calls, outcome.virtual_s - 1_000, claims)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many schedules")
    parser.add_argument("--start", type=int, help="the first seed; drawn and told when it is not given")
    parser.add_argument("--seed", help="only this one, with its story and the hash of its trace")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--hostile", action="store_true", help="beside a tool that forbids, removes and rewrites nodes")
    parser.add_argument("--records", action="store_true", help="brokers keep records in each schedule, not in half")
    options = parser.parse_args(arguments)
    keeps_records = True if options.records else None
    play_one = partial(play, is_hostile=options.hostile, keeps_records=keeps_records)
    if options.seed is not None:
        only = play_one(options.seed)
        say(*only.said, f"seed {only.seed}: {'failed' if only.said else 'clean'}, trace {only.trace}")
        return 1 if only.said else 0
    start = random.SystemRandom().randrange(10**9) if options.start is None else options.start
    seeds = [str(seed) for seed in range(start, start + options.seeds)]
    how = "".join(f" {name}=1" for name in ("HOSTILE", "RECORDS") if getattr(options, name.lower()))
    with Pool(options.jobs) as pool:
        results = list(_told(pool.imap_unordered(play_one, seeds, chunksize=5), len(seeds), how))
    say(*summary_of(results, start))
    return 1 if any(one.said for one in results) else 0


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _told(results: Iterator[Result], count: int, how: str) -> Iterator[Result]:
    """The same, with progress and failures told on the way."""
    told_at = begun_at = time.monotonic()
    failed = 0
    for number, one in enumerate(results, start=1):
        failed += bool(one.said)
        if one.said:
            say(f"seed {one.seed} failed; again: make simulate SEED={one.seed}{how}")
            say(*(one.said if failed <= FAILURES_TOLD else one.found))
        if time.monotonic() - told_at >= PROGRESS_EVERY_S:
            told_at = time.monotonic()
            say(f"{number} of {count} schedules, {failed} failed, {told_at - begun_at:.0f} s")
        yield one


def summary_of(results: list[Result], start: int) -> Iterator[str]:
    faults = sum((one.faults for one in results), Counter[str]())
    calls = sum((one.calls for one in results), Counter[str]())
    yield f"schedules     {len(results)}, from seed {start}"
    yield f"failed        {sum(bool(one.said) for one in results)}"
    yield f"virtual time  {sum(one.virtual_s for one in results) / 3600:.1f} hours"
    yield f"terms         {sum(one.claims for one in results)}"
    yield f"faults        {faults.total()}: " + ", ".join(f"{name} {n}" for name, n in faults.most_common())
    yield f"operations    {calls.total()}: " + ", ".join(f"{name} {n}" for name, n in calls.most_common())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
