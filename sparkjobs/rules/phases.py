"""What a new controller did before it was one: each phase of its takeover, from when to when. Pure.

Kafka's lines say that a step begins, so a step lasts until the next one, or until the controller is ready, or done. Our
own lines say that a phase is over, and how long after the seat was seen to be vacant.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from sparkjobs.rules.facts import Facts, Step, Term
from sparkjobs.tables.gold import ControllerPhase
from sparkjobs.tables.silver import SilverEvent

#: what of our own lines is the claim, the readiness, and the end of it all
CLAIMED: Final = "claimed"
READY: Final = "told"
DONE: Final = "acknowledged"
_NO_STEP: Final = "resigning"


class _Stretch(NamedTuple):
    phase: str
    from_ms: int
    to_ms: int | None
    took_ms: float | None
    step: Step


def is_said(event: SilverEvent, phase: str) -> bool:
    """Whether our controller says with it that this phase is over."""
    return event.event == "controller_reported" and event.to_state == phase


def steps_in(events: Iterable[SilverEvent]) -> Iterator[Step]:
    """In the order of `events`."""
    for event in events:
        place = (event.file_id, event.line_no)
        if event.broker is None:
            continue
        if event.event in ("failover_started", "failover_step") and event.reason != _NO_STEP:
            yield Step(event.broker, None, event.ts_adj, event.reason or "starting", None, *place)
        elif event.event == "controller_reported" and event.to_state is not None and event.elapsed_ms is not None:
            epoch = event.controller_epoch
            yield Step(event.broker, epoch, event.ts_adj, event.to_state, event.elapsed_ms, *place)


def phases_of(facts: Facts) -> Iterator[ControllerPhase]:
    """Of every takeover that these logs tell of, in the order of the epochs."""
    for index, term in enumerate(facts.terms):
        again_ms = min((one.from_ms for one in facts.terms[index + 1 :] if one.broker == term.broker), default=None)
        ours = [one for one in facts.steps if one.since_ms is not None and _is_of(one, term)]
        begun = [one for one in facts.steps if one.since_ms is None and one.broker == term.broker]
        begun = [one for one in begun if term.from_ms <= one.at_ms and (again_ms is None or one.at_ms < again_ms)]
        for one in _ended(ours) if ours else _begun(begun, term):
            yield ControllerPhase(
                cluster=facts.cluster,
                controller_epoch=term.controller_epoch,
                broker=term.broker,
                from_ms=one.from_ms,
                phase=one.phase,
                to_ms=one.to_ms,
                took_ms=one.took_ms,
                file_id=one.step.file_id,
                line_no=one.step.line_no,
            )


def _is_of(step: Step, term: Term) -> bool:
    return (step.broker, step.controller_epoch) == (term.broker, term.controller_epoch)


def _ended(steps: Sequence[Step]) -> Iterator[_Stretch]:
    """Each from where the one before ended; the last mark of a phase counts."""
    last = {one.name: one for one in sorted(steps, key=lambda one: (one.since_ms, one.at_ms))}
    since_ms = 0.0
    for one in sorted(last.values(), key=lambda one: (one.since_ms, one.at_ms)):
        took_ms = round((one.since_ms or 0.0) - since_ms, 1)
        yield _Stretch(one.name, one.at_ms - round(took_ms), one.at_ms, took_ms, one)
        since_ms = one.since_ms or 0.0


def _begun(steps: Sequence[Step], term: Term) -> Iterator[_Stretch]:
    """Each until the next begins. What comes after "ready" is finished by "done"."""
    ends = [ms for ms in (term.ready_ms, term.done_ms) if ms is not None]
    for step, following in itertools.zip_longest(steps, steps[1:]):
        ends_ms = min((ms for ms in ends if ms >= step.at_ms), default=None)
        to_ms = ends_ms if following is None else following.at_ms
        yield _Stretch(step.name, step.at_ms, to_ms, None if to_ms is None else float(to_ms - step.at_ms), step)
    if steps and term.ready_ms is not None and term.done_ms is not None and steps[-1].at_ms <= term.ready_ms:
        took_ms = float(term.done_ms - term.ready_ms)
        if took_ms >= 0:
            yield _Stretch("finishing", term.ready_ms, term.done_ms, took_ms, steps[-1])
