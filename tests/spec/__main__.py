"""`make spec`: TLC checks models, broken specifications and traces, and prints a table of the results."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
    states: int
    taken: Counter[str]
    #: the properties that hold, or that fail as they should
    invariants: frozenset[str]
    is_whole: bool = True


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make spec")
    parser.add_argument("--depth", type=int, default=0, help="so many failures, wishes and changes more in each model")
    parser.add_argument("--minutes", type=float, help="how long a model may take; then its search ends where it is")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=("models", "broken", "traces", "mutants"), help="a part of the table")
    parser.add_argument("--mutants", action="store_true", help="all of the table, with the traces of mutants")
    parser.add_argument("--seeds", type=int, default=20, help="how many simulated schedules")
    parser.add_argument("--start", type=int, default=1, help="the first of them")
    parser.add_argument("names", nargs="*", help="only these mutants")
    options = parser.parse_args(arguments)
    tools()  # by one of us, not by all at once
    is_right, sums = True, Sums()
    with ThreadPoolExecutor(options.jobs) as pool:
        if options.only in (None, "models"):
            stop_after_s = None if options.minutes is None else round(options.minutes * 60)
            checked = list(_shown(pool.map(partial(of_model, stop_after_s=stop_after_s), models(options.depth))))
            is_right &= all(one.is_right for one in checked) & _say_taken(checked)
            sums.models(checked)
        if options.only in (None, "broken"):
            checked = list(_shown(pool.map(of_broken, BROKEN)))
            is_right &= all(one.is_right for one in checked)
            sums.broken(checked)
        if options.only == "mutants" or options.mutants:
            rejected = [say_mutant(one) for one in pool.map(of_mutant, options.names or IN_SCOPE)]
            is_right &= all(rejected)
            sums.mutants(rejected)
    if options.only in (None, "traces"):
        is_right &= _follow_recordings(sums) & _follow_schedules(options.start, options.seeds, options.jobs, sums)
    for line in sums.lines:
        say(line)
    return 0 if is_right else 1


class Sums:
    """The sums of the table."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._followed: Counter[str] = Counter()

    def models(self, checked: Sequence[Checked]) -> None:
        states, held = sum(one.states for one in checked), frozenset[str]().union(*(one.invariants for one in checked))
        whole = sum(one.is_whole for one in checked)
        ended = "" if whole == len(checked) else f", {whole} of them to their ends"
        self._said.append(f"{len(checked)} models{ended}, {states:,} states, {len(held)} invariants")

    def broken(self, checked: Sequence[Checked]) -> None:
        seen = frozenset[str]().union(*(one.invariants for one in checked if one.is_right))
        right = sum(one.is_right for one in checked)
        self._said.append(f"{right} of {len(checked)} broken specifications fail, {len(seen)} invariants by them")

    def mutants(self, rejected: Sequence[bool]) -> None:
        self._said.append(f"{sum(rejected)} of {len(rejected)} mutants' traces are rejected")

    def traces(self, found: Sequence[Followed]) -> None:
        for one in found:
            self._followed["steps"] += len(one.trace.steps)
            self._followed["accepted" if one.is_accepted else "rejected"] += 1

    @property
    def lines(self) -> list[str]:
        told = self._followed
        traces = f"{told['accepted']:,} traces are accepted, {told['rejected']:,} rejected, {told['steps']:,} steps"
        return ["", *self._said, *([traces] if told else [])]


def _follow_recordings(sums: Sums) -> bool:
    """Each term and each partition of the real clusters."""
    is_right = True
    for recording in RECORDINGS:
        history = history_of(recording)
        for spec, traces in (
            ("Seat", [of_seat(recording.name, history)]),
            ("Partitions", of_partitions(recording.name, history)),
        ):
            is_right &= _say_followed(recording.name, spec, follow(spec, traces, kafka=True), sums)
    return is_right


def _follow_schedules(start: int, count: int, jobs: int, sums: Sums) -> bool:
    """So many at a time that nothing grows with their number."""
    is_right = True
    for first in range(start, start + count, SCHEDULES_AT_ONCE):
        seeds = range(first, min(first + SCHEDULES_AT_ONCE, start + count))
        for spec, found in followed(list(schedules(seeds, jobs))).items():
            is_right &= _say_followed(f"seeds {seeds[0]} to {seeds[-1]}", spec, found, sums)
    return is_right


def _say_followed(name: str, spec: str, found: Sequence[Followed], sums: Sums) -> bool:
    sums.traces(found)
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


def _shown(checked: Iterator[Checked]) -> Iterator[Checked]:
    """Row by row, as they come."""
    for one in checked:
        say(one.row)
        yield one


def _say_taken(checked: Sequence[Checked]) -> bool:
    """Which actions were never taken, of all the models together."""
    taken: Counter[str] = Counter()
    for one in checked:
        taken.update({f"{one.module}.{name}": count for name, count in one.taken.items()})
    is_right = True
    for module in sorted({one.module for one in checked}):
        wanted = sorted(actions(module))
        missed = [name for name in wanted if not taken[f"{module}.{name}"]]
        count = f"{len(wanted) - len(missed)} of {len(wanted)} actions taken"
        say(f"{module}: {count}, {', '.join(missed) or 'none'} missed")
        is_right &= not missed
    return is_right


def of_model(model: Model, *, stop_after_s: int | None = None) -> Checked:
    begun = time.monotonic()
    report = check(model.module, config_of(model), stop_after_s=stop_after_s)
    said = f"{len(judged(model))} invariants hold" if report.violated is None else f"{report.violated} FAILS"
    ended = f"  NOT TO ITS END, {report.left:,} states left" if report.left and report.violated is None else ""
    row = f"{model.module:10}  {model.name:46}  {_size(report)}  {said}  {time.monotonic() - begun:.0f} s{ended}"
    held = frozenset(f"{model.module}.{one}" for one in judged(model))
    return Checked(row, report.violated is None, model.module, report.states, Counter(report.taken), held, not ended)


def of_broken(broken: Broken) -> Checked:
    report = check(broken.module, config_of(broken.model, without=broken.without, checked=[broken.fails]), covers=False)
    is_seen = fails_as_said(broken, report)
    said = "bites" if is_seen else "DOES NOT BITE"
    known = f"  ({broken.known})" if broken.known else ""
    row = f"{broken.module:10}  without {broken.clause:38}  {_size(report)}  {broken.fails} {said}{known}"
    failed = frozenset({f"{broken.module}.{broken.fails}"})
    return Checked(row, is_seen, broken.module, report.states, Counter(), failed)


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
