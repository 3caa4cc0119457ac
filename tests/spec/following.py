"""Traces given to TLC: how far it follows each of them, and the first step that no action allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from tests.faults.checker.history import History
from tests.spec.models import clauses
from tests.spec.tlc import TlcError, check
from tests.spec.traces import Trace, module_of, of_partitions, of_seat

Spec = Literal["Seat", "Partitions", "Records"]
#: of one run of TLC: its parser is slower for few large modules than for several smaller ones
STEPS_A_RUN: Final = 20_000
_REACHED: Final = re.compile(r'^<<"at", (\d+), (\d+)>>$', re.MULTILINE)


class Followed(NamedTuple):
    """A trace, and how many of its steps are the specification's."""

    trace: Trace
    reached: int

    @property
    def is_accepted(self) -> bool:
        return self.reached == len(self.trace.steps)

    @property
    def stuck_at(self) -> str:
        """The step that no action allows."""
        step, where = self.trace.steps[self.reached], self.trace.where[self.reached]
        return f"{self.trace.name}, step {self.reached + 1} of {len(self.trace.steps)}, {where}: {step}"


def follow(
    spec: Spec, traces: Sequence[Trace], *, brokers: Iterable[int] = range(1, 7), kafka: bool = False
) -> list[Followed]:
    """Return every trace with the number of steps that TLC followed. `kafka` allows what Klamm may not do: several
    steps of the leader epoch for one decision, a fence that does not name the seat, and claims that leave no note
    beside the epoch's node."""
    followed: list[Followed] = []
    for some in _portions(traces):
        report = check(
            f"{spec}Trace", _config(spec, brokers, kafka), modules={"Recorded": module_of(some)}, covers=False
        )
        if report.violated is not None:
            raise TlcError(report.text[-4_000:])
        reached = {int(run): int(at) for run, at in _REACHED.findall(report.text)}  # the last is the furthest
        followed += [Followed(trace, reached.get(number, 0)) for number, trace in enumerate(some, start=1)]
    return followed


def follow_history(name: str, history: History) -> dict[Spec, list[Followed]]:
    """A run of our own controllers: the seat, and each partition."""
    return {
        "Seat": follow("Seat", [of_seat(name, history)]),
        "Partitions": follow("Partitions", of_partitions(name, history)),
    }


def _portions(traces: Sequence[Trace]) -> Iterable[list[Trace]]:
    some: list[Trace] = []
    for trace in traces:
        if some and sum(len(one.steps) for one in some) + len(trace.steps) > STEPS_A_RUN:
            yield some
            some = []
        some.append(trace)
    if some:
        yield some


def _config(spec: Spec, brokers: Iterable[int], kafka: bool) -> str:
    held = clauses(spec) - ({"seat check", "fresh version", "note at once"} if kafka else set())
    lines = ["SPECIFICATION Followed", "CONSTRAINT Reached", "CONSTANTS"]
    named = f"  Brokers = {{{', '.join(map(str, brokers))}}}"
    if spec == "Seat":
        lines += ["  Processes = {1}", "  Brokers = {}", "  MaxFaults = 0"]
    elif spec == "Records":
        bounds = ("MaxWrites", "MaxElections", "MaxChanges", "MaxFaults")
        lines = ["VIEW Place", *lines, named, "  Unclean = TRUE", *(f"  {bound} = 0" for bound in bounds)]
    else:
        lines += [
            named,
            "  Partitions = {1}",
            "  Made = {}",
            "  First <- FirstOnes",
            "  Target <- LastOnes",
            "  Unclean = {}",
            "  MaxFaults = 0",
            "  MaxAsked = 0",
            "  MaxChanges = 0",
            f"  OneStep = {'FALSE' if kafka else 'TRUE'}",
        ]
    lines.append("  Clauses = {" + ", ".join(f'"{one}"' for one in sorted(held)) + "}")
    return "\n".join(lines) + "\n"
