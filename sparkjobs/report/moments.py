"""How moments are written in a report: with their day, where the logs are of more than one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sparkjobs.engine.local.answers import Answers
from sparkjobs.report.drawing import Span, clock

Clock = Callable[[int | None], str]


def span_of(answers: Answers) -> Span | None:
    """From the first to the last thing that is known."""
    spans: Sequence[Any] = answers["log_spans"]
    if not spans or not answers["broker_lives"]:
        return None
    return Span(min(one.from_ms for one in spans), end_of(answers))


def end_of(answers: Answers) -> int:
    """When the last line was written."""
    spans: Sequence[Any] = answers["log_spans"]
    return max((one.to_ms for one in spans), default=0)


def clock_for(answers: Answers) -> Clock:
    """For sentences: what stands there is read without what is around it."""
    span = span_of(answers)
    return partial(clock, with_day=False) if span is None else span.clock
