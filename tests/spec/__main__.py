"""`make spec`: models, broken specifications and traces, checked by TLC; a table of what came of it."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.recordings import RECORDINGS
from tests.spec.following import Followed, follow
from tests.spec.models import BROKEN, Broken, Model, actions, config_of, judged, models
from tests.spec.recorded import history_of
from tests.spec.simulated import IN_SCOPE, followed, rejected_mutant, schedules
from tests.spec.tlc import Report, check, tools
from tests.spec.traces import of_partitions, of_seat

SCHEDULES_AT_ONCE = 200
REJECTED_TOLD = 10


class Checked(NamedTuple):
    """A model, its report, and whether it is as it should be."""

    row: str
    is_right: bool
    module: str
    taken: Counter[str]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make spec")
    parser.add_argument("--depth", type=int, default=0, help="so many failures, wishes and changes more in each model")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=("models", "broken", "traces", "mutants"), help="a part of the table")
    parser.add_argument("--seeds", type=int, default=20, help="how many simulated schedules")
    parser.add_argument("--start", type=int, default=1, help="the first of them")
    parser.add_argument("names", nargs="*", help="only these mutants")
    options = parser.parse_args(arguments)
    tools()  # by one of us, not by all at once
    is_right = True
    with ThreadPoolExecutor(options.jobs) as pool:
        if options.only in (None, "models"):
            is_right &= _shown(pool.map(of_model, models(options.depth)), with_coverage=True)
        if options.only in (None, "broken"):
            is_right &= _shown(pool.map(of_broken, BROKEN), with_coverage=False)
        if options.only == "mutants":
            rejected = [say_mutant(one) for one in pool.map(of_mutant, options.names or IN_SCOPE)]
            is_right &= all(rejected)
    if options.only in (None, "traces"):
        is_right &= _follow_recordings() & _follow_schedules(options.start, options.seeds, options.jobs)
    return 0 if is_right else 1


def _follow_recordings() -> bool:
    """Each term and each partition of the real clusters."""
    is_right = True
    for recording in RECORDINGS:
        history = history_of(recording)
        for spec, traces in (
            ("Seat", [of_seat(recording.name, history)]),
            ("Partitions", of_partitions(recording.name, history)),
        ):
            is_right &= _say_followed(recording.name, spec, follow(spec, traces, kafka=True))
    return is_right


def _follow_schedules(start: int, count: int, jobs: int) -> bool:
    """So many at a time that nothing grows with their number."""
    is_right = True
    for first in range(start, start + count, SCHEDULES_AT_ONCE):
        seeds = range(first, min(first + SCHEDULES_AT_ONCE, start + count))
        for spec, found in followed(list(schedules(seeds, jobs))).items():
            is_right &= _say_followed(f"seeds {seeds[0]} to {seeds[-1]}", spec, found)
    return is_right


def _say_followed(name: str, spec: str, found: Sequence[Followed]) -> bool:
    rejected = [one for one in found if not one.is_accepted]
    steps = sum(len(one.trace.steps) for one in found)
    say(f"{spec:10}  {name:46}  {steps:>9,} steps  {len(found)} traces, {len(rejected)} rejected")
    for one in rejected[:REJECTED_TOLD]:
        say(f"  {one.stuck_at}")
    return not rejected


def of_mutant(name: str) -> tuple[str, Followed | None]:
    return name, rejected_mutant(name)


def say_mutant(one: tuple[str, Followed | None]) -> bool:
    name, rejected = one
    say(f"{name:36}  {'NOT REJECTED' if rejected is None else rejected.stuck_at}")
    return rejected is not None


def _shown(checked: Iterator[Checked], *, with_coverage: bool) -> bool:
    """Print row by row; then which actions were never taken, of all the models together."""
    is_right, taken = True, Counter[str]()
    modules = set()
    for one in checked:
        say(one.row)
        is_right &= one.is_right
        modules.add(one.module)
        taken.update({f"{one.module}.{name}": count for name, count in one.taken.items()})
    for module in sorted(modules) if with_coverage else ():
        wanted = sorted(actions(module))
        missed = [name for name in wanted if not taken[f"{module}.{name}"]]
        count = f"{len(wanted) - len(missed)} of {len(wanted)} actions taken"
        say(f"{module}: {count}, {', '.join(missed) or 'none'} missed")
        is_right &= not missed
    return is_right


def of_model(model: Model) -> Checked:
    begun = time.monotonic()
    report = check(model.module, config_of(model))
    said = f"{len(judged(model))} invariants hold" if report.violated is None else f"{report.violated} FAILS"
    row = f"{model.module:10}  {model.name:46}  {_size(report)}  {said}  {time.monotonic() - begun:.0f} s"
    return Checked(row, report.violated is None, model.module, Counter(report.taken))


def of_broken(broken: Broken) -> Checked:
    report = check(broken.module, config_of(broken.model, without=broken.without, checked=[broken.fails]), covers=False)
    is_seen = fails_as_said(broken, report)
    said = "bites" if is_seen else "DOES NOT BITE"
    known = f"  ({broken.known})" if broken.known else ""
    row = f"{broken.module:10}  without {broken.clause:38}  {_size(report)}  {broken.fails} {said}{known}"
    return Checked(row, is_seen, broken.module, Counter())


def fails_as_said(broken: Broken, report: Report) -> bool:
    """TLC does not say which property of liveness failed; but one was asked for."""
    return report.violated == ("liveness" if broken.model.is_about_liveness else broken.fails)


def _size(report: Report) -> str:
    return f"{report.states:>9,} states, depth {report.depth:>3}"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
