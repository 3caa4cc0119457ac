"""How moments are written in a report: with their day, where the logs are of more than one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sparkjobs.answers.local import Answers
from sparkjobs.report.drawing import Span, clock

Clock = Callable[[int | None], str]


def span_of(answers: Answers) -> Span | None:
    """From the first to the last thing that is known."""
    lives: Sequence[Any] = answers["broker_lives"]
    if not lives:
        return None
    return Span(min(one.from_ms for one in lives), max(one.last_seen_ms for one in lives))


def clock_for(answers: Answers) -> Clock:
    """For sentences: what stands there is read without what is around it."""
    span = span_of(answers)
    return partial(clock, with_day=False) if span is None else span.clock
