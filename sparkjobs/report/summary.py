"""What people ask after an outage, in the order they ask it, each answered in a sentence. Pure, no markup."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from sparkjobs.answers.local import Answers
from sparkjobs.report.drawing import clock, counted, lasting
from sparkjobs.report.moments import Clock, clock_for
from sparkjobs.report.verdict import is_blind

#: names that a sentence lists before it says how many more there are
LISTED = 3


def summary_for(answers: Answers) -> list[tuple[str, str]]:
    """Question and answer; nothing where no line was understood."""
    if not _rows(answers, "broker_lives"):
        return []
    at = clock_for(answers)
    end_ms = max((one.last_seen_ms for one in _rows(answers, "broker_lives")), default=0)
    return [
        ("Is it over?", _over(answers, end_ms, at)),
        ("Which partitions?", _which(answers, end_ms)),
        ("Since when?", _since(answers)),
        ("Was data lost?", _lost(answers)),
        ("Who was controller?", _controller(answers, at)),
        ("Which broker first?", _first(answers, at)),
        ("Did it flap?", _flapped(answers)),
    ]


def _over(answers: Answers, end_ms: int, at: Clock) -> str:
    outages = _rows(answers, "partition_outages")
    still = [one for one in outages if one.open]
    if still:
        names = _listed(f"{one.topic}-{one.partition}" for one in still)
        return f"No: without a leader where the logs end ({at(end_ms)}): {names}"
    if not outages and is_blind(answers):
        return "Not known: no line says whether a partition had a leader"
    if not outages:
        return "Nothing to get over: no partition is known to have been without a leader"
    return f"Yes: the last outage ended {at(max(one.end_ms for one in outages))}, the logs end {at(end_ms)}"


def _which(answers: Answers, end_ms: int) -> str:
    length: dict[str, int] = defaultdict(int)
    for one in _rows(answers, "partition_outages"):
        length[f"{one.topic}-{one.partition}"] += (end_ms if one.end_ms is None else one.end_ms) - one.start_ms
    if not length:
        return "Not known" if is_blind(answers) else "None"
    worst = sorted(length, key=lambda name: (-length[name], name))
    return f"{len(worst)}; worst {_listed(f'{name} ({lasting(length[name])})' for name in worst)}"


def _since(answers: Answers) -> str:
    outages = _rows(answers, "partition_outages")
    if not outages:
        return "-"
    first = min(outages, key=lambda one: (one.start_ms, one.topic, one.partition))
    exactly = "" if first.evidence == "exact" else f", give or take {lasting(first.start_hi_ms - first.start_lo_ms)}"
    return f"{clock(first.start_ms, with_day=True)} UTC ({first.topic}-{first.partition}{exactly})"


def _lost(answers: Answers) -> str:
    unclean = _rows(answers, "unclean_elections")
    if not unclean and is_blind(answers):
        return "Not known: no line says who was elected"
    if not unclean:
        return "No sign of it: every elected leader that can be judged was in sync"
    names = _listed(dict.fromkeys(f"{one.topic}-{one.partition}" for one in unclean))
    return f"It may be: {counted(len(unclean), 'leader')} elected that had not been in sync, of {names}"


def _controller(answers: Answers, at: Clock) -> str:
    tenures = _rows(answers, "controller_tenures")
    if not tenures:
        return "These logs do not say"
    last = tenures[-1]
    now = f"broker {last.broker} (epoch {last.controller_epoch}, since {at(last.from_ms)})"
    gaps = sum(one.gap_before_ms or 0 for one in tenures)
    before = (
        f"; {counted(len(tenures) - 1, 'term')} before it, nobody for {lasting(gaps)} in all" if tenures[1:] else ""
    )
    return f"In the end {now}{before}"


def _first(answers: Answers, at: Clock) -> str:
    lost = _rows(answers, "failovers")
    if not lost:
        return "None went"
    first = min(lost, key=lambda one: (one.last_seen_ms or one.detected_ms, one.broker))
    seat = ", the controller," if first.was_controller else ""
    heard = f"last heard {at(first.last_seen_ms)}" if first.last_seen_ms is not None else "never heard here"
    said = f"Broker {first.broker}{seat} {first.how}: {heard}, missed {at(first.detected_ms)}"
    if len(lost) == 1:
        return said
    times = ", ".join(f"{count} of broker {b}" for b, count in sorted(Counter(one.broker for one in lost).items()))
    return f"{said}. {len(lost)} losses in all: {times}"


def _flapped(answers: Answers) -> str:
    found = _rows(answers, "flapping")
    brokers = sorted({one.broker for one in found if one.what == "broker"})
    said = [f"broker {', '.join(map(str, brokers))} came and went"] if brokers else []
    for what, name in (("leader", "leader"), ("isr", "ISR")):
        count = sum(one.what == what for one in found)
        said += [f"the {name} of {counted(count, 'partition')} would not stay"] if count else []
    return f"Yes: {'; '.join(said)}" if said else "No"


def _listed(names: Any) -> str:
    known: Sequence[str] = list(names)
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return ", ".join(known[:LISTED]) + more


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]
